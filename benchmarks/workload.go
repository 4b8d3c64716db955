package benchmarks

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// KeyLen is the length of every key, in bytes.
const KeyLen = 16

// Dist says how the keys of a workload are drawn.
type Dist string

const (
	// Single is a limiter without keys.
	Single Dist = "single"
	// Hot is one key.
	Hot Dist = "hot"
	// Uniform draws every key equally often, in random order.
	Uniform Dist = "uniform"
	// Zipf draws the key of rank r with a probability proportional to
	// (1 + r) to the power of -1.1, so that one in ten decisions is about the
	// first of 100,000 keys.
	Zipf Dist = "zipf"
	// Turn takes the keys one after the other.
	Turn Dist = "turn"
	// Flood is Turn at a limiter that has room for a sixteenth of the keys.
	Flood Dist = "flood"
)

// The clocks a workload can ask for.
const (
	SystemClock = "system" // the runtime's monotonic clock, or what an implementation reads on its own
	CoarseClock = "coarse" // a limiter.CoarseClock
	StepClock   = "step"   // every reading is one tick later than the one before
	NoClock     = "none"   // floors, which decide nothing
)

// A Workload is a stream of decisions.
type Workload struct {
	Name       string
	Keys       int
	Dist       Dist
	Deny       string // "none" or "all"
	Costs      bool   // costs of 1 to 8 in place of 1
	Goroutines int    // 0: as many as processors
	Limit      uint64
	Window     time.Duration
	Slots      int
	SweepEvery time.Duration
	Clocks     []string
}

const (
	// plenty is a limit that nothing here can use up within an hour. A token
	// bucket of plenty an hour still gets a token every 3 ns, which the libraries
	// that count in whole nanoseconds can express.
	plenty = 1 << 40

	slots    = 10
	manyKeys = 100_000
	mostKeys = 1_000_000
	shorter  = 100 // key sets are smaller by this with -short
	crowd    = 64
	draws    = 1 << 18 // at least, where keys are drawn
)

// Workloads returns the table of workloads.
func Workloads() []Workload {
	both := []string{SystemClock, CoarseClock}
	table := []Workload{
		{Name: "single", Dist: Single, Clocks: both},
		{Name: "single-crowd", Dist: Single, Goroutines: crowd, Clocks: both},
		{Name: "single-denied", Dist: Single, Deny: "all", Clocks: both},
		{Name: "single-denied-crowd", Dist: Single, Deny: "all", Goroutines: crowd, Clocks: both},
		{Name: "single-costs", Dist: Single, Costs: true, Clocks: both},
		// A tick of 1 µs passes every few decisions; with the step clock, every one.
		{Name: "rollover", Dist: Single, Limit: 4096, Window: 10 * time.Microsecond, Clocks: []string{SystemClock, StepClock}},
		{Name: "hot-key", Dist: Hot, Clocks: both},
		{Name: "hot-key-crowd", Dist: Hot, Goroutines: crowd, Clocks: both},
		{Name: "hot-key-denied", Dist: Hot, Deny: "all", Clocks: both},
		{Name: "uniform", Keys: manyKeys, Dist: Uniform, Clocks: both},
		{Name: "denied", Keys: manyKeys, Dist: Uniform, Deny: "all", Clocks: both},
		{Name: "zipf", Keys: manyKeys, Dist: Zipf, Clocks: both},
		{Name: "uniform-costs", Keys: manyKeys, Dist: Uniform, Costs: true, Clocks: both},
		{Name: "million", Keys: mostKeys, Dist: Uniform, Clocks: both},
		// A key is idle for longer than its window when its turn comes again, so
		// whoever sweeps has removed it by then and has to create it anew.
		{Name: "churn", Keys: mostKeys, Dist: Turn, Window: 10 * time.Millisecond, Limit: 1000, SweepEvery: 10 * time.Millisecond, Clocks: both},
		// New keys without end at a limiter that is full.
		{Name: "flood", Keys: mostKeys, Dist: Flood, Clocks: both},
	}
	for i := range table {
		w := &table[i]
		w.Slots = slots
		w.Keys = max(w.Keys, 1)
		if w.Keys > shorter && testing.Testing() && testing.Short() {
			w.Keys /= shorter
		}
		if w.Deny == "" {
			w.Deny = "none"
		}
		if w.Window == 0 {
			w.Window = time.Hour
		}
		switch {
		case w.Limit != 0:
		case w.Deny == "all":
			w.Limit = 1
		default:
			w.Limit = plenty
		}
	}
	return table
}

// Find returns the workload of the given name.
func Find(name string) (Workload, bool) {
	for _, w := range Workloads() {
		if w.Name == name {
			return w, true
		}
	}
	return Workload{}, false
}

// Share returns the share of its decisions that the workload expects to be
// admitted once every key has been seen.
func (w Workload) Share() float64 {
	if w.Deny == "all" {
		return 0
	}
	return 1
}

// Params returns the part of a benchmark's name that says what the workload is.
func (w Workload) Params() string {
	return fmt.Sprintf("load=%s/keys=%d/dist=%s/deny=%s", w.Name, w.Keys, w.Dist, w.Deny)
}

// String describes the workload.
func (w Workload) String() string {
	cost, goroutines := "1", "GOMAXPROCS"
	if w.Costs {
		cost = "1 to 8"
	}
	if w.Goroutines != 0 {
		goroutines = fmt.Sprint(w.Goroutines)
	}
	return fmt.Sprintf("%d keys, %s; denied: %s; cost %s; window %v; %s goroutines", w.Keys, w.Dist, w.Deny, cost, w.Window, goroutines)
}

// Setup returns what a limiter for this workload is made from.
func (w Workload) Setup(clock string) Setup {
	maxKeys := max(2*w.Keys, 1024)
	if w.Dist == Flood {
		maxKeys = w.Keys / 16
	}
	return Setup{
		Limit:      w.Limit,
		Window:     w.Window,
		Slots:      w.Slots,
		MaxKeys:    maxKeys,
		SweepEvery: w.SweepEvery,
		Clock:      clock,
	}
}

// A Stream is the order in which a workload asks for its keys. The keys lie
// one behind the other in one string, in that order, so that reading a stream
// costs the processor's prefetcher nothing worth measuring.
type Stream struct {
	text string
}

// NewStream draws the keys of a workload, the same ones for the same seed. It
// fails if they are not the keys that the workload wants: all of them, or for a
// Zipf workload at least a quarter, the others being too rare to be sure of.
func NewStream(w Workload, seed uint64) (*Stream, error) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	var order []int
	switch w.Dist {
	case Uniform:
		for len(order) < draws {
			order = append(order, rnd.Perm(w.Keys)...)
		}
	case Zipf:
		z := rand.NewZipf(rnd, 1.1, 1, uint64(w.Keys-1))
		for range draws {
			order = append(order, int(z.Uint64()))
		}
	default:
		for i := range w.Keys {
			order = append(order, i)
		}
	}
	text := make([]byte, 0, len(order)*KeyLen)
	for _, k := range order {
		text = appendKey(text, k)
	}
	s := &Stream{text: string(text)}
	least := w.Keys
	if w.Dist == Zipf {
		least /= 4
	}
	if n := s.Distinct(); n < least || n > w.Keys {
		return nil, fmt.Errorf("benchmarks: workload %s: the stream has %d distinct keys, want %d to %d", w.Name, n, least, w.Keys)
	}
	return s, nil
}

func appendKey(text []byte, k int) []byte { return fmt.Appendf(text, "user:%011d", k) }

// Len returns the number of keys drawn.
func (s *Stream) Len() int { return len(s.text) / KeyLen }

// Key returns the i-th key drawn.
func (s *Stream) Key(i int) string { return s.text[i*KeyLen : (i+1)*KeyLen] }

// Distinct counts the different keys.
func (s *Stream) Distinct() int {
	seen := make(map[string]struct{})
	for i := range s.Len() {
		seen[s.Key(i)] = struct{}{}
	}
	return len(seen)
}
