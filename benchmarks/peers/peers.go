package peers

import (
	"context"
	"net/http"
	"sync"
	"time"

	slidingwindow "github.com/RussellLuo/slidingwindow"
	"github.com/didip/tollbooth/v7"
	tollboothlimiter "github.com/didip/tollbooth/v7/limiter"
	"github.com/go-chi/httprate"
	juju "github.com/juju/ratelimit"
	golimiter "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/ringfence-go/ringfence/benchmarks"
	"github.com/ringfence-go/ringfence/limiter"
)

// Peers returns the other libraries' rows of the table.
func Peers() []benchmarks.Implementation {
	own := []string{benchmarks.SystemClock}
	both := []string{benchmarks.SystemClock, benchmarks.CoarseClock}
	return []benchmarks.Implementation{
		{Name: "x-time-rate", Clocks: both, Single: newXTime, Costs: true},
		{Name: "x-time-rate-syncmap", Clocks: own, Keyed: newXTimeSyncMap, Costs: true},
		{Name: "x-time-rate-mutexmap", Clocks: own, Keyed: newXTimeMutexMap, Costs: true},
		{Name: "uber-ratelimit", Clocks: own, Single: newUber, Waits: true},
		{Name: "go-limiter", Clocks: own, Keyed: newGoLimiter, Except: map[string]string{
			"rollover": "it refills window/limit nanoseconds worth of tokens per window, which is 2 here",
		}},
		{Name: "ulule", Clocks: own, Keyed: newUlule, Costs: true},
		{Name: "throttled", Clocks: own, Keyed: newThrottled, Costs: true},
		{Name: "tollbooth", Clocks: own, Keyed: newTollbooth},
		{Name: "httprate", Clocks: own, Keyed: newHTTPRate, Costs: true},
		{Name: "slidingwindow", Clocks: own, Single: newSlidingWindow, Costs: true},
		{Name: "juju-ratelimit", Clocks: own, Single: newJuju, Costs: true},
	}
}

// perSecond returns the rate of a Setup.
func perSecond(s benchmarks.Setup) float64 { return float64(s.Limit) / s.Window.Seconds() }

func newRate(s benchmarks.Setup) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond(s)), int(s.Limit))
}

// xTime asks with Allow, which reads the clock, as most callers do.
type xTime struct{ limiter *rate.Limiter }

// newXTime can also ask with AllowN and the time that a coarse clock has: the
// library allows for it, though few do.
func newXTime(s benchmarks.Setup) (benchmarks.Limiter, error) {
	if s.Clock != benchmarks.CoarseClock {
		return &xTime{newRate(s)}, nil
	}
	c, err := limiter.NewCoarseClock(5 * time.Millisecond)
	if err != nil {
		return nil, err
	}
	return &xTimeCoarse{newRate(s), c, time.Now()}, nil
}

func (l *xTime) Allow(string) bool              { return l.limiter.Allow() }
func (l *xTime) AllowN(_ string, n uint64) bool { return l.limiter.AllowN(time.Now(), int(n)) }
func (l *xTime) Close()                         {}

type xTimeCoarse struct {
	limiter *rate.Limiter
	clock   *limiter.CoarseClock
	start   time.Time
}

func (l *xTimeCoarse) Allow(string) bool {
	return l.limiter.AllowN(l.start.Add(l.clock.Now()), 1)
}

func (l *xTimeCoarse) AllowN(_ string, n uint64) bool {
	return l.limiter.AllowN(l.start.Add(l.clock.Now()), int(n))
}

func (l *xTimeCoarse) Close() { l.clock.Close() }

// xTimeSyncMap keeps a limiter for each key in a sync.Map, for ever.
type xTimeSyncMap struct {
	setup    benchmarks.Setup
	limiters sync.Map
}

func newXTimeSyncMap(s benchmarks.Setup) (benchmarks.Limiter, error) {
	return &xTimeSyncMap{setup: s}, nil
}

func (l *xTimeSyncMap) get(key string) *rate.Limiter {
	v, ok := l.limiters.Load(key)
	if !ok {
		v, _ = l.limiters.LoadOrStore(key, newRate(l.setup))
	}
	return v.(*rate.Limiter)
}

func (l *xTimeSyncMap) Allow(key string) bool { return l.get(key).Allow() }
func (l *xTimeSyncMap) AllowN(key string, n uint64) bool {
	return l.get(key).AllowN(time.Now(), int(n))
}
func (l *xTimeSyncMap) Close() {}

// xTimeMutexMap keeps a limiter for each key in a map under a mutex, for ever.
type xTimeMutexMap struct {
	setup    benchmarks.Setup
	mu       sync.Mutex
	limiters map[string]*rate.Limiter
}

func newXTimeMutexMap(s benchmarks.Setup) (benchmarks.Limiter, error) {
	return &xTimeMutexMap{setup: s, limiters: make(map[string]*rate.Limiter)}, nil
}

func (l *xTimeMutexMap) get(key string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.limiters[key]
	if !ok {
		r = newRate(l.setup)
		l.limiters[key] = r
	}
	return r
}

func (l *xTimeMutexMap) Allow(key string) bool { return l.get(key).Allow() }
func (l *xTimeMutexMap) AllowN(key string, n uint64) bool {
	return l.get(key).AllowN(time.Now(), int(n))
}
func (l *xTimeMutexMap) Close() {}

type uberLimiter struct{ limiter uber.Limiter }

func newUber(s benchmarks.Setup) (benchmarks.Limiter, error) {
	return &uberLimiter{uber.New(int(s.Limit), uber.Per(s.Window))}, nil
}

// Allow waits for its turn.
func (l *uberLimiter) Allow(string) bool {
	l.limiter.Take()
	return true
}

func (l *uberLimiter) Close() {}

type goLimiter struct{ store golimiter.Store }

func newGoLimiter(s benchmarks.Setup) (benchmarks.Limiter, error) {
	c := &memorystore.Config{Tokens: s.Limit, Interval: s.Window}
	if s.SweepEvery > 0 {
		// Its documentation warns against forgetting keys before their window ends.
		c.SweepInterval, c.SweepMinTTL = s.SweepEvery, s.Window
	}
	store, err := memorystore.New(c)
	return &goLimiter{store}, err
}

func (l *goLimiter) Allow(key string) bool {
	_, _, _, ok, err := l.store.Take(context.Background(), key)
	return ok && err == nil
}

func (l *goLimiter) Close() { l.store.Close(context.Background()) }

type ululeLimiter struct{ limiter *ulule.Limiter }

func newUlule(s benchmarks.Setup) (benchmarks.Limiter, error) {
	store := ululememory.NewStore()
	if s.SweepEvery > 0 {
		store = ululememory.NewStoreWithOptions(ulule.StoreOptions{Prefix: ulule.DefaultPrefix, CleanUpInterval: s.SweepEvery})
	}
	return &ululeLimiter{ulule.New(store, ulule.Rate{Period: s.Window, Limit: int64(s.Limit)})}, nil
}

func (l *ululeLimiter) Allow(key string) bool {
	c, err := l.limiter.Get(context.Background(), key)
	return err == nil && !c.Reached
}

func (l *ululeLimiter) AllowN(key string, n uint64) bool {
	c, err := l.limiter.Increment(context.Background(), key, int64(n))
	return err == nil && !c.Reached
}

// Close leaves it to the garbage collector to stop the cleaner: there is no other way.
func (l *ululeLimiter) Close() {}

type throttledLimiter struct{ limiter *throttled.GCRARateLimiterCtx }

// newThrottled gives the store room for every key: with the 65,536 of its
// documentation it would evict keys here, and so forget their counts.
func newThrottled(s benchmarks.Setup) (benchmarks.Limiter, error) {
	store, err := memstore.NewCtx(s.MaxKeys)
	if err != nil {
		return nil, err
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(int(s.Limit), s.Window),
		MaxBurst: int(s.Limit) - 1,
	})
	return &throttledLimiter{l}, err
}

func (l *throttledLimiter) Allow(key string) bool { return l.AllowN(key, 1) }

// AllowN counts an error, which it returns when it has lost ten races for the
// key, as a denial.
func (l *throttledLimiter) AllowN(key string, n uint64) bool {
	limited, _, err := l.limiter.RateLimitCtx(context.Background(), key, int(n))
	return !limited && err == nil
}

func (l *throttledLimiter) Close() {}

type tollboothLimiter struct{ limiter *tollboothlimiter.Limiter }

func newTollbooth(s benchmarks.Setup) (benchmarks.Limiter, error) {
	l := tollbooth.NewLimiter(perSecond(s), nil)
	if s.SweepEvery > 0 {
		l.SetTokenBucketExpirationTTL(s.Window)
	}
	return &tollboothLimiter{l.SetBurst(int(s.Limit))}, nil
}

func (l *tollboothLimiter) Allow(key string) bool {
	return tollbooth.LimitByKeys(l.limiter, []string{key}) == nil
}

func (l *tollboothLimiter) Close() {}

// httpRate asks the rate limiter itself, and switches the response headers off,
// as there is no response; the middleware is measured by BenchmarkHTTP.
type httpRate struct {
	limiter  *httprate.RateLimiter
	requests [9]*http.Request // one for each cost
}

func newHTTPRate(s benchmarks.Setup) (benchmarks.Limiter, error) {
	l := &httpRate{limiter: httprate.NewRateLimiter(int(s.Limit), s.Window, httprate.WithResponseHeaders(httprate.ResponseHeaders{}))}
	for n := range l.requests {
		r, err := http.NewRequest(http.MethodGet, "/", nil)
		if err != nil {
			return nil, err
		}
		if n > 1 {
			r = r.WithContext(httprate.WithIncrement(r.Context(), n))
		}
		l.requests[n] = r
	}
	return l, nil
}

func (l *httpRate) Allow(key string) bool { return l.AllowN(key, 1) }
func (l *httpRate) AllowN(key string, n uint64) bool {
	return !l.limiter.OnLimit(nil, l.requests[n], key)
}
func (l *httpRate) Close() {}

type slidingWindow struct{ limiter *slidingwindow.Limiter }

func newSlidingWindow(s benchmarks.Setup) (benchmarks.Limiter, error) {
	l, _ := slidingwindow.NewLimiter(s.Window, int64(s.Limit), func() (slidingwindow.Window, slidingwindow.StopFunc) {
		return slidingwindow.NewLocalWindow()
	})
	return &slidingWindow{l}, nil
}

func (l *slidingWindow) Allow(string) bool { return l.limiter.Allow() }
func (l *slidingWindow) AllowN(_ string, n uint64) bool {
	return l.limiter.AllowN(time.Now(), int64(n))
}
func (l *slidingWindow) Close() {}

type jujuBucket struct{ bucket *juju.Bucket }

func newJuju(s benchmarks.Setup) (benchmarks.Limiter, error) {
	return &jujuBucket{juju.NewBucketWithRate(perSecond(s), int64(s.Limit))}, nil
}

func (l *jujuBucket) Allow(string) bool { return l.bucket.TakeAvailable(1) == 1 }

// AllowN takes all or nothing, which TakeAvailable does not.
func (l *jujuBucket) AllowN(_ string, n uint64) bool {
	_, ok := l.bucket.TakeMaxDuration(int64(n), 0)
	return ok
}

func (l *jujuBucket) Close() {}
