package peers

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/ringfence-go/ringfence/middleware"
)

// An attach puts a middleware with the limit per hour and client around a
// handler.
type attach func(limit uint64, next http.Handler) (http.Handler, error)

var middlewares = []struct {
	name   string
	attach attach
}{
	{"handler", func(_ uint64, next http.Handler) (http.Handler, error) { return next, nil }},
	{"ringfence-fixed", func(limit uint64, next http.Handler) (http.Handler, error) {
		f, err := middleware.NewFixedWindowLimiter(middleware.FixedWindowConfig{})
		if err != nil {
			return nil, err
		}
		wrap, err := f.Middleware(fmt.Sprintf("%d,60", limit))
		if err != nil {
			return nil, err
		}
		return wrap(next), nil
	}},
	{"ringfence-rolling", func(limit uint64, next http.Handler) (http.Handler, error) {
		m, err := middleware.New(middleware.Config{Policies: []middleware.Policy{
			{Name: "api", Limit: limit, Window: time.Hour, Key: middleware.ByIP},
		}})
		if err != nil {
			return nil, err
		}
		return m.Handler(next), nil
	}},
	{"httprate", func(limit uint64, next http.Handler) (http.Handler, error) {
		return httprate.LimitBy(int(limit), time.Hour, func(r *http.Request) (string, error) {
			host, _, err := net.SplitHostPort(r.RemoteAddr)
			return httprate.CanonicalizeIP(host), err
		})(next), nil
	}},
	{"ulule", func(limit uint64, next http.Handler) (http.Handler, error) {
		l := ulule.New(ululememory.NewStore(), ulule.Rate{Period: time.Hour, Limit: int64(limit)})
		return stdlib.NewMiddleware(l).Handler(next), nil
	}},
	{"go-limiter", func(limit uint64, next http.Handler) (http.Handler, error) {
		store, err := memorystore.New(&memorystore.Config{Tokens: limit, Interval: time.Hour})
		if err != nil {
			return nil, err
		}
		m, err := httplimit.NewMiddleware(store, httplimit.IPKeyFunc())
		if err != nil {
			return nil, err
		}
		return m.Handle(next), nil
	}},
}

// A discard is a ResponseWriter that keeps only the status.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

func (d *discard) reset() {
	clear(d.header)
	d.status = http.StatusOK
}

// BenchmarkHTTP times a middleware around a handler that does nothing, asked by
// many clients whose requests are all admitted, or all denied. What matters is
// how much it adds to impl=handler.
func BenchmarkHTTP(b *testing.B) {
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, deny := range []string{"none", "all"} {
		for _, m := range middlewares {
			if m.name == "handler" && deny == "all" {
				continue
			}
			limit, status := uint64(1<<30), http.StatusOK
			if deny == "all" {
				limit, status = 1, http.StatusTooManyRequests
			}
			var h http.Handler
			b.Run(fmt.Sprintf("impl=%s/deny=%s", m.name, deny), func(b *testing.B) {
				if h == nil {
					var err error
					if h, err = m.attach(limit, nothing); err != nil {
						b.Fatal(err)
					}
				}
				serve(b, h, status)
			})
		}
	}
}

func serve(b *testing.B, h http.Handler, status int) {
	const clients = 1024
	requests := make([]*http.Request, clients)
	warm := &discard{header: http.Header{}}
	for i := range requests {
		requests[i] = httptest.NewRequest(http.MethodGet, "/", nil)
		requests[i].RemoteAddr = fmt.Sprintf("192.0.%d.%d:40000", i/256, i%256)
		h.ServeHTTP(warm, requests[i])
	}
	var started, wrong atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		w := &discard{header: http.Header{}}
		i := int(started.Add(1)) * 97
		for pb.Next() {
			w.reset()
			h.ServeHTTP(w, requests[i%clients])
			i++
			if w.status != status {
				wrong.Add(1)
			}
		}
	})
	b.StopTimer()
	if n := wrong.Load(); n > 0 {
		b.Fatalf("%d of %d responses were not %d", n, b.N, status)
	}
}
