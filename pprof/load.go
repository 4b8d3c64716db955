package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/ringfence-go/ringfence/benchmarks"
	"github.com/ringfence-go/ringfence/limiter"
	"github.com/ringfence-go/ringfence/middleware"
)

// httpWorkload is the one workload that is not in the table of benchmarks.
const httpWorkload = "http"

func workloadNames() []string {
	names := []string{httpWorkload}
	for _, w := range benchmarks.Workloads() {
		names = append(names, w.Name)
	}
	slices.Sort(names)
	return names
}

// A load is a workload that is ready to run.
type load struct {
	goroutines int
	worker     func(i int) (decide func() bool)
	close      func()
}

// A choice is a workload and who decides, found by their names.
type choice struct {
	workload benchmarks.Workload
	impl     benchmarks.Implementation
}

// find looks up what the flags name.
func (c config) find() (choice, error) {
	var both []benchmarks.Implementation
	for _, impl := range benchmarks.Ours() {
		if !impl.Floor {
			both = append(both, impl)
		}
	}
	name := c.workload
	if name == httpWorkload {
		name = "hot-key" // a limiter with keys; the clients are the keys
	}
	w, ok := benchmarks.Find(name)
	if !ok {
		return choice{}, fmt.Errorf("-workload is %q, must be one of %q", c.workload, workloadNames())
	}
	impl, ok := benchmarks.FindImplementation(both, c.impl)
	if !ok {
		return choice{}, fmt.Errorf("-impl is %q, must be ringfence or mutex", c.impl)
	}
	if !slices.Contains(w.Clocks, c.clock) {
		return choice{}, fmt.Errorf("-clock is %q, must be one of %q for -workload %s", c.clock, w.Clocks, c.workload)
	}
	return choice{w, impl}, nil
}

func newLoad(c config) (*load, error) {
	chosen, err := c.find()
	if err != nil {
		return nil, err
	}
	l := &load{goroutines: c.goroutines}
	if l.goroutines == 0 {
		l.goroutines = max(chosen.workload.Goroutines, runtime.GOMAXPROCS(0))
	}
	if c.workload == httpWorkload {
		return l, l.serve(chosen, c)
	}
	stream, err := benchmarks.NewStream(chosen.workload, 1)
	if err != nil {
		return nil, err
	}
	limits, err := benchmarks.Prepare(chosen.impl, chosen.workload, c.clock, stream)
	if err != nil {
		return nil, err
	}
	l.close = limits.Close
	l.worker = func(i int) func() bool {
		return benchmarks.NewCursor(chosen.workload, stream, limits, i, l.goroutines).Decide
	}
	return l, nil
}

// clients is the number of addresses that the http workload comes from.
const clients = 1024

// serve makes the load one of requests to a handler, by clients that have been
// seen before and are all admitted.
func (l *load) serve(chosen choice, c config) error {
	h, stop, err := handler(chosen, c.clock)
	if err != nil {
		return err
	}
	l.close = stop
	requests := make([]*http.Request, clients) // which the handler only reads
	for i := range requests {
		requests[i] = httptest.NewRequest(http.MethodGet, "/", nil)
		addr := netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})
		requests[i].RemoteAddr = netip.AddrPortFrom(addr, 40000).String()
		h.ServeHTTP(&discard{header: http.Header{}}, requests[i])
	}
	l.worker = func(i int) func() bool {
		w := &discard{header: http.Header{}}
		next := i * clients / l.goroutines
		return func() bool {
			clear(w.header)
			w.status = http.StatusOK
			h.ServeHTTP(w, requests[next%clients])
			next++
			return w.status == http.StatusOK
		}
	}
	return nil
}

// handler puts a limit around a handler that does nothing: package middleware,
// or for the mutex limiter the shortest middleware there is.
func handler(chosen choice, clock string) (h http.Handler, stop func(), err error) {
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	s := chosen.workload.Setup(clock)
	if chosen.impl.Name != "ringfence" {
		limits, err := chosen.impl.Keyed(s)
		if err != nil {
			return nil, nil, err
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			host, _, err := net.SplitHostPort(r.RemoteAddr)
			if err != nil || !limits.Allow(host) {
				http.Error(w, "Too Many Requests", http.StatusTooManyRequests)
				return
			}
			nothing.ServeHTTP(w, r)
		}), limits.Close, nil
	}
	var config middleware.Config
	stopClock := func() {}
	if clock == benchmarks.CoarseClock {
		coarse, err := limiter.NewCoarseClock(5 * time.Millisecond)
		if err != nil {
			return nil, nil, err
		}
		config.Clock = coarse
		stopClock = func() { coarse.Close() }
	}
	config.Policies = []middleware.Policy{{Name: "clients", Limit: s.Limit, Window: s.Window, Slots: s.Slots, Key: middleware.ByIP}}
	m, err := middleware.New(config)
	if err != nil {
		stopClock()
		return nil, nil, err
	}
	return m.Handler(nothing), func() { m.Close(); stopClock() }, nil
}

// A discard is a ResponseWriter that keeps only the status.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }
