package verify

import (
	"flag"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the tables in README.md")

// inReadme fails the test unless README.md has the text between its marks for
// name. With -update it puts it there.
func inReadme(t *testing.T, name, text string) {
	t.Helper()
	block := regexp.MustCompile("(?s)(<!-- " + name + " -->\n).*(<!-- end of " + name + " -->)")
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	require.Regexp(t, block, string(readme))
	want := block.ReplaceAllString(string(readme), "${1}"+text+"${2}")
	if *update {
		require.NoError(t, os.WriteFile("README.md", []byte(want), 0o600))
		return
	}
	require.Equal(t, want, string(readme), "run this test with -update")
}
