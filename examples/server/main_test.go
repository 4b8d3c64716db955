package main

import (
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringfence-go/ringfence/limiter"
)

// Where the server cannot listen, it does not say that it does.
func TestRun_BadAddress(t *testing.T) {
	var out strings.Builder
	log.SetOutput(&out)
	defer log.SetOutput(os.Stderr)
	require.ErrorContains(t, run(t.Context(), "127.0.0.1"), "missing port in address")
	require.Empty(t, out.String())
}

// An argument that is none, such as an address without -addr, is not ignored.
func TestMain_UnexpectedArgument(t *testing.T) {
	if os.Getenv("SERVER_TEST") == "main" {
		os.Args = []string{"server", "-addr", "127.0.0.1", ":9090"}
		main()
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestMain_UnexpectedArgument$")
	cmd.Env = append(os.Environ(), "SERVER_TEST=main")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 2, cmd.ProcessState.ExitCode())
	require.Equal(t, "server: unexpected argument \":9090\"\n", string(out))
}

// The answers that the package comment shows are those that come.
func TestServer_Documented(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	clock := limiter.NewManualClock()
	s, err := newSite(clock)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	get := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		return w
	}
	clock.Set(0)
	first := get()
	get()
	get()
	clock.Set(2 * time.Second)
	for i, w := range []*httptest.ResponseRecorder{first, get()} {
		require.Equal(t, []int{200, 429}[i], w.Code)
		shown := strings.Split(string(doc), "HTTP/1.1 ")[i+1]
		shown = strings.SplitAfter(shown, "\n//\n")[0]
		lines := strings.Split(strings.TrimSpace(regexp.MustCompile(`(?m)^//\s*`).ReplaceAllString(shown, "")), "\n")[1:]
		require.Greater(t, len(lines), 3)
		for _, line := range lines {
			name, value, found := strings.Cut(line, ": ")
			require.True(t, found, line)
			if name == "X-Ratelimit-Reset" {
				require.Regexp(t, `^\d{10}$`, w.Header().Get(name))
				continue
			}
			require.Equal(t, value, w.Header().Get(name), name)
		}
		require.Len(t, lines, len(w.Header())-[]int{1, 0}[i], "all of them, but the content type of the page")
	}

	throttled := func() int {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("GET", "/throttled", nil))
		return w.Code
	}
	require.Equal(t, []int{200, 200, 429}, []int{throttled(), throttled(), throttled()})
}
