package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/ringfence-go/ringfence/benchmarks"
)

const (
	us    = "ringfence"
	mutex = "mutex"
	floor = "floor-"
	ns    = "ns/op"
)

// A report is the results with what its tables are made from.
type report struct {
	machine
	results
	procs []int    // values of GOMAXPROCS within the machine's cores
	peers []string // implementations that are neither ours nor floors
	out   strings.Builder
}

// render returns the text of the summary and of the charts by file name.
func render(m machine, all results) map[string]string {
	r := &report{machine: m, results: all}
	for _, s := range all {
		if s.procs <= m.Cores && !slices.Contains(r.procs, s.procs) {
			r.procs = append(r.procs, s.procs)
		}
	}
	slices.Sort(r.procs)
	for _, name := range all.names("Decision", "impl") {
		if name != us && name != mutex && !strings.HasPrefix(name, floor) {
			r.peers = append(r.peers, name)
		}
	}
	r.head()
	r.targets()
	r.decisions()
	r.againstMutex()
	r.losses()
	r.latency()
	r.memory()
	r.accuracy()
	r.http()
	r.scope()
	return map[string]string{
		"summary.md":       r.out.String(),
		"decision-ns.svg":  r.decisionChart(),
		"memory.svg":       r.memoryChart(),
		"worst-window.svg": r.worstChart(),
	}
}

func (r *report) printf(format string, args ...any) { fmt.Fprintf(&r.out, format, args...) }

// row prints a table's row.
func (r *report) row(cells ...string) { r.printf("| %s |\n", strings.Join(cells, " | ")) }

// header prints a table's header, the first column on the left and the others
// on the right.
func (r *report) header(cells ...string) {
	r.row(cells...)
	r.printf("|---|%s\n", strings.Repeat("---:|", len(cells)-1))
}

// decision returns the query for one implementation, workload and clock.
func decision(impl string, w benchmarks.Workload, clock string, procs int) query {
	return query{bench: "Decision", procs: procs, params: map[string]string{"impl": impl, "load": w.Name, "clock": clock}}
}

func workload(name string) benchmarks.Workload {
	w, ok := benchmarks.Find(name)
	if !ok {
		panic("report: no workload " + name)
	}
	return w
}

func (r *report) head() {
	r.printf("# Benchmark results\n\n")
	r.printf("| | |\n|---|---|\n")
	for _, f := range r.fields() {
		switch v := f.value.(type) {
		case *string:
			r.printf("| %s | %s |\n", f.name, *v)
		case *int:
			r.printf("| %s | %d |\n", f.name, *v)
		}
	}
	r.printf("\nMedians of %d rounds; a ratio is the median of the ratios within a round. The raw output of the rounds lies beside\n", r.Rounds)
	r.printf("this file. Times are per decision, all goroutines together: the time that passed, divided by the decisions made in it.\n")
	r.printf("They include the loop that asks (`floor-loop`).\n\n")
	r.printf("![ns per decision](decision-ns.svg)\n\n![memory per key](memory.svg)\n\n![worst window](worst-window.svg)\n\n")
}

// A target is what a number should at most be, or at least.
type target struct {
	what  string
	value float64
	least bool
	bound float64
}

func (t target) met() bool {
	if t.least {
		return t.value >= t.bound
	}
	return t.value <= t.bound
}

func (r *report) targets() {
	r.printf("## Targets\n\n")
	r.header("what", "measured", "target", "met")
	for _, t := range r.targetList() {
		if math.IsNaN(t.value) {
			r.row(t.what, "–", "", "not measured")
			continue
		}
		sign, met := "≤", "yes"
		if t.least {
			sign = "≥"
		}
		if !t.met() {
			met = "**no**"
		}
		r.row(t.what, number(t.value), sign+" "+number(t.bound), met)
	}
	r.printf("\n")
}

func (r *report) targetList() []target {
	one, uniform := workload("single"), workload("uniform")
	const system, coarse = benchmarks.SystemClock, benchmarks.CoarseClock
	var list []target
	add := func(least bool, bound, value float64, what string, args ...any) {
		list = append(list, target{fmt.Sprintf(what, args...), value, least, bound})
	}
	// fastest is the smallest ratio of a peer's time to ours.
	fastest := func(w benchmarks.Workload, clock string, procs int) float64 {
		least := math.NaN()
		for _, p := range r.peers {
			v := r.ratio(decision(p, w, system, procs), decision(us, w, clock, procs), ns)
			if math.IsNaN(least) || v < least {
				least = v
			}
		}
		return least
	}
	toMutex := func(name string, procs int) float64 {
		w := workload(name)
		return r.ratio(decision(us, w, coarse, procs), decision(mutex, w, coarse, procs), ns)
	}
	ring := func(op string) query { return query{bench: "Ring", procs: 1, params: map[string]string{"op": op}} }
	call := func(bench, call, deny, clock string) query {
		return query{bench: bench, procs: 1, params: map[string]string{"call": call, "deny": deny, "clock": clock}}
	}
	// inParts is what a call takes in terms of its parts, both in a loop of nothing else.
	inParts := func(q query) float64 { return r.median(q, "x") }

	add(true, 4, r.ratio(decision("x-time-rate", one, system, 1), decision(us, one, coarse, 1), ns),
		"single limit, coarse clock: times faster than x/time/rate")
	for _, p := range r.procs {
		add(true, 1, fastest(one, coarse, p), "single limit, coarse clock, GOMAXPROCS=%d: times faster than the fastest peer", p)
		add(true, 1, fastest(one, system, p), "single limit, system clock, GOMAXPROCS=%d: times faster than the fastest peer", p)
		if p <= 2 {
			add(true, 4-float64(p), fastest(uniform, coarse, p), "100,000 keys, coarse clock, GOMAXPROCS=%d: times faster than the fastest peer", p)
		}
	}
	add(false, 1, r.largest(query{bench: "Accuracy", params: map[string]string{"impl": us, "clock": system}}, "worst/limit"),
		"system clock: largest count surely inside one window, in limits")
	add(false, 1.25, r.ratio(ring("admit"), ring("floor"), ns), "Ring.Admit, admitted, in floors (load + CAS)")
	add(false, 0.5, r.ratio(ring("deny"), ring("floor"), ns), "Ring.Admit, denied, in floors")
	add(false, 1.6, inParts(call("Limiter", "Allow", "0", coarse)), "Limiter.Allow, coarse clock, in floors")
	add(false, 1.2, inParts(call("Limiter", "Allow", "0", system)), "Limiter.Allow, system clock, in floors + clock reads")
	add(false, 2.5, inParts(call("Limiter", "Attempt", "1", coarse)), "Limiter.Attempt, denied, coarse clock, in floors")
	add(false, 1.1, inParts(call("Keyed", "Allow", "0", coarse).with("keys", "1")),
		"Keyed.Allow, a hot key, coarse clock, in xsync Loads + floors")
	if slices.Contains(r.procs, 2) {
		add(false, 0.7, toMutex("single", 2), "single limit, coarse clock, GOMAXPROCS=2: time in those of the mutex")
		add(false, 0.6, toMutex("single-crowd", 2), "the same, 64 goroutines")
		add(false, 0.6, toMutex("single-denied", 2), "the same, denied")
		add(false, 0.25, toMutex("single-denied-crowd", 2), "the same, denied, 64 goroutines")
	}
	memory := func(impl string) query { return query{bench: "Memory", params: map[string]string{"impl": impl}} }
	add(false, 170, r.median(memory(us), "B/key")-benchmarks.KeyLen, "bytes a key, the key's own not counted")
	add(false, 1.5, r.ratio(memory(us), memory(floor+"map"), "gc-ms"), "one garbage collection, in those of a bare xsync map")
	return list
}

// decisions prints the times of everybody, with and without keys.
func (r *report) decisions() {
	for _, p := range r.procs {
		for _, keyed := range []bool{false, true} {
			var list []benchmarks.Workload
			for _, w := range benchmarks.Workloads() {
				if (w.Dist != benchmarks.Single) == keyed {
					list = append(list, w)
				}
			}
			what := "one limit"
			if keyed {
				what = "keyed"
			}
			r.printf("## ns per decision, %s, GOMAXPROCS=%d\n\n", what, p)
			cells := []string{"implementation", "clock"}
			for _, w := range list {
				cells = append(cells, w.Name)
			}
			r.header(cells...)
			for _, impl := range r.names("Decision", "impl") {
				for _, clock := range r.names("Decision", "clock") {
					cells := []string{impl, clock}
					some := false
					for _, w := range list {
						v := r.median(decision(impl, w, clock, p), ns)
						some = some || !math.IsNaN(v)
						cells = append(cells, number(v))
					}
					if some {
						r.row(cells...)
					}
				}
			}
			r.printf("\n")
		}
	}
	r.printf("Workloads:\n\n")
	for _, w := range benchmarks.Workloads() {
		r.printf("- %s: %v\n", w.Name, w)
	}
	r.printf("\nAllocations per decision, of those that allocate:\n\n")
	r.header("implementation", "allocs/op", "B/op")
	for _, impl := range r.names("Decision", "impl") {
		for _, w := range []benchmarks.Workload{workload("single"), workload("uniform")} {
			q := decision(impl, w, benchmarks.SystemClock, 1)
			if n := r.median(q, "allocs/op"); n > 0 {
				r.row(impl+", "+w.Name, number(n), number(r.median(q, "B/op")))
			}
		}
	}
	r.printf("\n")
}

// againstMutex prints how ringfence does beside the same ring under a lock.
func (r *report) againstMutex() {
	r.printf("## ringfence and the same ring under a mutex\n\n")
	r.printf("Time of ringfence divided by time of the mutex limiter: below 1, ringfence is faster.\n\n")
	cells := []string{"workload", "clock"}
	for _, p := range r.procs {
		cells = append(cells, fmt.Sprintf("GOMAXPROCS=%d", p))
	}
	r.header(cells...)
	for _, w := range benchmarks.Workloads() {
		for _, clock := range w.Clocks {
			cells := []string{w.Name, clock}
			for _, p := range r.procs {
				cells = append(cells, number(r.ratio(decision(us, w, clock, p), decision(mutex, w, clock, p), ns)))
			}
			r.row(cells...)
		}
	}
	r.printf("\n")
}

// losses prints every comparison that ringfence loses by more than a hair.
func (r *report) losses() {
	const hair = 1.02
	r.printf("## Where ringfence is slower\n\n")
	r.header("workload", "clock", "GOMAXPROCS", "than", "times slower")
	rows := 0
	for _, w := range benchmarks.Workloads() {
		for _, clock := range w.Clocks {
			for _, p := range r.procs {
				for _, other := range append([]string{mutex}, r.peers...) {
					v := r.ratio(decision(us, w, clock, p), decision(other, w, clock, p), ns)
					if v > hair {
						r.row(w.Name, clock, fmt.Sprint(p), other, number(v))
						rows++
					}
				}
			}
		}
	}
	if rows == 0 {
		r.row("nowhere", "", "", "", "")
	}
	r.printf("\n")
}

func (r *report) latency() {
	r.printf("## Latency of a decision, 1,000,000 keys, in ns\n\n")
	r.printf("System clock, GOMAXPROCS=%d. Times include one reading of the clock, see floor-loop.\n\n", r.Cores)
	r.header("implementation", "during", "p50", "p99", "p99.9", "max")
	for _, during := range r.names("Latency", "during") {
		for _, impl := range r.names("Latency", "impl") {
			q := query{bench: "Latency", params: map[string]string{"impl": impl, "during": during}}
			cells := []string{impl, during}
			for _, unit := range []string{"p50-ns", "p99-ns", "p99.9-ns", "max-ns"} {
				cells = append(cells, number(r.median(q, unit)))
			}
			r.row(cells...)
		}
	}
	r.printf("\n")
}

func (r *report) memory() {
	r.printf("## Memory of 1,000,000 keys\n\n")
	r.printf("Bytes a key include the %d of the key itself. The collection is of the whole heap with these keys in it.\n\n", benchmarks.KeyLen)
	r.header("implementation", "B/key", "gc ms")
	for _, impl := range r.names("Memory", "impl") {
		q := query{bench: "Memory", params: map[string]string{"impl": impl}}
		if impl != floor+"loop" && impl != floor+"clock" && impl != floor+"cas" {
			r.row(impl, number(r.median(q, "B/key")), number(r.median(q, "gc-ms")))
		}
	}
	r.printf("\n")
}

func (r *report) accuracy() {
	r.printf("## Accuracy\n\n")
	r.printf("64 goroutines ask without a pause. Worst: the largest count surely inside one window, of all rounds, in limits. Share:\n")
	r.printf("what was admitted, of what an exact log of admissions would have admitted.\n\n")
	r.header("implementation", "slots", "clock", "worst, bursts", "worst, steady", "share, bursts", "share, steady")
	for _, impl := range r.names("Accuracy", "impl") {
		for _, slots := range r.names("Accuracy", "slots") {
			for _, clock := range r.names("Accuracy", "clock") {
				q := query{bench: "Accuracy", params: map[string]string{"impl": impl, "slots": slots, "clock": clock}}
				bursts, steady := q.with("load", "bursts"), q.with("load", "steady")
				if len(r.values(q, "worst/limit")) == 0 {
					continue
				}
				r.row(impl, slots, clock, number(r.largest(bursts, "worst/limit")), number(r.largest(steady, "worst/limit")),
					number(r.median(bursts, "admitted/ideal")), number(r.median(steady, "admitted/ideal")))
			}
		}
	}
	r.printf("\nSaturated, a ring of N + 1 sub-windows delivers N / (N + 1) of the limit: the price of holding it in every window.\n\n")
}

func (r *report) http() {
	r.printf("## net/http middleware, over the handler alone\n\n")
	r.header("implementation", "deny", "GOMAXPROCS", "ns", "allocs", "B")
	for _, impl := range r.names("HTTP", "impl") {
		for _, deny := range r.names("HTTP", "deny") {
			for _, p := range r.procs {
				q := query{bench: "HTTP", procs: p, params: map[string]string{"impl": impl, "deny": deny}}
				base := query{bench: "HTTP", procs: p, params: map[string]string{"impl": "handler"}}
				if impl == "handler" || len(r.values(q, ns)) == 0 {
					continue
				}
				over := func(unit string) string { return number(r.median(q, unit) - r.median(base, unit)) }
				r.row(impl, deny, fmt.Sprint(p), over(ns), over("allocs/op"), over("B/op"))
			}
		}
	}
	r.printf("\n")
}

func (r *report) scope() {
	r.printf("## What this does not say\n\n")
	r.printf("- Nothing about more than the %d cores that the machine has. Runs with a larger GOMAXPROCS are in the raw output only.\n", r.Cores)
	r.printf("- Nothing about other processors: on each, the parts (a clock read, a contended line) cost something else.\n")
	r.printf("- Not measured, because they could not be downloaded: clipperhouse/rate, webriots/rate, tollbooth v8 (v7 was measured).\n")
	r.printf("- uber-ratelimit lets callers wait and never denies, so it takes part only where all are admitted.\n")
	r.printf("- go-limiter takes no part in rollover: it refills window / limit nanoseconds' worth of tokens per window, 2 of 4,096 there.\n")
	r.printf("- httprate keys by a 64-bit hash; throttled forgets the least recently used keys at a cap, which was set above all keys.\n")
	r.printf("- Peers read the system clock on their own; x-time-rate can be given a time, and with clock=coarse was.\n")
}

func class(impl string) string {
	switch {
	case impl == us || strings.HasPrefix(impl, us+","):
		return "us"
	case impl == mutex || strings.HasPrefix(impl, mutex+","):
		return "mutex"
	case strings.HasPrefix(impl, floor):
		return "floor"
	}
	return "peer"
}

func (r *report) decisionChart() string {
	var panels []panel
	for _, p := range []struct{ workload, title string }{
		{"single", "One limit, admitted"},
		{"single-denied", "One limit, denied"},
		{"hot-key", "Keyed, one hot key, admitted"},
		{"uniform", "Keyed, 100,000 keys uniform"},
		{"zipf", "Keyed, 100,000 keys Zipf"},
		{"million", "Keyed, 1,000,000 keys uniform"},
	} {
		for _, procs := range r.procs {
			panels = append(panels, panel{title: fmt.Sprintf("%s, GOMAXPROCS=%d", p.title, procs), bars: r.decisionBars(workload(p.workload), procs)})
		}
	}
	return chart("ns per decision", fmt.Sprintf("%s, %d cores; shorter is faster", r.CPU, r.Cores), panels)
}

func (r *report) decisionBars(w benchmarks.Workload, procs int) []bar {
	var bars []bar
	for _, impl := range append([]string{us, mutex, floor + "cas", floor + "map"}, r.peers...) {
		for _, clock := range []string{benchmarks.SystemClock, benchmarks.CoarseClock, benchmarks.NoClock} {
			v := r.median(decision(impl, w, clock, procs), ns)
			if math.IsNaN(v) {
				continue
			}
			label := impl
			if clock == benchmarks.CoarseClock {
				label += ", coarse"
			}
			bars = append(bars, bar{label, v, class(impl)})
		}
	}
	return bars
}

func (r *report) memoryChart() string {
	var bars []bar
	for _, impl := range append([]string{us, mutex, floor + "map"}, r.peers...) {
		v := r.median(query{bench: "Memory", params: map[string]string{"impl": impl}}, "B/key")
		if !math.IsNaN(v) {
			bars = append(bars, bar{impl, v, class(impl)})
		}
	}
	return chart("Bytes per key", "1,000,000 keys", []panel{{title: "live heap, 16 bytes of key included", bars: bars}})
}

func (r *report) worstChart() string {
	worst := map[string]float64{}
	for _, s := range r.results {
		if s.bench == "Accuracy" && s.params["clock"] == benchmarks.SystemClock {
			impl := s.params["impl"]
			worst[impl] = max(worst[impl], s.values["worst/limit"])
		}
	}
	var bars []bar
	for _, impl := range slices.Sorted(maps.Keys(worst)) {
		bars = append(bars, bar{impl, worst[impl], class(impl)})
	}
	return chart("Worst window", "largest count surely inside one window, in limits; 64 goroutines", []panel{{title: "worst / limit", bars: bars, mark: 1}})
}
