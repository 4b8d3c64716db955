package benchmarks

import (
	"slices"
	"time"
)

// A Limiter is what a benchmark asks. A limiter without keys ignores the key.
type Limiter interface {
	// Allow reports whether one more unit may pass, and counts it if so.
	Allow(key string) bool
	// Close releases goroutines and timers.
	Close()
}

// A Coster is a [Limiter] that can also decide about several units at once.
type Coster interface {
	Limiter
	AllowN(key string, n uint64) bool
}

// A PerGoroutine is a [Limiter] that gives each goroutine a part of its own.
type PerGoroutine interface {
	Limiter
	Goroutine() Limiter
}

// A Setup is what a limiter is made from.
type Setup struct {
	Limit      uint64
	Window     time.Duration
	Slots      int
	MaxKeys    int
	SweepEvery time.Duration // 0: the implementation's default
	Clock      string
}

// tick is the length of a sub-window.
func (s Setup) tick() time.Duration {
	return (s.Window + time.Duration(s.Slots) - 1) / time.Duration(s.Slots)
}

// An Implementation is a row in the table of those who decide.
type Implementation struct {
	Name string
	// Clocks are the clocks it can be given; SystemClock also stands for the one
	// it reads on its own.
	Clocks []string
	// Single makes a limiter without keys. An implementation that has none is
	// asked about one constant key in its place.
	Single func(Setup) (Limiter, error)
	// Keyed makes a limiter with keys; nil if it has none.
	Keyed func(Setup) (Limiter, error)
	// Costs says that its limiters are Costers.
	Costs bool
	// Capped says that it keeps at most Setup.MaxKeys keys.
	Capped bool
	// Waits says that it lets callers wait and never denies.
	Waits bool
	// Exact says that it must keep the limit in every window, and that
	// Setup.Slots matters to it.
	Exact bool
	// Except has the names of workloads it cannot run, with the reasons.
	Except map[string]string
	// Floor says that it decides nothing and only shows what a part costs.
	Floor bool
}

// Runs reports whether the implementation can run the workload with the clock.
func (impl Implementation) Runs(w Workload, clock string) bool {
	switch {
	case impl.Keyed == nil && w.Dist != Single,
		impl.Single == nil && w.Dist == Single && impl.Floor,
		impl.Waits && w.Deny != "none",
		w.Costs && !impl.Costs,
		w.Dist == Flood && !impl.Capped:
		return false
	}
	if _, ok := impl.Except[w.Name]; ok {
		return false
	}
	return slices.Contains(impl.Clocks, clock)
}

// New makes a limiter for the workload.
func (impl Implementation) New(w Workload, clock string) (Limiter, error) {
	s := w.Setup(clock)
	if w.Dist != Single {
		return impl.Keyed(s)
	}
	return impl.NewSingle(s)
}

// NewSingle makes a limiter that is asked about no key, or one.
func (impl Implementation) NewSingle(s Setup) (Limiter, error) {
	if impl.Single != nil {
		return impl.Single(s)
	}
	s.MaxKeys = 1024
	return impl.Keyed(s)
}

// FindImplementation returns the implementation of the given name in table.
func FindImplementation(table []Implementation, name string) (Implementation, bool) {
	for _, impl := range table {
		if impl.Name == name {
			return impl, true
		}
	}
	return Implementation{}, false
}
