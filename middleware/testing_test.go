package middleware

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringfence-go/ringfence/limiter"
)

// T is the wall clock time at which the manual clock of a test reads 0.
var T = time.Unix(946684800, 0)

// bench is a limiter under test with its clock, and what it has reported.
type bench struct {
	t      *testing.T
	clock  *limiter.ManualClock
	fixed  *FixedWindowLimiter
	events []Event
	log    bytes.Buffer
	mu     sync.Mutex
	runs   int // of the handler
}

// newBench returns a bench whose options have its clock, observer and logger.
func newBench(t *testing.T) (*bench, Options) {
	b := &bench{t: t, clock: limiter.NewManualClock()}
	return b, Options{
		Clock:    b.clock,
		Now:      func() time.Time { return T.Add(b.clock.Now()) },
		Observer: b.observe,
		Logger:   slog.New(slog.NewTextHandler(&b.log, nil)),
	}
}

func (b *bench) observe(e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

// newFixed returns a bench with a FixedWindowLimiter. Requests of a user have the
// id in X-Test-User.
func newFixed(t *testing.T, change ...func(*FixedWindowConfig)) *bench {
	b, options := newBench(t)
	config := FixedWindowConfig{Options: options, Principal: func(r *http.Request) (string, bool) {
		id := r.Header.Get("X-Test-User")
		return id, id != ""
	}}
	for _, f := range change {
		f(&config)
	}
	f, err := NewFixedWindowLimiter(config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	b.fixed = f
	return b
}

// named registers a limiter and returns a handler behind it.
func (b *bench) named(name string, limits func(*http.Request) Limits) http.Handler {
	require.NoError(b.t, b.fixed.Named(name, limits))
	return b.spec(name)
}

// always is a named limiter that treats all requests alike.
func always(limits Limits) func(*http.Request) Limits {
	return func(*http.Request) Limits { return limits }
}

// spec returns a handler behind middlewares, the first outermost.
func (b *bench) spec(specs ...string) http.Handler {
	h := b.handler(http.StatusOK)
	for i := len(specs) - 1; i >= 0; i-- {
		m, err := b.fixed.Middleware(specs[i])
		require.NoError(b.t, err)
		h = m(h)
	}
	return h
}

// handler counts its runs and answers with a status, or the one that the request
// asks for in X-Test-Status.
func (b *bench) handler(status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		b.runs++
		b.mu.Unlock()
		code := status
		if want := r.Header.Get("X-Test-Status"); want != "" {
			_, err := fmt.Sscan(want, &code)
			require.NoError(b.t, err)
		}
		w.WriteHeader(code)
	})
}

// newRolling returns a bench and a middleware of New.
func newRolling(t *testing.T, change func(*Config), policies ...Policy) (*bench, http.Handler) {
	b, options := newBench(t)
	config := Config{Options: options, Policies: policies}
	if change != nil {
		change(&config)
	}
	m, err := New(config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return b, m.Handler(b.handler(http.StatusOK))
}

// from makes a request of the guest at an address.
func from(address string, change ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = address
	if !strings.Contains(address, "@") && !strings.HasSuffix(address, "]:4000") {
		r.RemoteAddr += ":4000"
	}
	for _, f := range change {
		f(r)
	}
	return r
}

// guest makes a request of the guest that most tests have.
func guest(change ...func(*http.Request)) *http.Request { return from("192.0.2.10", change...) }

// with sets a header field of a request.
func with(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// user makes a request one of a user.
func user(id string) func(*http.Request) { return with("X-Test-User", id) }

// status asks the handler for a status.
func status(code int) func(*http.Request) { return with("X-Test-Status", fmt.Sprint(code)) }

// send sends a request, by default the guest's.
func send(h http.Handler, r ...*http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	if len(r) == 0 {
		r = []*http.Request{guest()}
	}
	h.ServeHTTP(w, r[0])
	return w
}

// summary is the status and the four fields, as the cases write them.
func summary(w *httptest.ResponseRecorder) string {
	s := fmt.Sprint(w.Code)
	for _, f := range []struct{ short, name string }{
		{"L", "X-RateLimit-Limit"}, {"R", "X-RateLimit-Remaining"}, {"RA", "Retry-After"}, {"RS", "X-RateLimit-Reset"},
	} {
		for _, value := range w.Result().Header.Values(f.name) {
			s += " " + f.short + value
		}
	}
	return s
}

// step is a request at a time, in seconds, and the summary of its response.
type step struct {
	at   float64
	want string
}

// run sends the guest's request at each step.
func (b *bench) run(h http.Handler, steps ...step) {
	b.t.Helper()
	b.runWith(h, func(*http.Request) {}, steps...)
}

// runWith is run with changed requests.
func (b *bench) runWith(h http.Handler, change func(*http.Request), steps ...step) {
	b.t.Helper()
	for _, s := range steps {
		b.clock.Set(time.Duration(s.at * float64(time.Second)).Round(time.Millisecond))
		require.Equal(b.t, s.want, summary(send(h, guest(change))), "at T+%v", s.at)
	}
}

// sameSummary sends n requests and requires one summary of all.
func sameSummary(t *testing.T, h http.Handler, n int, want string, r func(i int) *http.Request) {
	t.Helper()
	for i := range n {
		require.Equal(t, want, summary(send(h, r(i))), "request %d", i)
	}
}

// outcomes returns the outcomes reported so far, with their policies.
func (b *bench) outcomes() (s []string) {
	for _, e := range b.events {
		s = append(s, e.Outcome.String()+" "+e.Policy)
	}
	return s
}

// plainStore has nothing but Attempt, under a mutex.
type plainStore struct {
	clock   limiter.Clock
	mu      sync.Mutex
	windows map[string]*window
	calls   int
}

type window struct {
	end   time.Duration
	count int
}

func newPlainStore(clock limiter.Clock) *plainStore {
	return &plainStore{clock: clock, windows: make(map[string]*window)}
}

func (s *plainStore) Attempt(key string, most int, decay time.Duration) (bool, int, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	now := s.clock.Now()
	w := s.windows[key]
	if w == nil || w.end <= now {
		if most <= 0 {
			return false, 0, decay
		}
		w = &window{end: now + decay}
		s.windows[key] = w
	}
	if w.count >= most {
		return false, w.count, w.end - now
	}
	w.count++
	return true, w.count, w.end - now
}

// failingStore is a store that can fail, and does so on request.
type failingStore struct {
	*plainStore
	err error
}

func (s *failingStore) AttemptContext(ctx context.Context, key string, most int, decay time.Duration) (bool, int, time.Duration, error) {
	if err := errors.Join(s.err, ctx.Err()); err != nil {
		return false, 0, 0, err
	}
	allowed, attempts, rest := s.Attempt(key, most, decay)
	return allowed, attempts, rest, nil
}

// onPlainStore gives a limiter a plain store.
func onPlainStore(c *FixedWindowConfig) { c.Store = newPlainStore(c.Clock) }
