//go:build spin

package verify

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var large = flag.Bool("large", false, "also run the models that take minutes and gigabytes each")

// A search is one run of a model: spin looks at every state that its
// parameters allow.
type search struct {
	model  string
	params string
	large  bool
}

// holds are searches that must be complete and find no error.
var holds = []search{
	{model: "ring", params: "P=2 CALLS=3 E=3"},
	{model: "ring", params: "P=2 CALLS=2 E=4 SPARSE"},
	{model: "ring", params: "P=2 CALLS=1 E=4 N=3 LIMIT=3 COSTS=2 LIMITS"},
	{model: "ring", params: "P=3 CALLS=1 E=2"},
	{model: "ring", params: "P=3 CALLS=1 E=3", large: true},
	{model: "ring", params: "P=2 CALLS=2 E=5 N=3", large: true},
	{model: "ring", params: "P=2 CALLS=2 E=3 LIMIT=3 COSTS=2 LIMITS", large: true},
	{model: "retire", params: "P=2 CALLS=2 E=3"},
	{model: "retire", params: "P=2 CALLS=1 E=5 R=3"},
	{model: "retire", params: "P=2 CALLS=2 E=4", large: true},
	{model: "credits", params: "P=2 CALLS=2 E=3 COSTS=2"},
	{model: "credits", params: "P=2 CALLS=1 E=3 COSTS=2 REFUNDS SPARSE"},
	{model: "credits", params: "P=2 CALLS=1 E=2 COSTS=2 LOWER=1"},
	{model: "credits", params: "P=2 CALLS=1 E=3 LIMIT=4 BATCH=3 COSTS=3"},
	{model: "credits", params: "P=3 CALLS=1 E=2", large: true},
	{model: "credits", params: "P=2 CALLS=2 E=2 COSTS=2 REFUNDS", large: true},
	{model: "credits", params: "P=2 CALLS=2 E=2 LOWER=2", large: true},
	{model: "credits", params: "P=2 CALLS=1 E=3 COSTS=2 LOWER=1", large: true},
}

// fails are searches of a model with one protection removed. They must find an
// error, which shows that the model can fail and that the protection is needed.
var fails = []search{
	{model: "ring", params: "E=3 NOFREEZE"},
	{model: "ring", params: "E=4 NOCHECK"},
	{model: "ring", params: "E=4 STORE"},
	{model: "ring", params: "E=3 RELABEL"},
	{model: "ring", params: "E=3 REFUNDFROZEN"},
	{model: "retire", params: "E=4 NOFLOOR"},
	{model: "retire", params: "E=4 LATEFLOOR"},
	{model: "retire", params: "E=5 R=3 EARLYFLOOR"},
	{model: "retire", params: "E=4 UNBORN"},
	{model: "retire", params: "E=4 EARLYRETIRE"},
	{model: "credits", params: "E=3 NOSEAL"},
	{model: "credits", params: "E=3 DROP"},
	{model: "credits", params: "E=2 NOSTEAL"},
	{model: "credits", params: "E=3 SPENDSEALED"},
	{model: "credits", params: "E=3 DEPOSITSEALED"},
	{model: "credits", params: "E=3 COSTS=2 TAKESEALED"},
	{model: "credits", params: "E=3 COSTS=2 STALEHAND"},
	{model: "credits", params: "E=2 COSTS=2 NOGIVEBACK"},
	{model: "credits", params: "E=2 LATEHINT"},
	{model: "credits", params: "E=2 LOWER=1 BLIND"},
	{model: "credits", params: "E=2 LOWER=1 SHORTEXACT"},
}

func (s search) String() string { return s.model + " " + s.params }

// run returns what the verifier, compiled with options, printed. A search that could not be run, or
// that took too long, fails the test.
func (s search) run(t *testing.T, options ...string) string {
	path, err := filepath.Abs(filepath.Join("models", s.model+".pml"))
	require.NoError(t, err)
	source, err := os.ReadFile(path)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute)
	defer cancel()
	dir := t.TempDir()
	step := func(name string, args ...string) string {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, ctx.Err(), "%s: timeout", s)
		require.NoError(t, err, "%s: %s: %s", s, name, out)
		return string(out)
	}
	generate := []string{"-a"}
	for _, p := range strings.Fields(s.params) {
		name, _, _ := strings.Cut(p, "=")
		require.Regexp(t, `#(ifn?def|define) `+name+`\b`, string(source), "%s: the model has no such parameter", s)
		generate = append(generate, "-D"+p)
	}
	step("spin", append(generate, path)...)
	step("cc", append(options, "-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-DMEMLIM=6000", "-o", "pan", "pan.c")...)
	return step("./pan", "-m1000000")
}

var (
	states    = regexp.MustCompile(`(?m)^\s*(\d+) states, stored`)
	unreached = regexp.MustCompile(`(?m)^\s*\S*\.pml:(\d+), state`)
)

// A model holds if every search of it is complete and without an error, and if
// together they reach every line: what is not reached is not checked.
func TestModel_Holds(t *testing.T) {
	for _, model := range []string{"ring", "retire", "credits"} {
		var mu sync.Mutex
		missed := make(map[string]int) // line, searches that missed it
		searches := 0
		t.Run(model, func(t *testing.T) {
			for _, s := range holds {
				if s.model != model || s.large && !*large {
					continue
				}
				searches++
				t.Run(s.params, func(t *testing.T) {
					t.Parallel()
					out := s.run(t)
					require.Contains(t, out, "errors: 0", "%s: %s", s, out)
					for _, incomplete := range []string{"Search not completed", "search depth too small", "reached -DMEMLIM", "out of memory", "hash conflict table"} {
						require.NotContains(t, out, incomplete, "%s", s)
					}
					n := states.FindStringSubmatch(out)
					require.NotNil(t, n, "%s: %s", s, out)
					t.Logf("%s: %s states", s, n[1])
					lines := make(map[string]bool)
					for _, m := range unreached.FindAllStringSubmatch(out, -1) {
						lines[m[1]] = true
					}
					mu.Lock()
					defer mu.Unlock()
					for line := range lines {
						missed[line]++
					}
				})
			}
		})
		for line, n := range missed {
			require.NotEqual(t, searches, n, fmt.Sprintf("%s.pml:%s is not reached by any search", model, line))
		}
	}
}

func TestModel_FailsWithoutProtection(t *testing.T) {
	for _, s := range fails {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			out := s.run(t, "-DT_REVERSE") // the errors are found sooner from the back
			require.Contains(t, out, "errors: 1", "%s found nothing: %s", s, out)
			require.Contains(t, out, "assertion violated", "%s: %s", s, out)
		})
	}
}
