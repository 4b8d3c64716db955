package checks

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// goMod is the part of `go mod edit -json` that the tests look at.
type goMod struct {
	Require []struct {
		Path     string
		Indirect bool
	}
	Replace []replacement
}

type replacement struct{ Old, New struct{ Path string } }

func readGoMod(t *testing.T, folder string) goMod {
	t.Helper()
	out, err := goTool(t, folder, "mod", "edit", "-json")
	require.NoError(t, err, out)
	var mod goMod
	require.NoError(t, json.Unmarshal([]byte(out), &mod))
	return mod
}

// An importer's go.sum has what the root module requires, and no more.
func TestModules_RootRequiresLittle(t *testing.T) {
	allowed := []string{
		"github.com/puzpuzpuz/xsync/v3",
		"github.com/stretchr/testify",
		"golang.org/x/sync",
	}
	for _, r := range readGoMod(t, ".").Require {
		if !r.Indirect {
			require.Contains(t, allowed, r.Path, "go.mod requires %s directly: it belongs in a nested module", r.Path)
		}
	}
}

// A nested module is built against the tree that it lies in.
func TestModules_NestedUseThisTree(t *testing.T) {
	for _, file := range files(t, named("/go.mod")) {
		folder := path.Dir(file)
		mod := readGoMod(t, folder)
		for _, r := range mod.Require {
			if r.Path != module {
				continue
			}
			require.True(t, slices.ContainsFunc(mod.Replace, func(r replacement) bool {
				return r.Old.Path == module && path.Join(folder, r.New.Path) == "."
			}), "%s requires %s but does not replace it by the root of this tree", file, module)
		}
	}
}

// Imports point down only. A package that is not in the table is at the top:
// it may import them all, and none of them may import it.
func TestModules_Layers(t *testing.T) {
	below := map[string][]string{
		"atomicring": {},
		"sharded":    {"github.com/puzpuzpuz/xsync/v3"},
		"limiter":    {"github.com/puzpuzpuz/xsync/v3", "golang.org/x/sync", module + "/atomicring", module + "/sharded"},
		"middleware": {module + "/limiter"},
	}
	out, err := goTool(t, ".", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "./...")
	require.NoError(t, err, out)
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		name, _ := strings.CutPrefix(fields[0], module+"/")
		layer, _, _ := strings.Cut(name, "/")
		allowed, limited := below[layer]
		if !limited {
			continue
		}
		for _, imported := range fields[1:] {
			first, _, _ := strings.Cut(imported, "/")
			standard := !strings.Contains(first, ".")
			within := func(prefix string) bool { return imported == prefix || strings.HasPrefix(imported, prefix+"/") }
			require.True(t, standard || within(module+"/"+layer) || slices.ContainsFunc(allowed, within),
				"%s may not import %s", name, imported)
		}
	}
}
