package checks

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A block is a piece of code in a document. line is that of its first line.
type block struct {
	file string
	line int
	lang string
	text string
}

// fenced returns the fenced blocks of a Markdown text.
func fenced(file, text string) []block {
	var blocks []block
	var open *block
	var indent string
	for i, line := range strings.Split(text, "\n") {
		info, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && open == nil:
			indent = line[:strings.Index(line, "```")]
			lang, _, _ := strings.Cut(info, " ")
			open = &block{file: file, line: i + 2, lang: lang}
		case fence:
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	return blocks
}

// commented returns the code blocks of the package comment in a doc.go that
// are Go: those that declare something. Others are diagrams and tables.
func commented(t *testing.T, file, text string) []block {
	t.Helper()
	syntax, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ParseComments|parser.PackageClauseOnly)
	require.NoError(t, err)
	var blocks []block
	for _, content := range new(comment.Parser).Parse(syntax.Doc.Text()).Content {
		code, ok := content.(*comment.Code)
		if !ok || !regexp.MustCompile(`:=|^(package|import|func|type|var) `).MatchString(code.Text) {
			continue
		}
		first, _, _ := strings.Cut(code.Text, "\n")
		before, _, found := strings.Cut(text, first)
		require.True(t, found)
		blocks = append(blocks, block{file: file, line: strings.Count(before, "\n") + 1, lang: "go", text: code.Text})
	}
	return blocks
}

// preamble are the packages that a block may use without importing them, so
// that a document can show the line that matters.
var preamble = map[string]string{
	"atomicring": module + "/atomicring",
	"limiter":    module + "/limiter",
	"middleware": module + "/middleware",
	"sharded":    module + "/sharded",

	"context": "context",
	"errors":  "errors",
	"fmt":     "fmt",
	"http":    "net/http",
	"log":     "log",
	"os":      "os",
	"time":    "time",
}

// program makes a Go file of a block: of a whole file, of declarations, or of
// statements; the last two may begin with imports. What the compiler says about
// it names the document and its line.
func (b block) program(t *testing.T) string {
	t.Helper()
	document, err := filepath.Abs(filepath.Join(root, b.file))
	require.NoError(t, err)
	from := func(line int) string { return fmt.Sprintf("\n//line %s:%d\n", document, line) }
	b.text = strings.ReplaceAll(b.text, "…", "") // what is left out
	if strings.HasPrefix(b.text, "package ") {
		return from(b.line) + b.text
	}

	const clause = "package block\n"
	fset := token.NewFileSet()
	head, err := parser.ParseFile(fset, "", clause+b.text, parser.ImportsOnly)
	require.NoError(t, err, "%s:%d: the imports do not parse", b.file, b.line)
	imports, code := "", b.text
	if n := len(head.Decls); n > 0 {
		end := fset.Position(head.Decls[n-1].End()).Offset - len(clause)
		imports, code = b.text[:end], b.text[end:]
	}
	if strings.TrimSpace(code) == "" { // imports alone: nothing that uses them
		for _, spec := range head.Imports {
			imports = strings.Replace(imports, spec.Path.Value, "_ "+spec.Path.Value, 1)
		}
		return clause + from(b.line) + imports
	}

	code = from(b.line+strings.Count(imports, "\n")) + code
	syntax, err := parser.ParseFile(fset, "", clause+code, parser.SkipObjectResolution)
	if err != nil {
		syntax, err = parser.ParseFile(fset, "", clause+"func _() {"+code+"}", parser.SkipObjectResolution)
		require.NoError(t, err, "%s:%d: neither declarations nor statements", b.file, b.line)
		function := syntax.Decls[0].(*ast.FuncDecl)
		code = "\nfunc _() " + result(function) + " {" + code + uses(function) + "}\n"
	}

	var added strings.Builder
	for name, lib := range preamble {
		if qualifies(syntax, name) && !has(head, lib) {
			fmt.Fprintf(&added, "import %q\n", lib)
		}
	}
	return clause + added.String() + from(b.line) + imports + code
}

func has(file *ast.File, lib string) bool {
	return slices.ContainsFunc(file.Imports, func(spec *ast.ImportSpec) bool { return spec.Path.Value == strconv.Quote(lib) })
}

// qualifies reports whether syntax uses name as that of a package.
func qualifies(syntax ast.Node, name string) bool {
	for n := range ast.Preorder(syntax) {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == name {
				return true
			}
		}
	}
	return false
}

// result is "error" if statements return one value: what else would they?
func result(function *ast.FuncDecl) string {
	kind := ""
	ast.Inspect(function, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			if len(n.Results) == 1 {
				kind = "error"
			}
		}
		return true
	})
	return kind
}

// uses returns statements that use the variables that a function declares, so
// that a block may end with one, and a return in case it needs one.
func uses(function *ast.FuncDecl) string {
	var b strings.Builder
	use := func(names ...*ast.Ident) {
		for _, name := range names {
			if name.Name != "_" {
				fmt.Fprintf(&b, "_ = %s\n", name.Name)
			}
		}
	}
	for _, statement := range function.Body.List {
		switch s := statement.(type) {
		case *ast.AssignStmt:
			for _, left := range s.Lhs {
				if name, ok := left.(*ast.Ident); ok && s.Tok == token.DEFINE {
					use(name)
				}
			}
		case *ast.DeclStmt:
			for _, spec := range s.Decl.(*ast.GenDecl).Specs {
				if value, ok := spec.(*ast.ValueSpec); ok {
					use(value.Names...)
				}
			}
		}
	}
	if result(function) != "" {
		b.WriteString("return nil\n")
	}
	return b.String()
}

// compile builds the blocks as packages of the root module that only the go
// command sees: nothing is written into the tree.
func compile(t *testing.T, blocks []block) (string, error) {
	t.Helper()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	args := []string{"build", "-o", os.DevNull, "-overlay", filepath.Join(t.TempDir(), "overlay.json")}
	for i, b := range blocks {
		folder := fmt.Sprintf("blocks/%d", i)
		seen, err := filepath.Abs(filepath.Join(root, folder, "block.go"))
		require.NoError(t, err)
		written := filepath.Join(t.TempDir(), "block.go")
		require.NoError(t, os.WriteFile(written, []byte(b.program(t)), 0o600))
		overlay.Replace[seen] = written
		args = append(args, "./"+folder)
	}
	text, err := json.Marshal(overlay)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(args[4], text, 0o600))
	return goTool(t, ".", args...)
}

// documents returns the blocks of every Markdown file and package comment of
// the root module: it is what blocks are compiled against.
func documents(t *testing.T) []block {
	t.Helper()
	nested := files(t, named("/go.mod"))
	ours := func(file string) bool {
		return !slices.ContainsFunc(nested, func(mod string) bool { return strings.HasPrefix(file, path.Dir(mod)+"/") })
	}
	var blocks []block
	for _, file := range files(t, ours) {
		switch {
		case path.Ext(file) == ".md":
			blocks = append(blocks, fenced(file, read(t, file))...)
		case path.Base(file) == "doc.go":
			blocks = append(blocks, commented(t, file, read(t, file))...)
		}
	}
	return blocks
}

func TestDocs_GoBlocks(t *testing.T) {
	blocks := slices.DeleteFunc(documents(t), func(b block) bool { return b.lang != "go" })
	require.NotEmpty(t, blocks)
	out, err := compile(t, blocks)
	require.NoError(t, err, out)
}

// The test before this one can fail, and it names the line.
func TestDocs_GoBlocks_NamesTheLine(t *testing.T) {
	for _, text := range []string{
		"package main\n\nfunc main() {\n\tmissing()\n}\n",
		"import \"fmt\"\n\nfunc f() {\n\tfmt.Missing()\n}\n",
		"import \"fmt\"\n\nvar now = time.Now()\nfmt.Missing(now)\n",
		"now := time.Now()\nvar err = errors.New(\"\")\n\nmissing()\n",
		"for 0 < 1 {\n\treturn errors.ErrUnsupported\n}\nmissing()\n",
	} {
		blocks := fenced("README.md", "# Title\n\n- item\n\n  ```go\n"+text+"  ```\n")
		require.Len(t, blocks, 1)
		out, err := compile(t, blocks)
		require.Error(t, err, text)
		require.Regexp(t, `README.md:9: undefined: \S*[mM]issing\s*$`, out)
	}
}

// commands returns the commands that the documents show, one a block.
func commands(t *testing.T) []block {
	t.Helper()
	var shown []block
	for _, b := range documents(t) {
		if !slices.Contains([]string{"sh", "bash", "shell", "console"}, b.lang) {
			continue
		}
		for i, line := range strings.Split(b.text, "\n") {
			line, typed := strings.CutPrefix(line, "$ ")
			if b.lang == "console" && !typed { // what the command printed
				continue
			}
			line, _, _ = strings.Cut(line, " #")
			for command := range strings.SplitSeq(line, "&&") {
				shown = append(shown, block{b.file, b.line + i, b.lang, strings.TrimSpace(command)})
			}
		}
	}
	return shown
}

// The folders, files and make targets that commands name exist.
func TestDocs_Commands(t *testing.T) {
	exists := func(file string) bool { _, err := os.Stat(filepath.Join(root, file)); return err == nil }
	makefile := read(t, "Makefile")
	for _, c := range commands(t) {
		words := strings.Fields(c.text)
		for _, word := range words {
			file, _ := strings.CutPrefix(strings.TrimSuffix(word, "/..."), "./")
			first, _, deep := strings.Cut(file, "/")
			if strings.HasPrefix(word, "./") || deep && exists(first) {
				require.True(t, exists(file), "%s:%d: there is no %s", c.file, c.line, word)
			}
		}
		if len(words) > 1 && words[0] == "make" {
			for _, target := range words[1:] {
				require.True(t, strings.Contains(target, "=") || strings.Contains(makefile, "\n"+target+":"), "%s:%d: make has no %s", c.file, c.line, target)
			}
		}
	}
}

// The command of the README does what it says.
func TestDocs_ReadmeRuns(t *testing.T) {
	ran := 0
	for _, c := range commands(t) {
		if words := strings.Fields(c.text); c.file == "README.md" && strings.HasPrefix(c.text, "go run ./cmd/") {
			out, err := goTool(t, ".", words[1:]...)
			require.NoError(t, err, "%s:%d: %s\n%s", c.file, c.line, c.text, out)
			require.NotEmpty(t, out)
			ran++
		}
	}
	require.NotZero(t, ran)
}

// Links between documents lead somewhere.
func TestDocs_Links(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s#]+)`)
	block := regexp.MustCompile("(?s)```.*?```")
	for _, file := range files(t, named(".md")) {
		for _, found := range link.FindAllStringSubmatch(block.ReplaceAllString(read(t, file), ""), -1) {
			if target := found[1]; !strings.Contains(target, "://") && !strings.HasPrefix(target, "mailto:") {
				_, err := os.Stat(filepath.Join(root, path.Dir(file), target))
				require.NoError(t, err, "%s links to %s", file, target)
			}
		}
	}
}
