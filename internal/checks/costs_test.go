package checks

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// inlined are the functions that the fast path counts on being inlined, named
// as the compiler's report names them.
var inlined = map[string][]string{
	"atomicring": {
		"(*Layout).stamp", "(*Layout).open", "(*Layout).stampOf", "(*Layout).index", "(*Layout).sum",
		"(*Ring).slots", "CellDeadline", "cellLive", "peekCell", "yield",
	},
}

func TestCosts_Inlined(t *testing.T) {
	can := regexp.MustCompile(`: can inline (.+)`)
	for folder, functions := range inlined {
		report, err := goTool(t, ".", "build", "-gcflags=-m", "./"+folder)
		require.NoError(t, err, report)
		found := map[string]bool{}
		for _, line := range can.FindAllStringSubmatch(report, -1) {
			found[line[1]] = true
		}
		for _, function := range functions {
			require.True(t, found[function], "%s: the compiler does not inline %s", folder, function)
		}
	}
}
