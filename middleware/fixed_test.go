package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringfence-go/ringfence/limiter"
)

func TestFixedWindowLimiter_Names(t *testing.T) {
	b := newFixed(t)
	require.NoError(t, b.fixed.Named("60", always(PerMinute(3))))
	require.NoError(t, b.fixed.Named("api v1|x", always(PerMinute(4))))
	for text, err := range map[string]error{
		"empty":              b.fixed.Named("", always(NoLimits())),
		`"a,b" has a comma`:  b.fixed.Named("a,b", always(NoLimits())),
		`"60" is registered`: b.fixed.Named("60", always(NoLimits())),
		`"nil" has no`:       b.fixed.Named("nil", nil),
	} {
		require.ErrorIs(t, err, limiter.ErrConfig)
		require.ErrorContains(t, err, text)
	}
	require.Equal(t, "200 L3 R2", summary(send(b.spec("60"))), "a name, although it looks like a number")
	require.Equal(t, "200 L60 R59", summary(send(b.spec("60,1"))), "not a name")
	require.Equal(t, "200 L4 R3", summary(send(b.spec("api v1|x"))))
	require.ErrorContains(t, b.fixed.Named("late", always(NoLimits())), `"late" is registered too late`)
	_, err := b.fixed.Middleware("late")
	require.ErrorContains(t, err, `"late"`)
	_, err = b.fixed.Middleware("api v1|x,1")
	require.ErrorContains(t, err, `"api v1|x,1"`, "a name takes no parameters")
}

func TestFixedWindowLimiter_SplitNeedsPrincipal(t *testing.T) {
	f, err := NewFixedWindowLimiter(FixedWindowConfig{})
	require.NoError(t, err)
	defer f.Close()
	_, err = f.Middleware("60|120,1")
	require.ErrorContains(t, err, "Principal")
}

func TestFixedWindowLimiter_EmptyPrincipalIsAGuest(t *testing.T) {
	b := newFixed(t, func(c *FixedWindowConfig) { c.Principal = func(*http.Request) (string, bool) { return "", true } })
	h := b.spec("3|9,1")
	require.Equal(t, "200 L3 R2", summary(send(h, from("192.0.2.1"))))
	require.Equal(t, "200 L3 R2", summary(send(h, from("192.0.2.2"))), "not one key for all")
}

func TestFixedWindowLimiter_Keys(t *testing.T) {
	long := strings.Repeat("x", 200)
	b := newFixed(t, func(c *FixedWindowConfig) { c.IPv4Prefix = 24 })
	require.NoError(t, b.fixed.Named("n", always(All(PerMinute(9).By("a|1:b"), Unlimited(), PerMinute(8)))))
	require.NoError(t, b.fixed.Named("long", always(PerMinute(7).By(long))))
	for _, c := range []struct {
		spec string
		r    *http.Request
		want string
	}{
		{"5,1", guest(), "inline:domainless|192.0.2.0/24"},
		{"5,1", guest(user("7")), "u:7"},
		{"5,1,p|q", guest(), "p:3:p|q|inline:domainless|192.0.2.0/24"},
		{"5,1,pé", guest(user("7")), "p:3:pé|u:7"},
		{"n", guest(), "n:1:n1:20:"},
	} {
		require.Equal(t, 200, send(b.spec(c.spec), c.r).Code)
		require.Equal(t, c.want, b.events[len(b.events)-1].Key)
	}
	send(b.spec("long"))
	require.Regexp(t, "^h:[0-9a-f]{64}$", b.events[len(b.events)-1].Key)

	require.Equal(t, "u:7", b.fixed.CallerKey(guest(user("7"))))
	require.Equal(t, "192.0.2.0/24", b.fixed.CallerKey(guest()))
}

func TestFixedWindowLimiter_PlacesStay(t *testing.T) {
	b := newFixed(t)
	h := b.named("n", func(r *http.Request) Limits {
		first := PerMinute(5)
		if r.Header.Get("Free") != "" {
			first = Unlimited()
		}
		return All(first, PerMinute(3))
	})
	require.Equal(t, "200 L3 R2", summary(send(h)))
	require.Equal(t, "200 L3 R1", summary(send(h, guest(with("Free", "yes")))))
	require.Equal(t, "n-2", b.events[1].Policy)
}

func TestFixedWindowLimiter_ManyLimits(t *testing.T) {
	var all []Limits
	for i := range 20 {
		all = append(all, PerMinute(20-i))
	}
	b := newFixed(t)
	h := b.named("n", always(All(all...)))
	require.Equal(t, "200 L1 R0", summary(send(h)))
	require.Equal(t, "429 L1 R0 RA60 RS946684860", summary(send(h)))
	require.Equal(t, []string{"admitted n-20", "denied n-20"}, b.outcomes())
}

func TestFixedWindowLimiter_FirstExhaustedIsShown(t *testing.T) {
	for _, store := range stores {
		b := newFixed(t, store.change)
		h := b.named("n", always(All(PerMinute(9), PerMinute(1), PerHour(1))))
		send(h)
		require.Equal(t, "429 L1 R0 RA60 RS946684860", summary(send(h)), store.name)
		require.Equal(t, "n-2", b.events[1].Policy)
	}
}

func TestFixedWindowLimiter_PlainStoreDecidesInOrder(t *testing.T) {
	store := newPlainStore(limiter.NewManualClock())
	b := newFixed(t, func(c *FixedWindowConfig) { c.Store = store })
	h := b.named("n", always(All(PerMinute(9).By("a"), PerMinute(1).By("b"), PerMinute(9).By("c"))))
	send(h)
	store.calls = 0
	send(h)
	require.Equal(t, 2, store.calls, "one attempt each, up to the one that denies")
	require.Equal(t, 2, store.windows["n:1:n1:01:a"].count, "what was taken stays taken")
	require.Equal(t, 1, store.windows["n:1:n1:21:c"].count)
}

func TestFixedWindowLimiter_NothingIsLeftForAnother(t *testing.T) {
	b := newFixed(t, onPlainStore)
	fixed := b.named("n", always(All(PerMinute(0), PerMinute(9).Response(b.handler(402))))) // the second is not asked
	_, rolling := newRolling(t, nil,
		Policy{Name: "a", Limit: 9, Window: time.Minute, Key: ByIP}, Policy{Name: "b", Limit: 0, Window: time.Minute, Key: ByIP})
	for range 20 {
		require.Equal(t, 429, send(fixed).Code)
		require.Equal(t, 429, send(rolling).Code, "not as the other one answers")
	}
}

func TestFixedWindowLimiter_OneAttemptEach(t *testing.T) {
	store := newPlainStore(limiter.NewManualClock())
	b := newFixed(t, func(c *FixedWindowConfig) { c.Store = store })
	h := b.spec("2,1")
	for i := range 5 {
		send(h)
		require.Equal(t, i+1, store.calls)
	}
}

// What is shown is what the store holds to, and a MemoryStore counts no further
// than this.
func TestFixedWindowLimiter_LargeMax(t *testing.T) {
	b := newFixed(t, func(c *FixedWindowConfig) { c.Families = Legacy | IETFDraft11 })
	require.NoError(t, b.fixed.Named("n", always(All(PerMinute(maxMax), PerHour(maxMax)))))
	used := []limiter.StoreItem{
		{Key: "inline:domainless|192.0.2.10", Max: maxMax, Decay: time.Minute, Cost: 16_777_214},
		{Key: "n:1:n1:00:", Max: maxMax, Decay: time.Minute, Cost: 16_777_214},
	}
	require.Equal(t, -1, b.fixed.multi.AttemptMany(used, make([]limiter.StoreResult, 2)))
	for _, spec := range []string{"16777216,1", "n"} {
		h := b.spec(spec)
		w := send(h)
		require.Equal(t, "200 L16777215 R0", summary(w))
		require.Contains(t, w.Header().Get("RateLimit-Policy"), ";q=16777215;w=60")
		require.Equal(t, "429 L16777215 R0 RA60 RS946684860", summary(send(h)))
		require.EqualValues(t, 16_777_215, b.events[len(b.events)-1].Decision.Limit)
	}

	b = newFixed(t, onPlainStore)
	require.Equal(t, "200 L2147483647 R2147483646", summary(send(b.spec("2147483647,1"))), "another store may count further")
}

func TestFixedWindowLimiter_AfterNeedsAStoreThatGivesBack(t *testing.T) {
	after := PerMinute(1).After(failures)
	for name, change := range map[string]func(*FixedWindowConfig){
		"plain": onPlainStore,
		"error": func(c *FixedWindowConfig) {
			c.Store, c.OnStoreError = &failingStore{plainStore: newPlainStore(c.Clock)}, AdmitOnError
		},
	} {
		b := newFixed(t, change)
		err := b.fixed.Named("n", always(All(PerMinute(9), after)))
		require.ErrorIs(t, err, limiter.ErrConfig, name)
		require.ErrorContains(t, err, "give back")
		require.NoError(t, b.fixed.Named("client", func(r *http.Request) Limits { return PerMinute(5).By(b.fixed.ClientKey(r)) }))
		require.Empty(t, b.log.String(), "the look is no client without an address")

		// What shows only with a request is refused with it.
		require.NoError(t, b.fixed.Named("sometimes", func(r *http.Request) Limits {
			if r.Header["X-Login"][0] == "yes" { // panics on the empty request
				return after
			}
			return PerMinute(5)
		}))
		h := b.spec("sometimes")
		require.Equal(t, "200 L5 R4", summary(send(h, guest(with("X-Login", "no")))))
		require.Equal(t, "500", summary(send(h, guest(with("X-Login", "yes")))))
		require.ErrorIs(t, b.events[1].Err, errCannotGiveBack)
	}
	b := newFixed(t)
	calls := 0
	require.NoError(t, b.fixed.Named("n", func(*http.Request) Limits { calls++; return after }))
	require.Zero(t, calls, "a store that gives back needs no look")
}

func TestFixedWindowLimiter_Panic(t *testing.T) {
	cause := errors.New("no session")
	b := newFixed(t)
	h := b.named("n", func(*http.Request) Limits { panic(cause) })
	w := send(h, guest(with("Accept", "application/json")))
	require.Equal(t, "500", summary(w))
	require.Equal(t, "{\n    \"message\": \"Internal Server Error.\"\n}", w.Body.String())
	var p *PanicError
	require.ErrorAs(t, b.events[0].Err, &p)
	require.ErrorIs(t, b.events[0].Err, cause)
	require.Equal(t, "panic: no session", p.Error())
	require.Contains(t, string(p.Stack), "TestFixedWindowLimiter_Panic")
	require.NoError(t, (&PanicError{Value: "text"}).Unwrap())

	b = newFixed(t)
	h = b.named("n", func(*http.Request) Limits { panic(http.ErrAbortHandler) })
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { send(h) })
}

func TestFixedWindowLimiter_PrincipalPanics(t *testing.T) {
	b := newFixed(t, func(c *FixedWindowConfig) { c.Principal = func(*http.Request) (string, bool) { panic("no") } })
	require.Equal(t, "500", summary(send(b.spec("5,1"))))
	require.Equal(t, []string{"failed inline"}, b.outcomes())
}

func TestFixedWindowLimiter_FaultsAreLoggedOnce(t *testing.T) {
	b := newFixed(t, func(c *FixedWindowConfig) { c.Observer = nil })
	h := b.named("n", always(Limits{}))
	send(h)
	send(h)
	require.Equal(t, 1, strings.Count(b.log.String(), "level=ERROR"), b.log.String())
	require.Contains(t, b.log.String(), "zero value")
}

func TestFixedWindowLimiter_Respond(t *testing.T) {
	b := newFixed(t)
	h := b.named("n", always(Respond(http.NotFoundHandler())))
	w := send(h)
	require.Equal(t, "404", summary(w))
	require.Equal(t, "404 page not found\n", w.Body.String())
	require.Zero(t, b.runs)
	require.Empty(t, b.events)
}

func TestFixedWindowLimiter_OnStoreErrorIsKnown(t *testing.T) {
	_, err := NewFixedWindowLimiter(FixedWindowConfig{OnStoreError: 3})
	require.ErrorContains(t, err, "OnStoreError is 3")
}

// What is nil fails when it is given, not with the first request.
func TestNil(t *testing.T) {
	for text, config := range map[string]FixedWindowConfig{
		"Store is a nil *limiter.MemoryStore":     {Store: (*limiter.MemoryStore)(nil)},
		"Store is a nil *middleware.failingStore": {Store: (*failingStore)(nil), OnStoreError: AdmitOnError},
		"OnDenied is a nil http.HandlerFunc":      {Options: Options{OnDenied: http.HandlerFunc(nil)}},
	} {
		_, err := NewFixedWindowLimiter(config)
		require.EqualError(t, err, "ringfence: invalid configuration: "+text)
	}

	f := newFixed(t).fixed
	m, err := New(Config{Policies: []Policy{{Name: "n", Limit: 1, Window: time.Minute, Key: ByIP}}})
	require.NoError(t, err)
	defer m.Close()
	for _, next := range []http.Handler{nil, http.HandlerFunc(nil)} {
		require.ErrorContains(t, Respond(next).check(), "the handler to respond with is nil")
		require.ErrorContains(t, PerMinute(1).Response(next).check(), "the Response handler is nil")
		require.PanicsWithValue(t, "ringfence: the handler to limit is nil", func() { m.Handler(next) })
		require.PanicsWithValue(t, "ringfence: the handler to limit is nil", func() { f.MustMiddleware("1,1")(next) })
	}
}

// oddStore answers what no store should.
type oddStore struct {
	allowed  bool
	attempts int
	rest     time.Duration
}

func (s oddStore) Attempt(string, int, time.Duration) (bool, int, time.Duration) {
	return s.allowed, s.attempts, s.rest
}

func TestFixedWindowLimiter_OddStores(t *testing.T) {
	for store, want := range map[oddStore]string{
		{true, 99, -time.Hour}:        "200 L5 R0",
		{true, -99, 0}:                "200 L5 R5",
		{false, 0, -time.Hour}:        "429 L5 R0 RA1 RS946684800",
		{false, 0, time.Millisecond}:  "429 L5 R0 RA1 RS946684801",
		{false, 99, limiter.Never}:    "429 L5 R0 RA60 RS946684860",
		{false, 5, limiter.Never - 1}: "429 L5 R0 RA9223372037 RS10170056837",
	} {
		b := newFixed(t, func(c *FixedWindowConfig) { c.Store = store })
		require.Equal(t, want, summary(send(b.spec("5,1"))), "%+v", store)
	}
}

func TestLimits_AreValues(t *testing.T) {
	base := All(PerMinute(1), PerHour(2))
	a, b := base.By("a"), base.By("b").After(failures).Response(http.NotFoundHandler())
	for i := range 2 {
		require.Equal(t, "a", a.at(i).by)
		require.Equal(t, "b", b.at(i).by)
		require.NotNil(t, b.at(i).after)
		require.NotNil(t, b.at(i).denial)
		require.Empty(t, base.at(i).by)
		require.Nil(t, base.at(i).after)
	}
	joined := All(base, PerDay(3), base.By("x"))
	require.Equal(t, 5, joined.len())
	require.Empty(t, base.at(1).by)
	var numbers []int
	for i := range joined.len() {
		numbers = append(numbers, joined.at(i).max)
	}
	require.Equal(t, []int{1, 2, 3, 1, 2}, numbers)
}

func TestLimits_Builders(t *testing.T) {
	for _, c := range []struct {
		limits Limits
		window time.Duration
	}{
		{PerSecond(4), time.Second}, {PerMinute(4), time.Minute}, {PerHour(4), time.Hour}, {PerDay(4), 24 * time.Hour},
		{Per(4, time.Millisecond), time.Millisecond},
	} {
		require.NoError(t, c.limits.check())
		require.Equal(t, limit{max: 4, window: c.window}, *c.limits.at(0))
	}
	big := maxMax
	for text, limits := range map[string]Limits{
		"limit is -1":             PerMinute(-1),
		"window is 999.999µs":     Per(1, time.Millisecond-1),
		"After has no function":   PerMinute(1).After(nil),
		"Response handler is nil": PerMinute(1).Response(nil),
		"By of what is not":       NoLimits().By("x"),
		"After of what is not":    Respond(http.NotFoundHandler()).After(failures),
		"Response of what is not": Limits{}.Response(http.NotFoundHandler()),
		"limit 2 of the list":     All(PerMinute(1), PerMinute(-1)),
		"limit 1 of the list":     All(Respond(http.NotFoundHandler())),
		"the Limits are the zero": {},
		"All has no limits":       All(),
		"list: All has no limits": All(PerMinute(1), All()),
		"limit is -2":             All(PerMinute(1), All(PerMinute(-2))),
		"limit 3 of the list is":  All(PerMinute(1), PerMinute(1), Limits{}),
	} {
		require.ErrorContains(t, limits.check(), text)
	}
	if fmt.Sprint(big+1) == "2147483648" { // int has 64 bits
		require.ErrorContains(t, PerMinute(big+1).check(), "Unlimited")
	}
}

// TestNewFixedWindowLimiter_AllFaults: those of the store that it makes are named
// with the others, each once.
func TestNewFixedWindowLimiter_AllFaults(t *testing.T) {
	config := FixedWindowConfig{Options: Options{Hops: -1, Clock: (*limiter.ManualClock)(nil)}}
	_, err := NewFixedWindowLimiter(config)
	require.EqualError(t, err, limiter.ErrConfig.Error()+": Hops is -1, want 0 to 32\nClock is a nil *limiter.ManualClock")
	require.ErrorIs(t, err, limiter.ErrConfig)
	config.Hops = 0
	_, err = NewFixedWindowLimiter(config)
	require.EqualError(t, err, limiter.ErrConfig.Error()+": Clock is a nil *limiter.ManualClock")

	before := runtime.NumGoroutine()
	config.Clock, config.Hops = nil, -1
	_, err = NewFixedWindowLimiter(config)
	require.Error(t, err)
	require.Equal(t, before, runtime.NumGoroutine(), "the store that it had made is closed")
}
