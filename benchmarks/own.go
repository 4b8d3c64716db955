package benchmarks

import (
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"

	"github.com/ringfence-go/ringfence/limiter"
)

// coarsest is the resolution of coarse clocks, unless a tick is shorter.
const coarsest = 5 * time.Millisecond

// newClock makes the clock a Setup names, and what closes it.
func newClock(s Setup) (c limiter.Clock, stop func(), err error) {
	switch s.Clock {
	case CoarseClock:
		coarse, err := limiter.NewCoarseClock(min(coarsest, s.tick()))
		if err != nil {
			return nil, nil, err
		}
		return coarse, func() { coarse.Close() }, nil
	case StepClock:
		return &stepClock{step: s.tick()}, func() {}, nil
	}
	return limiter.SystemClock{}, func() {}, nil
}

// A stepClock moves ahead by one step at every reading.
type stepClock struct {
	now  atomic.Int64
	step time.Duration
}

func (c *stepClock) Now() time.Duration { return time.Duration(c.now.Add(int64(c.step))) }

// The floors: what a decision cannot do without.
const (
	FloorLoop  = "floor-loop"  // the loop and the call, nothing else
	FloorClock = "floor-clock" // one reading of the system clock
	FloorCAS   = "floor-cas"   // one load and CAS of a word of one's own
	FloorMap   = "floor-map"   // one xsync Load of the key
	FloorKey   = "floor-key"   // both: one xsync Load of the key, and one load and CAS of its word
)

// Ours returns the implementations of this module: ringfence, the mutex
// limiters, and the floors.
func Ours() []Implementation {
	clocks := []string{SystemClock, CoarseClock, StepClock}
	floor := []string{NoClock}
	return []Implementation{
		{Name: "ringfence", Clocks: clocks, Single: ringfenceSingle, Keyed: ringfenceKeyed, Costs: true, Capped: true, Exact: true},
		{Name: "mutex", Clocks: clocks, Single: mutexSingle, Keyed: mutexKeys, Costs: true, Capped: true, Exact: true},
		{Name: FloorLoop, Clocks: floor, Single: always, Keyed: always, Floor: true},
		{Name: FloorClock, Clocks: floor, Single: readClock, Keyed: readClock, Floor: true},
		{Name: FloorCAS, Clocks: floor, Single: casWord, Keyed: casWord, Floor: true},
		{Name: FloorMap, Clocks: floor, Keyed: loadMap, Floor: true},
		{Name: FloorKey, Clocks: floor, Keyed: casKey, Floor: true},
	}
}

type ringfence struct {
	limiter *limiter.Limiter
	stop    func()
}

func ringfenceSingle(s Setup) (Limiter, error) {
	c, stop, err := newClock(s)
	if err != nil {
		return nil, err
	}
	l, err := limiter.New(limiter.Config{Limit: s.Limit, Window: s.Window, Slots: s.Slots, Clock: c})
	return &ringfence{l, stop}, err
}

func (r *ringfence) Allow(string) bool              { return r.limiter.Allow() }
func (r *ringfence) AllowN(_ string, n uint64) bool { return r.limiter.AllowN(n) }
func (r *ringfence) Close()                         { r.limiter.Close(); r.stop() }

type ringfenceMap struct {
	limiter *limiter.Keyed[string]
	stop    func()
}

func ringfenceKeyed(s Setup) (Limiter, error) {
	c, stop, err := newClock(s)
	if err != nil {
		return nil, err
	}
	k, err := limiter.NewKeyed[string](limiter.KeyedConfig{
		Config:     limiter.Config{Limit: s.Limit, Window: s.Window, Slots: s.Slots, Clock: c},
		MaxKeys:    s.MaxKeys,
		SweepEvery: s.SweepEvery,
	})
	return &ringfenceMap{k, stop}, err
}

func (r *ringfenceMap) Allow(key string) bool            { return r.limiter.Allow(key) }
func (r *ringfenceMap) AllowN(key string, n uint64) bool { return r.limiter.AllowN(key, n) }
func (r *ringfenceMap) Close()                           { r.limiter.Close(); r.stop() }

type mutex struct {
	*mutexLimiter
	stop func()
}

func mutexSingle(s Setup) (Limiter, error) {
	c, stop, err := newClock(s)
	if err != nil {
		return nil, err
	}
	return &mutex{newMutexLimiter(s, c), stop}, nil
}

func (m *mutex) Allow(string) bool              { return m.allow(1) }
func (m *mutex) AllowN(_ string, n uint64) bool { return m.allow(n) }
func (m *mutex) Close()                         { m.stop() }

type mutexMap struct {
	*mutexKeyed
	stop func()
}

func mutexKeys(s Setup) (Limiter, error) {
	c, stop, err := newClock(s)
	if err != nil {
		return nil, err
	}
	return &mutexMap{newMutexKeyed(s, c), stop}, nil
}

func (m *mutexMap) Allow(key string) bool            { return m.allow(key, 1) }
func (m *mutexMap) AllowN(key string, n uint64) bool { return m.allow(key, n) }
func (m *mutexMap) Close()                           { m.close(); m.stop() }

type (
	alwaysFloor struct{}
	clockFloor  struct{ clock limiter.Clock }
	casFloor    struct {
		word atomic.Uint64
		_    [120]byte // no neighbour in the line
	}
	mapFloor struct {
		m *xsync.MapOf[string, *atomic.Uint64]
	}
	keyFloor struct{ *mapFloor }
)

func newMapFloor() *mapFloor { return &mapFloor{xsync.NewMapOf[string, *atomic.Uint64]()} }

func always(Setup) (Limiter, error)    { return alwaysFloor{}, nil }
func readClock(Setup) (Limiter, error) { return &clockFloor{limiter.SystemClock{}}, nil }
func casWord(Setup) (Limiter, error)   { return new(casFloor), nil }
func loadMap(Setup) (Limiter, error)   { return newMapFloor(), nil }
func casKey(Setup) (Limiter, error)    { return &keyFloor{newMapFloor()}, nil }

func (alwaysFloor) Allow(string) bool { return true }
func (alwaysFloor) Close()            {}

func (f *clockFloor) Allow(string) bool { return f.clock.Now() >= 0 }
func (*clockFloor) Close()              {}

func (f *casFloor) Allow(string) bool  { return count(&f.word) }
func (f *casFloor) Goroutine() Limiter { return new(casFloor) }
func (f *casFloor) Close()             {}

func count(word *atomic.Uint64) bool {
	old := word.Load()
	return word.CompareAndSwap(old, old+1)
}

// Allow looks the key up. Only the first pass over the keys stores them.
func (f *mapFloor) Allow(key string) bool { return f.word(key) != nil }
func (*mapFloor) Close()                  {}

func (f *mapFloor) word(key string) *atomic.Uint64 {
	word, ok := f.m.Load(key)
	if !ok {
		word, _ = f.m.LoadOrStore(key, new(atomic.Uint64))
	}
	return word
}

func (f *keyFloor) Allow(key string) bool { return count(f.word(key)) }
