package limiter

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// newCoarseClock returns a clock that is closed at the end of t.
func newCoarseClock(t *testing.T, resolution time.Duration) *CoarseClock {
	c, err := NewCoarseClock(resolution)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func TestNewCoarseClock_Resolution(t *testing.T) {
	for _, resolution := range []time.Duration{-1 << 63, -time.Second, -1, 0, 1, 999} {
		c, err := NewCoarseClock(resolution)
		require.Nil(t, c)
		require.ErrorIs(t, err, ErrConfig)
		require.ErrorContains(t, err, "resolution is "+resolution.String())
	}
	synctest.Test(t, func(t *testing.T) {
		for _, resolution := range []time.Duration{time.Microsecond, time.Millisecond, Never} {
			require.Equal(t, resolution, newCoarseClock(t, resolution).Resolution())
		}
	})
}

// TestCoarseClock_StandsStill checks that Now is the remembered reading, not one of the system clock, and how old it gets.
func TestCoarseClock_StandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const resolution = 10 * time.Millisecond
		c := newCoarseClock(t, resolution)
		require.Zero(t, c.Now())
		time.Sleep(resolution/2 - 1)
		require.Zero(t, c.Now())
		sleep(1)
		require.Equal(t, resolution/2, c.Now())
		for range 1000 {
			sleep(time.Millisecond / 3)
			age := c.exact() - c.Now()
			require.GreaterOrEqual(t, age, time.Duration(0))
			require.LessOrEqual(t, age, resolution)
		}
		require.Zero(t, c.Starved())
	})
}

func TestCoarseClock_Starved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const resolution = 10 * time.Millisecond
		c := newCoarseClock(t, resolution)
		start := c.exact()
		time.Sleep(resolution)
		last := c.tick(start)
		require.Equal(t, start+resolution, last)
		require.Zero(t, c.Starved(), "a gap of one resolution is in time")
		time.Sleep(resolution + 1)
		last = c.tick(last)
		require.Equal(t, uint64(1), c.Starved())
		time.Sleep(time.Hour)
		last = c.tick(last)
		require.Equal(t, uint64(2), c.Starved())
		require.Equal(t, last, c.Now())
		c.tick(last)
		require.Equal(t, uint64(2), c.Starved())
	})
}

func TestCoarseClock_AdvanceNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCoarseClock(t, time.Hour)
		c.now.Store(int64(time.Minute)) // another caller has come further
		c.advance()
		require.Equal(t, time.Minute, c.Now())
		time.Sleep(time.Minute + 1)
		c.advance()
		require.Equal(t, time.Minute+1, c.Now())
	})
}

// stalledClock returns a clock without a goroutine: only advance and Close refresh it.
func stalledClock(resolution time.Duration) *CoarseClock {
	c := &CoarseClock{
		origin:     SystemClock{}.Now(),
		resolution: resolution,
		stop:       make(chan struct{}),
		done:       make(chan struct{}),
	}
	close(c.done)
	return c
}

// TestCoarseClock_Nudged: where a clock's goroutine gets no processor, those who are denied move the reading on, if it can
// matter to them.
func TestCoarseClock_Nudged(t *testing.T) {
	const window = 100 * time.Millisecond
	ask := map[string]func(t *testing.T, c *CoarseClock) func() bool{
		"Limiter": func(t *testing.T, c *CoarseClock) func() bool {
			return newLimiter(t, Config{Limit: 1, Window: window, Clock: c}).Allow
		},
		"Limiter/Attempt": func(t *testing.T, c *CoarseClock) func() bool {
			l := newLimiter(t, Config{Limit: 1, Window: window, Clock: c})
			return func() bool { return l.Attempt(1).Allowed }
		},
		"Keyed": func(t *testing.T, c *CoarseClock) func() bool {
			k := newKeyed[int](t, KeyedConfig{Config: Config{Limit: 1, Window: window, Clock: c}, SweepEvery: NoSweep})
			return func() bool { return k.Allow(1) }
		},
		"MemoryStore": func(t *testing.T, c *CoarseClock) func() bool {
			s := newStore(t, MemoryStoreConfig{Clock: c, SweepEvery: NoSweep})
			return func() bool {
				allowed, _, _ := s.Attempt("k", 1, window)
				return allowed
			}
		},
		"MemoryStore/many": func(t *testing.T, c *CoarseClock) func() bool {
			s := newStore(t, MemoryStoreConfig{Clock: c, SweepEvery: NoSweep})
			results := make([]StoreResult, 2)
			return func() bool {
				return s.AttemptMany([]StoreItem{{Key: "a", Max: 1, Decay: window, Cost: 1}, {Key: "b", Max: 1, Decay: window, Cost: 1}}, results) < 0
			}
		},
	}
	for name, start := range ask {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := stalledClock(5 * time.Millisecond)
				defer c.Close()
				allow := start(t, c)
				require.True(t, allow())
				began := time.Now()
				for denials := 0; !allow(); denials++ {
					require.LessOrEqual(t, time.Since(began), window*13/10)
					if denials%1000 == 0 {
						time.Sleep(500 * time.Microsecond)
					}
				}
				require.GreaterOrEqual(t, time.Since(began), window)
			})
		})
	}
	c := newCoarseClock(t, 5*time.Millisecond)
	require.Nil(t, newLimiter(t, Config{Limit: 1, Window: 10 * longestStall, Clock: c}).nudged, "its ticks are longer than a stall")
}

// TestCoarseClock_LongSteps refreshes a clock too late: a paced reading moves in no long step.
func TestCoarseClock_LongSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stalledClock(time.Second)
		const longest = 875 * time.Millisecond // a second less the tolerance
		paced := c.pacedBy(time.Second)
		require.Same(t, &c.paced[0], paced)
		require.Same(t, paced, c.pacedBy(2*longest+c.tolerance()-1))
		require.Same(t, &c.paced[1], c.pacedBy(2*longest+c.tolerance()))
		require.Same(t, &c.paced[len(c.paced)-1], c.pacedBy(math.MaxInt64))
		tl := timeline{coarse: c, paced: paced}
		var want time.Duration
		for _, stall := range []time.Duration{1, longest - 1, longest, longest + 1, time.Second, time.Hour} {
			time.Sleep(stall)
			c.advance()
			want += min(stall, longest)
			require.Equal(t, want, tl.reading(), "after a stall of %v", stall)
		}
		time.Sleep(time.Minute)
		require.NoError(t, c.Close())
		require.Equal(t, want+longest, tl.reading(), "after a stall that Close ends")
		time.Sleep(time.Minute)
		require.Equal(t, want+longest+time.Minute, tl.reading(), "closed clocks do not stall")
	})
	for _, resolution := range []time.Duration{minResolution, 1e9 - 1, 9 * time.Millisecond, 1 << 61, math.MaxInt64} {
		c := stalledClock(resolution)
		for i := range c.paced {
			require.Greater(t, c.longest(i), int64(c.period()))
			if longest := c.longest(i); longest < math.MaxInt64 {
				require.Same(t, &c.paced[i], c.pacedBy(time.Duration(longest)+c.tolerance()))
			}
		}
	}
}

// TestCoarseClock_Punctual: a limiter on a clock that is never late loses no time, whatever the resolution is.
func TestCoarseClock_Punctual(t *testing.T) {
	for ms := range 160 {
		resolution := time.Duration(ms+1) * time.Millisecond
		synctest.Test(t, func(t *testing.T) {
			c := newCoarseClock(t, resolution)
			const slots = 20
			l := newLimiter(t, Config{Limit: 1, Window: slots * resolution, Slots: slots, Clock: c})
			s := newStore(t, MemoryStoreConfig{Clock: c, SweepEvery: NoSweep})
			time.Sleep(1000 * resolution)
			synctest.Wait()
			require.True(t, l.Allow())
			allowed, _, _ := s.Attempt("k", 1, time.Minute)
			require.True(t, allowed)
			wait := l.Attempt(1).RetryAfter
			require.LessOrEqual(t, wait, (slots+3)*resolution)
			time.Sleep(wait)
			synctest.Wait()
			require.True(t, l.Allow(), "resolution %v: too early after a RetryAfter of %v", resolution, wait)
			_, _, rest := s.Attempt("k", 1, time.Minute)
			require.LessOrEqual(t, wait+rest, time.Minute+2*resolution+2*cellTick)
			time.Sleep(rest)
			synctest.Wait()
			allowed, _, _ = s.Attempt("k", 1, time.Minute)
			require.True(t, allowed, "resolution %v: too early after a retryAfter of %v", resolution, rest)
			require.Zero(t, c.Starved())
		})
	}
}

// TestCoarseClock_Late lets the refresher lose the processor before it can store what it has read.
func TestCoarseClock_Late(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stalledClock(time.Second)
		paced := c.pacedBy(time.Second)
		time.Sleep(time.Millisecond)
		c.late = c.tolerance()
		c.advance()
		require.Equal(t, int64(time.Millisecond), paced.Load(), "not worth counting yet")
		c.late += time.Millisecond
		time.Sleep(time.Millisecond)
		c.advance()
		require.Equal(t, int64(time.Millisecond), paced.Load(), "the whole step is lost")
		require.Equal(t, c.tolerance(), c.late, "and the rest later")
		c.late = 2 * time.Millisecond
		time.Sleep(3 * time.Millisecond)
		before := paced.Load()
		require.NoError(t, c.Close())
		require.Equal(t, before+int64(time.Millisecond), int64((&timeline{coarse: c, paced: paced}).reading()), "Close counts all of it")
	})
}

// TestCoarseClock_AdvanceStress refreshes a clock from several goroutines at once, on the system clock, while others read,
// and then closes it: no reading goes back, none is ahead of the system clock, and between two instants no paced reading
// moves further than they are apart and one step.
func TestCoarseClock_AdvanceStress(t *testing.T) {
	rounds := 4000
	if raceEnabled {
		rounds = 500
	}
	const longest = 10 * time.Microsecond
	for range 4 {
		c := stalledClock(longest)
		tl := timeline{coarse: c, paced: c.pacedBy(longest)}
		var closed atomic.Bool
		var readers, refreshers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				var last, before, first time.Duration
				before = SystemClock{}.Now()
				first = tl.reading()
				for end := false; !end; {
					end = closed.Load() // the last reading is one of a closed clock
					start := SystemClock{}.Now()
					now, read := c.Now(), tl.reading()
					after := SystemClock{}.Now()
					if now < last || now > c.exact() || read < first || read-first > after-before+longest {
						t.Errorf("read %v after %v at %v, a move of %v in %v", now, last, c.exact(), read-first, after-before)
						return
					}
					last, before, first = now, start, read
					runtime.Gosched()
				}
			})
		}
		for range 2 {
			refreshers.Go(func() {
				for range rounds {
					for range 20 {
						runtime.Gosched() // the reading grows old
					}
					c.advance()
				}
			})
		}
		refreshers.Wait()
		require.NoError(t, c.Close())
		closed.Store(true)
		readers.Wait()
	}
}

// TestCoarseClock_StalledLimiter admits at the end of a stall, when the reading is nine seconds old: that unit expires a
// whole window later all the same, and not much after that.
func TestCoarseClock_StalledLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stalledClock(time.Second)
		l, err := New(Config{Limit: 1, Window: 10 * time.Second, Clock: c})
		require.NoError(t, err)
		time.Sleep(9 * time.Second)
		require.True(t, l.Allow())
		taken := time.Now()
		for c.advance(); !l.Allow(); c.advance() {
			time.Sleep(time.Second / 2)
		}
		require.GreaterOrEqual(t, time.Since(taken), 10*time.Second)
		require.LessOrEqual(t, time.Since(taken), 14*time.Second)
	})
}

func TestCoarseClock_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewCoarseClock(time.Second)
		require.NoError(t, err)
		sleep(1700 * time.Millisecond)
		require.Equal(t, 1500*time.Millisecond, c.Now())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				require.NoError(t, c.Close())
				select {
				case <-c.done:
				default:
					t.Error("Close returned before the goroutine had ended")
				}
			})
		}
		wg.Wait()
		require.NoError(t, c.Close())
		require.Equal(t, 1700*time.Millisecond, c.Now(), "closed clocks are exact")
		time.Sleep(time.Nanosecond)
		require.Equal(t, 1700*time.Millisecond+1, c.Now())
		c.advance()
		time.Sleep(time.Nanosecond)
		require.Equal(t, 1700*time.Millisecond+2, c.Now(), "a closed clock was started again")
	})
}

// readClosing calls read, which reads a pace of c, while Close is at it and then finds that behind was lost.
func readClosing(c *CoarseClock, paced *atomic.Int64, behind time.Duration, read func() time.Duration) time.Duration {
	c.mu.Lock()
	paced.Store(closingReading)
	reading := make(chan time.Duration)
	go func() { reading <- read() }()
	for range 1000 {
		runtime.Gosched()
	}
	paced.Store(^int64(behind))
	c.mu.Unlock()
	return <-reading
}

// TestCoarseClock_Closing reads a clock while Close is at it: the reading waits for what was lost.
func TestCoarseClock_Closing(t *testing.T) {
	c := stalledClock(time.Second)
	tl := timeline{coarse: c, paced: c.pacedBy(time.Second)}
	behind := c.exact() - readClosing(c, tl.paced, time.Hour, tl.reading)
	require.LessOrEqual(t, behind, time.Hour)
	require.Greater(t, behind, time.Hour-time.Minute)
}

// TestCoarseClock_ClosingIsNoJump: to a limiter that was made after the clock's first reading, one that is being closed is
// not ahead of its time: everything counted would expire at once.
func TestCoarseClock_ClosingIsNoJump(t *testing.T) {
	for _, origin := range []time.Duration{0, 1, time.Millisecond, 100 * 365 * 24 * time.Hour} {
		c := stalledClock(time.Second)
		tl := timeline{coarse: c, paced: c.pacedBy(time.Second), origin: origin, pacedFrom: origin}
		now := readClosing(c, tl.paced, 0, tl.now)
		require.LessOrEqual(t, now, c.exact(), "origin %v", origin)
	}
}

// TestCoarseClock_AfterFuncMoment: the time until the call counts from the reading, which is what the caller has seen.
func TestCoarseClock_AfterFuncMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCoarseClock(t, 10*time.Millisecond)
		sleep(8 * time.Millisecond)
		require.Equal(t, 5*time.Millisecond, c.Now())
		var called atomic.Bool
		c.AfterFunc(94*time.Millisecond, func() { called.Store(true) })
		sleep(91*time.Millisecond - 1)
		require.False(t, called.Load())
		sleep(1)
		require.True(t, called.Load())
		require.Equal(t, 99*time.Millisecond, c.Now())
	})
}

func TestCoarseClock_AfterFuncAcrossClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewCoarseClock(time.Second)
		require.NoError(t, err)
		var called atomic.Bool
		c.AfterFunc(10*time.Second, func() { called.Store(true) })
		sleep(5 * time.Second)
		require.NoError(t, c.Close())
		sleep(5*time.Second - 1)
		require.False(t, called.Load())
		sleep(1)
		require.True(t, called.Load())
	})
}

// TestCoarseClock_Dropped: the goroutine of a clock that nobody holds ends. Were it to hold the clock, the bubble's time
// would run on and done stay open.
func TestCoarseClock_Dropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewCoarseClock(time.Second)
		require.NoError(t, err)
		done := c.done
		sleep(time.Minute)
		runtime.GC()
		sleep(time.Second)
		select {
		case <-done:
			t.Fatal("ended while in use")
		default:
		}
		require.NotZero(t, c.Now())
		c = nil
		runtime.GC()
		sleep(time.Second)
		select {
		case <-done:
		default:
			t.Fatal("the goroutine goes on")
		}
	})
}

// TestCoarseClock_Stress reads a clock from several goroutines while it runs, is advanced by timers and is closed, and
// checks that no goroutine sees it go back and that no reading is ahead of the system clock.
func TestCoarseClock_Stress(t *testing.T) {
	rounds := 20
	if raceEnabled {
		rounds = 5
	}
	for range rounds {
		c, err := NewCoarseClock(time.Millisecond)
		require.NoError(t, err)
		var fired sync.WaitGroup
		var readers sync.WaitGroup
		for i := range 4 {
			fired.Add(1)
			target := c.Now() + time.Duration(i)*time.Millisecond
			c.AfterFunc(time.Duration(i)*time.Millisecond, func() {
				defer fired.Done()
				if now := c.Now(); now < target {
					t.Errorf("called at %v, was due at %v", now, target)
				}
			})
		}
		closed := make(chan struct{})
		for range 4 {
			readers.Go(func() {
				var last time.Duration
				for open := true; open; {
					select {
					case <-closed:
						open = false // and read once more
					default:
					}
					now := c.Now()
					exact := c.exact()
					if now < last || now > exact {
						t.Errorf("read %v after %v, the system clock says %v", now, last, exact)
						return
					}
					last = now
					runtime.Gosched()
				}
			})
		}
		fired.Wait()
		require.NoError(t, c.Close())
		close(closed)
		readers.Wait()
	}
}
