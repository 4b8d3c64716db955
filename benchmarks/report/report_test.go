package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringfence-go/ringfence/benchmarks"
)

func TestParse_Lines(t *testing.T) {
	all := parse(3, `goos: linux
BenchmarkDecision/impl=x-time-rate/keys=1/cost=1-8/clock=system-2    1000    102.5 ns/op   1.000 admitted/op   16 B/op   1 allocs/op
BenchmarkMemory/impl=floor-map/keys=1000000     1    74.5 B/key   3.2 gc-ms
BenchmarkAccuracy/impl=a-1/load=steady
--- FAIL: BenchmarkDecision/impl=broken
BenchmarkDecision/impl=broken   12   x ns/op
PASS
`)
	require.Equal(t, results{
		{
			round: 3, bench: "Decision", procs: 2,
			params: map[string]string{"impl": "x-time-rate", "keys": "1", "cost": "1-8", "clock": "system"},
			values: map[string]float64{"ns/op": 102.5, "admitted/op": 1, "B/op": 16, "allocs/op": 1},
		},
		{
			round: 3, bench: "Memory", procs: 1,
			params: map[string]string{"impl": "floor-map", "keys": "1000000"},
			values: map[string]float64{"B/key": 74.5, "gc-ms": 3.2},
		},
	}, all)
}

func TestResults_RatioWithinRounds(t *testing.T) {
	var all results
	for round, v := range [][2]float64{{10, 20}, {100, 300}, {1, 2}, {10, 40}, {5, 10}} {
		all = append(all, parse(round, fmt.Sprintf("BenchmarkD/impl=a  1 %v ns/op\nBenchmarkD/impl=b  1 %v ns/op\n", v[0], v[1]))...)
	}
	a, b := query{bench: "D", params: map[string]string{"impl": "a"}}, query{bench: "D", params: map[string]string{"impl": "b"}}
	require.Equal(t, 10.0, all.median(a, ns))
	require.Equal(t, 20.0, all.median(b, ns))
	require.Equal(t, 100.0, all.largest(a, ns))
	require.Equal(t, 2.0, all.ratio(b, a, ns), "the median of 2, 3, 2, 4, 2")
	require.True(t, math.IsNaN(all.median(a.with("impl", "c"), ns)))
	require.True(t, math.IsNaN(all.ratio(a, b, "B/op")))
	require.Equal(t, []string{"a", "b"}, all.names("D", "impl"))
}

func TestMachine_RoundTrip(t *testing.T) {
	m := machine{Date: "2026-01-02", Commit: "abc", CPU: "some: cpu", Cores: 2, System: "linux", Go: "go1.26", Load: "0.1", Command: "go run", Rounds: 5, Benchtime: "1s"}
	got, err := parseMachine(m.String())
	require.NoError(t, err)
	require.Equal(t, m, got)
	_, err = parseMachine("cores: two")
	require.ErrorContains(t, err, `cores is "two"`)
}

func TestPerBenchmark_Time(t *testing.T) {
	require.Equal(t, time.Second, perBenchmark(2150*time.Second, 30*time.Second, 5, 200))
	require.Equal(t, shortest, perBenchmark(time.Second, time.Minute, 5, 200))
}

func TestRun_Usage(t *testing.T) {
	for want, args := range map[string][]string{
		`-rounds is 4`:            {"-rounds", "4"},
		`-time is -1s`:            {"-time", "-1s"},
		`-cpu is "1,x"`:           {"-cpu", "1,x"},
		`unexpected argument "x"`: {"x"},
		`not defined: -nothing`:   {"-nothing"},
	} {
		var stderr strings.Builder
		require.ErrorIs(t, run(args, io.Discard, &stderr), errUsage, "%q", args)
		require.Contains(t, stderr.String(), want)
	}
	var help strings.Builder
	require.NoError(t, run([]string{"-h"}, io.Discard, &help))
	require.Contains(t, help.String(), "-rounds")
	require.ErrorContains(t, run([]string{"-from", t.TempDir()}, io.Discard, io.Discard), "machine.txt")
}

// made writes five rounds of results in which ringfence takes 20 ns, and loses
// to a peer in one workload.
func made(t *testing.T) string {
	dir := t.TempDir()
	m := machine{Date: "2026-01-02", Commit: "abc", CPU: "a <fast> CPU", Cores: 2, Rounds: 5, Benchtime: "1s"}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "machine.txt"), []byte(m.String()), 0o644))
	for round := range 5 {
		var b strings.Builder
		line := func(impl string, w benchmarks.Workload, clock string, nanos int) {
			for _, suffix := range []string{"", "-2", "-4"} {
				fmt.Fprintf(&b, "BenchmarkDecision/impl=%s/%s/clock=%s%s  100  %d ns/op  1.0 admitted/op  0 B/op  0 allocs/op\n", impl, w.Params(), clock, suffix, nanos+round)
			}
		}
		for _, w := range benchmarks.Workloads() {
			for _, clock := range w.Clocks {
				line(us, w, clock, 20)
				line(mutex, w, clock, 40)
			}
			line("slow-peer", w, benchmarks.SystemClock, 200)
			if w.Name == "zipf" {
				line("fast-peer", w, benchmarks.SystemClock, 10)
			}
			line(benchmarks.FloorCAS, w, benchmarks.NoClock, 15)
		}
		b.WriteString("BenchmarkAccuracy/impl=ringfence/load=bursts/slots=10/clock=system-2  1  1.0 worst/limit  0.9 admitted/ideal\n")
		fmt.Fprintf(&b, "BenchmarkAccuracy/impl=slow-peer/load=bursts/slots=10/clock=system-2  1  %d.5 worst/limit  1.9 admitted/ideal\n", round)
		b.WriteString("BenchmarkMemory/impl=ringfence/keys=1000000-2  1  160 B/key  2 gc-ms\n")
		b.WriteString("BenchmarkLatency/impl=ringfence/keys=1000000/during=gc/clock=system-2  1  50 p50-ns  90 p99-ns  400 p99.9-ns  7000 max-ns\n")
		b.WriteString("BenchmarkHTTP/impl=handler/deny=none  1  10 ns/op  0 B/op  0 allocs/op\n")
		b.WriteString("BenchmarkHTTP/impl=ringfence-rolling/deny=all  1  310 ns/op  80 B/op  3 allocs/op\n")
		b.WriteString("BenchmarkLimiter/call=Attempt/deny=1/clock=coarse  1  13 ns/op  12 ns-best  2.25 x\n")
		b.WriteString("BenchmarkRing/op=floor  1  6 ns/op\nBenchmarkRing/op=admit  1  9 ns/op\n")
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("round-%d.txt", round)), []byte(b.String()), 0o644))
	}
	return dir
}

func TestRun_FromResults(t *testing.T) {
	dir := made(t)
	require.NoError(t, run([]string{"-from", dir}, io.Discard, io.Discard))
	summary, err := os.ReadFile(filepath.Join(dir, "summary.md"))
	require.NoError(t, err)
	text := string(summary)
	for _, want := range []string{
		"| cpu | a <fast> CPU |",
		"| zipf | system | 2 | fast-peer | 1.83 |",
		"| slow-peer | 10 | system | 4.50 |",
		"| single | coarse | 0.52 | 0.52 |",
		"| system clock: largest count surely inside one window, in limits | 1.00 | ≤ 1.00 | yes |",
		"| 100,000 keys, coarse clock, GOMAXPROCS=1: times faster than the fastest peer | 9.18 | ≥ 3.00 | yes |",
		"| Limiter.Attempt, denied, coarse clock, in floors | 2.25 | ≤ 2.50 | yes |",
		"| Ring.Admit, admitted, in floors (load + CAS) | 1.50 | ≤ 1.25 | **no** |",
		"| Ring.Admit, denied, in floors | – |  | not measured |",
		"| ringfence | gc | 50.0 | 90.0 | 400 | 7000 |",
		"| ringfence-rolling | all | 1 | 300 | 3.00 | 80.0 |",
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "GOMAXPROCS=4", "no claim beyond the cores")
	require.NotContains(t, text, "| zipf | system | 2 | slow-peer |")

	for _, name := range []string{"decision-ns.svg", "memory.svg", "worst-window.svg"} {
		svg, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		d := xml.NewDecoder(strings.NewReader(string(svg)))
		bars := 0
		for {
			token, err := d.Token()
			if err == io.EOF {
				break
			}
			require.NoError(t, err, name)
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
				bars++
			}
		}
		require.NotZero(t, bars, name)
	}
}

func TestChart_Scale(t *testing.T) {
	svg := chart("t", "n", []panel{{title: "p", mark: 1, bars: []bar{{"long", 2, "peer"}, {"short", 1, "us"}}}})
	full := panelWidth - labelWidth - valueWidth
	require.Contains(t, svg, fmt.Sprintf(`<rect class="peer" x="%d" y="%d" width="%d"`, margin+labelWidth, margin+44+titleHeight+barStep, full))
	require.Contains(t, svg, fmt.Sprintf(`<rect class="us" x="%d" y="%d" width="%d"`, margin+labelWidth, margin+44+titleHeight, full/2))
}
