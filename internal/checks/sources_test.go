package checks

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// parseAll returns the syntax of every Go file of the repository, by its path.
func parseAll(t *testing.T) (*token.FileSet, map[string]*ast.File) {
	t.Helper()
	fset, syntax := token.NewFileSet(), map[string]*ast.File{}
	for _, file := range files(t, named(".go")) {
		var err error
		syntax[file], err = parser.ParseFile(fset, file, read(t, file), parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
	}
	return fset, syntax
}

// A test that is skipped is a test that nobody runs.
func TestSources_NoSkippedTest(t *testing.T) {
	fset, syntax := parseAll(t)
	for _, file := range syntax {
		for n := range ast.Preorder(file) {
			if sel, ok := n.(*ast.SelectorExpr); ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
				x, ok := sel.X.(*ast.Ident)
				require.False(t, ok && slices.Contains([]string{"t", "b", "f", "tb"}, x.Name), "%s: no test is skipped", fset.Position(sel.Pos()))
			}
		}
	}
}

func TestSources_NothingLeftToDo(t *testing.T) {
	left := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME)\b`)
	for _, file := range files(t, func(string) bool { return true }) {
		text := read(t, file)
		if !utf8.ValidString(text) {
			continue
		}
		for i, line := range strings.Split(text, "\n") {
			require.False(t, left.MatchString(line), "%s:%d: %s", file, i+1, line)
		}
	}
}

// Every package has its comment in doc.go, and only there.
func TestSources_PackageComments(t *testing.T) {
	folders, documented := map[string]bool{}, map[string]bool{}
	_, syntax := parseAll(t)
	for file, parsed := range syntax {
		folder, name, text := path.Dir(file), parsed.Name.Name, parsed.Doc.Text()
		folders[folder] = true
		switch {
		case path.Base(file) != "doc.go":
			require.Empty(t, text, "%s: a package comment belongs in doc.go", file)
			continue
		case name == "main":
			require.NotEmpty(t, text, "%s has no package comment", file)
		default:
			require.True(t, strings.HasPrefix(text, "Package "+name+" "), "%s: the comment does not begin with Package %s", file, name)
		}
		documented[folder] = true
	}
	require.Equal(t, folders, documented, "folders with Go files, and those of them with a doc.go")
}
