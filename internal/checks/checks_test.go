package checks

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/ringfence-go/ringfence"

// root is the root of the repository: tests run in their package's folder.
const root = "../.."

// files returns every file of the repository for which keep reports true, as
// paths from the root with forward slashes.
func files(t *testing.T, keep func(path string) bool) []string {
	t.Helper()
	var kept []string
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (path == ".git" || path == "out"):
			return fs.SkipDir
		case entry.Type().IsRegular() && keep(path):
			kept = append(kept, path)
		}
		return nil
	})
	require.NoError(t, err)
	return kept
}

func named(suffix string) func(string) bool {
	return func(path string) bool { return strings.HasSuffix(path, suffix) }
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(text)
}

// goTool runs the go command in a folder of the repository and returns what it
// printed, on both streams.
func goTool(t *testing.T, folder string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = filepath.Join(root, folder)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
