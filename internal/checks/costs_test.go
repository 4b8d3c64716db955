package checks

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// inlined are the functions that the fast paths count on being inlined, as the
// compiler's report names them, less type arguments.
var inlined = map[string][]string{
	"atomicring": {
		"(*Layout).stamp", "(*Layout).open", "(*Layout).stampOf", "(*Layout).index", "(*Layout).sum", "(*Ring).slots", "(*Ring).freeze", "(*Ring).TryAdmit",
		"(*Striped).credits", "(*stripes).at", "(*stripes).charge",
		"CellDeadline", "cellLive", "peekCell",
		"yield",
	},
	"limiter": {
		"SystemClock.Now", "(*CoarseClock).Now", "(*timeline).now", "(*timeline).epoch", "(*timeline).turn",
		"(*Limiter).Allow", "(*Limiter).Attempt", "(*policy).noteDenied",
		"sharded.(*Map).First", "sharded.(*Map).HasShort", "sharded.(*Map).Has", "sharded.(*Map).ShardOf", "(*table).shard",
	},
}

func TestCosts_Inlined(t *testing.T) {
	can := regexp.MustCompile(`: can inline (.+)`)
	types := regexp.MustCompile(`\[.*\]`)
	for folder, functions := range inlined {
		report, err := goTool(t, ".", "build", "-gcflags=-m", "./"+folder)
		require.NoError(t, err, report)
		found := map[string]bool{}
		for _, line := range can.FindAllStringSubmatch(report, -1) {
			// Generic code is compiled by the shape of its types. Wrappers of it
			// are in the report too, under the types themselves.
			if name := types.ReplaceAllString(line[1], ""); name == line[1] || strings.Contains(line[1], "[go.shape.") {
				found[name] = true
			}
		}
		for _, function := range functions {
			require.True(t, found[function], "%s: the compiler does not inline %s", folder, function)
		}
	}
}
