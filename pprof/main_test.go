package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The time of a test run: short, but with contention enough to see a lock.
const brief = 100 * time.Millisecond

func testConfig(t *testing.T, workload, impl string) config {
	return config{workload: workload, impl: impl, clock: "system", duration: brief, goroutines: 8, out: t.TempDir()}
}

func profiled(t *testing.T, c config) result {
	t.Helper()
	l, err := newLoad(c)
	require.NoError(t, err)
	defer l.close()
	r, err := profile(t.Context(), c, l)
	require.NoError(t, err)
	return r
}

// TestProfile_ExistingKeysWaitForNothing asserts, from the runtime's own records,
// that decisions on existing keys wait for no lock and no channel, and that the
// records would show it if they did.
func TestProfile_ExistingKeysWaitForNothing(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	for _, workload := range []string{"single", "hot-key", "hot-key-denied", "uniform", "denied", "zipf", "rollover", "http"} {
		r := profiled(t, testConfig(t, workload, "ringfence"))
		require.NotZero(t, r.decisions, workload)
		require.Equal(t, wait{}, r.mutex.decisions, "%s: locks", workload)
		require.Equal(t, wait{}, r.block.decisions, "%s: channels and locks", workload)
	}
	c := testConfig(t, "hot-key", "mutex")
	for range 20 { // it is up to the scheduler when a lock is contended
		r := profiled(t, c)
		if r.mutex.decisions.events > 0 && r.mutex.decisions.time > 0 && r.block.decisions.events > 0 {
			return
		}
	}
	t.Fatal("no wait of the mutex limiter was seen in 20 runs")
}

func TestProfile_Shares(t *testing.T) {
	for workload, share := range map[string]float64{"hot-key": 1, "denied": 0, "http": 1} {
		for _, impl := range []string{"ringfence", "mutex"} {
			r := profiled(t, testConfig(t, workload, impl))
			require.InDelta(t, share, float64(r.admitted)/float64(r.decisions), 0.001, "%s, %s", workload, impl)
		}
	}
}

// TestRun_Files runs the command and opens what it has written with the tools it
// is for.
func TestRun_Files(t *testing.T) {
	out := filepath.Join(t.TempDir(), "made", "for", "it")
	var stdout, stderr strings.Builder
	code := run(t.Context(), []string{"-workload", "zipf", "-impl", "mutex", "-duration", "300ms", "-out", out}, &stdout, &stderr)
	require.Zero(t, code, stderr.String())
	require.Regexp(t, regexp.MustCompile(`workload zipf, implementation mutex, clock system, \d+ goroutines`), stdout.String())
	require.Regexp(t, regexp.MustCompile(`\d+ ops/s`), stdout.String())
	require.Contains(t, stdout.String(), "mutex wait in decisions: ")
	require.Contains(t, stdout.String(), "block wait in decisions: ")
	require.Contains(t, stdout.String(), "top functions:")
	require.Contains(t, stdout.String(), "flat%")

	for _, name := range []string{"cpu", "heap", "allocs", "mutex", "block", "goroutine"} {
		shown, err := exec.Command("go", "tool", "pprof", "-raw", filepath.Join(out, name+".prof")).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, shown)
		require.Contains(t, string(shown), "PeriodType", name)
		if name == "cpu" || name == "goroutine" {
			require.Contains(t, string(shown), "workload:[zipf]", name)
			require.Contains(t, string(shown), "implementation:[mutex]", name)
		}
	}
	var complaint bytes.Buffer
	cmd := exec.Command("go", "tool", "trace", "-pprof=sched", filepath.Join(out, "trace.out"))
	cmd.Stdout, cmd.Stderr = io.Discard, &complaint
	require.NoError(t, cmd.Run(), complaint.String())
}

func TestRun_BadFlags(t *testing.T) {
	for want, args := range map[string][]string{
		`-workload is "nothing", must be one of`:           {"-workload", "nothing"},
		`-impl is "floor-cas", must be ringfence or mutex`: {"-impl", "floor-cas"},
		`-clock is "step", must be one of`:                 {"-clock", "step"},
		`-duration is 0s, must be positive`:                {"-duration", "0s"},
		`-goroutines is -1, must not be negative`:          {"-goroutines", "-1"},
		`-out is empty`:                           {"-out", ""},
		`-http is "nowhere", must be host:port`:   {"-http", "nowhere"},
		`unexpected argument "hot-key"`:           {"hot-key"},
		`flag provided but not defined: -wrkload`: {"-wrkload", "zipf"},
		`invalid value "soon" for flag -duration: want a duration above 0, such as 5s`:   {"-duration", "soon"},
		`invalid value "5" for flag -duration: want a duration above 0, such as 5s`:      {"-duration", "5"},
		`invalid value "x" for flag -goroutines: want a number of goroutines, such as 8`: {"-goroutines", "x"},
	} {
		var stdout, stderr strings.Builder
		require.Equal(t, 2, run(t.Context(), args, &stdout, &stderr), "%q", args)
		require.Contains(t, stderr.String(), want)
		require.Equal(t, 1, strings.Count(stderr.String(), "pprof:"), stderr.String())
		require.Empty(t, stdout.String())
	}
	var stderr strings.Builder
	require.Zero(t, run(t.Context(), []string{"-h"}, io.Discard, &stderr))
	require.Contains(t, stderr.String(), "-workload")
	require.Contains(t, stderr.String(), "how long to run (default 5s)")
}

func TestRun_Fails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	var stderr strings.Builder
	require.Equal(t, 1, run(t.Context(), []string{"-duration", "1ms", "-out", filepath.Join(file, "dir")}, io.Discard, &stderr))
	require.Contains(t, stderr.String(), "not a directory")
}

// lines passes each Write on.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func TestRun_HTTP(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stdout := make(lines, 100)
	var stderr strings.Builder
	var running sync.WaitGroup
	code := 1
	running.Go(func() {
		code = run(ctx, []string{"-duration", "1h", "-out", t.TempDir(), "-http", "127.0.0.1:0"}, stdout, &stderr)
	})
	address := regexp.MustCompile(`http://\S+/`).FindString(<-stdout)
	require.NotEmpty(t, address)
	get := func(path string) string {
		r, err := http.Get(address + path)
		require.NoError(t, err)
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Equal(t, http.StatusOK, r.StatusCode, path)
		return string(body)
	}
	require.Contains(t, get(""), "goroutine")
	require.Contains(t, get("cmdline"), "pprof")
	labelled := ""
	for range 10_000 { // until the workers have started
		if labelled = get("goroutine?debug=1"); strings.Contains(labelled, `"workload":"hot-key"`) {
			break
		}
	}
	require.Contains(t, labelled, `"workload":"hot-key"`)
	root := strings.TrimSuffix(address, "debug/pprof/")
	r, err := http.Get(root)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, http.StatusNotFound, r.StatusCode, "a mux of its own")

	cancel() // an interrupt ends the run early and still writes everything
	running.Wait()
	require.Zero(t, code, stderr.String())
	_, err = http.Get(address)
	require.Error(t, err)
}
