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
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var large = flag.Bool("large", false, "also run the searches that take minutes and gigabytes each")

// A search is one run of a model: spin looks at every state that its
// parameters allow.
type search struct {
	model  string
	params string
	states int  // found by spin 6.5.2
	large  bool // takes minutes, and up to 4 GB
}

// holds are searches that must be complete and find no error.
var holds = []search{
	{"ring", "P=2 CALLS=3 E=3", 2035857, false},
	{"ring", "P=2 CALLS=2 E=4 SPARSE", 2572633, false},
	{"ring", "P=2 CALLS=1 E=4 N=3 LIMIT=3 COSTS=2 LIMITS", 2529287, false},
	{"ring", "P=3 CALLS=1 E=2", 989976, false},
	{"ring", "P=3 CALLS=1 E=3", 9772310, true},
	{"ring", "P=2 CALLS=2 E=5 N=3", 9100133, true},
	{"ring", "P=2 CALLS=2 E=3 LIMIT=3 COSTS=2 LIMITS", 20618889, true},
	{"retire", "P=2 CALLS=2 E=3", 3262767, false},
	{"retire", "P=2 CALLS=1 E=5 R=3", 293197, false},
	{"retire", "P=2 CALLS=2 E=4", 20483941, true},
	{"overflow", "P=2 CALLS=3 E=3 R=5", 3450319, false},
	{"overflow", "P=3 CALLS=1 E=2", 880537, false},
	{"overflow", "P=3 CALLS=2 E=2 R=5", 20009235, true},
	{"credits", "P=2 CALLS=2 E=3 COSTS=2", 21901285, false},
	{"credits", "P=2 CALLS=1 E=3 COSTS=2 REFUNDS SPARSE", 1486837, false},
	{"credits", "P=2 CALLS=1 E=2 COSTS=2 LOWER=1", 5260645, false},
	{"credits", "P=2 CALLS=1 E=3 LIMIT=4 BATCH=3 COSTS=3", 1484599, false},
	{"credits", "P=2 CALLS=1 E=3 LIMIT=3 BATCH=2 COSTS=3", 975703, false},
	{"credits", "P=2 CALLS=2 E=2 LIMIT=3 BATCH=3 COSTS=2 REFUNDS", 10545259, false},
	{"credits", "P=3 CALLS=1 E=3", 79703851, true},
	{"credits", "P=2 CALLS=2 E=3 COSTS=2 REFUNDS", 87113591, true},
	{"credits", "P=2 CALLS=2 E=2 LOWER=2", 33129603, true},
	{"credits", "P=2 CALLS=1 E=3 COSTS=2 LOWER=1", 28524167, true},
}

// A protection is what the model can do without at the price of an error.
type protection struct {
	search
	without string // what the model does then
}

// fails are searches of a model with one protection removed. They must find an
// error, which shows that the model can fail and that the protection is needed.
var fails = []protection{
	{search{model: "ring", params: "E=3 NOFREEZE"}, "closes a sub-window without freezing the head"},
	{search{model: "ring", params: "E=4 NOCHECK"}, "publishes a count without a second look at the head"},
	{search{model: "ring", params: "E=4 STORE"}, "publishes a count by a plain store"},
	{search{model: "ring", params: "E=3 RELABEL"}, "keeps the old count in a slot that is used again"},
	{search{model: "ring", params: "E=3 REFUNDFROZEN"}, "refunds from a frozen head"},
	{search{model: "ring", params: "E=3 ANYOPENED"}, "takes what an earlier epoch began with for what this one did"},
	{search{model: "ring", params: "E=4 EARLYOPENED"}, "writes down what an epoch begins with before it has opened it"},
	{search{model: "retire", params: "E=4 NOFLOOR"}, "has no floor"},
	{search{model: "retire", params: "E=4 LATEFLOOR"}, "raises the floor after it has retired a ring"},
	{search{model: "retire", params: "E=5 R=3 EARLYFLOOR"}, "reads the floor before the insert has the lock"},
	{search{model: "retire", params: "E=4 UNBORN"}, "shares a ring whose head is not open yet"},
	{search{model: "retire", params: "E=4 EARLYRETIRE"}, "retires a ring one epoch too early"},
	{search{model: "overflow", params: "E=2 LATELOOK"}, "looks for the key's own ring before it looks for the shared one"},
	{search{model: "overflow", params: "E=2 UNSEEN"}, "makes a key's own ring without looking for a shared one"},
	{search{model: "overflow", params: "E=2 DROPPED"}, "forgets a shared ring without retiring it"},
	{search{model: "overflow", params: "E=2 LIVING"}, "retires a shared ring that is in use"},
	{search{model: "credits", params: "E=3 NOSEAL"}, "takes credits out of the count of a sub-window without sealing them"},
	{search{model: "credits", params: "E=3 DROP"}, "drops the number of credits when it seals a stripe"},
	{search{model: "credits", params: "E=2 NOSTEAL"}, "denies without looking for credits"},
	{search{model: "credits", params: "E=3 SPENDSEALED"}, "spends credits of a sealed stripe"},
	{search{model: "credits", params: "E=3 DEPOSITSEALED"}, "deposits on a sealed stripe"},
	{search{model: "credits", params: "E=3 COSTS=2 TAKESEALED"}, "gathers from a sealed stripe"},
	{search{model: "credits", params: "E=3 COSTS=2 STALEHAND"}, "uses units of one epoch in the next"},
	{search{model: "credits", params: "E=2 COSTS=2 NOGIVEBACK"}, "keeps gathered units that are not enough"},
	{search{model: "credits", params: "E=2 LATEHINT"}, "raises on after the charge"},
	{search{model: "credits", params: "E=2 LOWER=1 BLIND"}, "spends credits charged under a limit since lowered"},
	{search{model: "credits", params: "E=2 LOWER=1 SHORTEXACT"}, "the same, in the sub-window of the change only"},
}

func (s search) String() string { return s.model + " " + s.params }

// run returns what the verifier, compiled with options, printed. A search that could not be run, or
// that took too long, fails the test.
func (s search) run(t *testing.T, options ...string) string {
	path, err := filepath.Abs(filepath.Join("models", s.model+".pml"))
	require.NoError(t, err)
	source, err := os.ReadFile(path)
	require.NoError(t, err)
	limit := 9 * time.Minute
	if s.large {
		limit = time.Hour
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
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
	for _, model := range []string{"ring", "retire", "overflow", "credits"} {
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
					for _, incomplete := range []string{"Search not completed", "search depth too small", "MEMLIM", "out of memory", "hash conflict table"} {
						require.NotContains(t, out, incomplete, "%s", s)
					}
					match := states.FindStringSubmatch(out)
					require.NotNil(t, match, "%s: %s", s, out)
					n, err := strconv.Atoi(match[1])
					require.NoError(t, err)
					t.Logf("%s: %d states", s, n)
					require.Greater(t, n, s.states/2, "the model has lost behaviour")
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

// The tables in README.md are those above.
func TestModel_Table(t *testing.T) {
	var table strings.Builder
	table.WriteString("| model | parameters | states |\n|---|---|---|\n")
	for _, s := range holds {
		star := ""
		if s.large {
			star = " *"
		}
		fmt.Fprintf(&table, "| %s | %s%s | %d |\n", s.model, s.params, star, s.states)
	}
	inReadme(t, "searches", table.String())
	table.Reset()
	table.WriteString("| model | parameters | the model then |\n|---|---|---|\n")
	for _, p := range fails {
		fmt.Fprintf(&table, "| %s | %s | %s |\n", p.model, p.params, p.without)
	}
	inReadme(t, "protections", table.String())
}
