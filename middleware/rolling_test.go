package middleware

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringfence-go/ringfence/limiter"
)

func TestNew_Errors(t *testing.T) {
	good := Policy{Name: "good", Limit: 1, Window: time.Minute, Key: ByIP}
	bad := func(change func(*Policy)) []Policy {
		p := good
		p.Name = "bad"
		change(&p)
		return []Policy{good, p}
	}
	for text, policies := range map[string][]Policy{
		"no Policies":                            nil,
		"Name is empty":                          bad(func(p *Policy) { p.Name = "" }),
		"Name is that of another":                bad(func(p *Policy) { p.Name = "good" }),
		`policy "bad" (Policies[1]): Key is nil`: bad(func(p *Policy) { p.Key = nil }),
		"Limit is 1 and LimitFunc is set":        bad(func(p *Policy) { p.LimitFunc = func(*http.Request) uint64 { return 1 } }),
		"Window is 0s":                           bad(func(p *Policy) { p.Window = 0 }),
		"Slots is -1":                            bad(func(p *Policy) { p.Slots = -1 }),
		"Limit is 18446744073709551615":          bad(func(p *Policy) { p.Limit = 1<<64 - 1 }),
		"MaxKeys is -1":                          bad(func(p *Policy) { p.MaxKeys = -1 }),
		"OnFull is":                              bad(func(p *Policy) { p.OnFull = 99 }),
	} {
		_, err := New(Config{Policies: policies})
		require.ErrorIs(t, err, limiter.ErrConfig, text)
		require.ErrorContains(t, err, text)
	}
	_, err := New(Config{Policies: []Policy{{Slots: -1}}})
	require.EqualError(t, err, `ringfence: invalid configuration: policy "" (Policies[0]): Name is empty
policy "" (Policies[0]): Key is nil, want a key function (ByHeader returns nil for a bad name, Join for no parts or a nil one)
policy "" (Policies[0]): Slots is -1, want 1 to 65536
policy "" (Policies[0]): Window is 0s, want more than 0`, "all faults in one error")

	_, err = New(Config{Policies: []Policy{{Name: "n", Key: ByIP, MaxKeys: -1}}})
	require.ErrorContains(t, err, "\npolicy \"n\" (Policies[0]): MaxKeys is -1", "not what kind of error it is once more")
}

func TestMiddleware_Rolling(t *testing.T) {
	b, h := newRolling(t, nil, Policy{Name: "n", Limit: 2, Window: time.Minute, Slots: 6, Key: ByIP})
	b.run(h, step{0, "200 L2 R1"}, step{35, "200 L2 R0"},
		step{36, "429 L2 R0 RA34 RS946684870"},
		step{69.999, "429 L2 R0 RA1 RS946684870"},
		step{70, "200 L2 R0"},
		step{71, "429 L2 R0 RA29 RS946684900"})
}

func TestMiddleware_Cost(t *testing.T) {
	cost := func(r *http.Request) (n uint64) {
		_, err := fmt.Sscan(r.Header.Get("Cost"), &n)
		require.NoError(t, err)
		return n
	}
	b, h := newRolling(t, nil, Policy{Name: "n", Limit: 10, Window: time.Minute, Key: ByIP, Cost: cost})
	of := func(n int) *http.Request { return guest(with("Cost", fmt.Sprint(n))) }
	require.Equal(t, "200 L10 R10", summary(send(h, of(0))), "a look")
	require.Equal(t, "200 L10 R4", summary(send(h, of(6))))
	require.Equal(t, "429 L10 R4 RA66 RS946684866", summary(send(h, of(5))))
	require.Equal(t, "429 L10 R4 RA60 RS946684860", summary(send(h, of(11))), "never, but the window is told")
	require.Equal(t, limiter.ReasonTooCostly, b.events[3].Decision.Reason)
	require.Equal(t, "200 L10 R0", summary(send(h, of(4))))
	require.Equal(t, "200 L10 R0", summary(send(h, of(0))))
}

func TestMiddleware_LimitFunc(t *testing.T) {
	plans := map[string]uint64{"free": 2, "paid": 4, "blocked": 0, "staff": limiter.Unlimited, "huge": 1 << 61}
	b, h := newRolling(t, nil, Policy{
		Name: "n", Window: time.Minute, Key: ByHeader("Plan"),
		LimitFunc: func(r *http.Request) uint64 { return plans[r.Header.Get("Plan")] },
	})
	plan := func(name string) *http.Request { return guest(with("Plan", name)) }
	require.Equal(t, "200 L2 R1", summary(send(h, plan("free"))))
	require.Equal(t, "200 L4 R3", summary(send(h, plan("paid"))))
	require.Equal(t, "429 L0 R0 RA60 RS946684860", summary(send(h, plan("blocked"))))
	require.Equal(t, 200, send(h, plan("huge")).Code)
	events := len(b.events)
	w := send(h, plan("staff"))
	require.Equal(t, "200", summary(w))
	require.Empty(t, w.Header(), "nothing is limited")
	require.Len(t, b.events, events)
}

func TestMiddleware_Unlimited(t *testing.T) {
	_, h := newRolling(t, nil,
		Policy{Name: "all", Limit: limiter.Unlimited, Window: time.Minute, Key: ByIP},
		Policy{Name: "some", Limit: 2, Window: time.Minute, Key: ByIP})
	require.Equal(t, "200 L2 R1", summary(send(h)))
}

func TestMiddleware_TieIsTheFirst(t *testing.T) {
	b, h := newRolling(t, nil,
		Policy{Name: "a", Limit: 2, Window: time.Hour, Key: ByIP},
		Policy{Name: "b", Limit: 2, Window: time.Minute, Key: ByIP})
	send(h)
	require.Equal(t, "a", b.events[0].Policy)
}

func TestMiddleware_Concurrent(t *testing.T) {
	b, h := newRolling(t, nil,
		Policy{Name: "wide", Limit: 50, Window: time.Minute, Key: ByIP},
		Policy{Name: "narrow", Limit: 10, Window: time.Minute, Key: ByIP})
	got := barrier(h, 100, sameGuest)
	require.Equal(t, 10, b.runs)
	for i := range 10 {
		require.Equal(t, fmt.Sprintf("200 L10 R%d", i), got[i])
	}
}

func TestMiddleware_Panics(t *testing.T) {
	panicking := func() { panic("no") }
	for name, change := range map[string]func(*Policy){
		"key":   func(p *Policy) { p.Key = func(Request) string { panicking(); return "" } },
		"cost":  func(p *Policy) { p.Cost = func(*http.Request) uint64 { panicking(); return 1 } },
		"limit": func(p *Policy) { p.Limit, p.LimitFunc = 0, func(*http.Request) uint64 { panicking(); return 1 } },
	} {
		p := Policy{Name: name, Limit: 5, Window: time.Minute, Key: ByIP}
		change(&p)
		b, h := newRolling(t, nil, Policy{Name: "first", Limit: 5, Window: time.Minute, Key: ByIP}, p)
		require.Equal(t, "500", summary(send(h)), name)
		require.Equal(t, []string{"failed " + name}, b.outcomes())
		require.Zero(t, b.runs)

		b, h = newRolling(t, func(c *Config) { c.Shadow = true }, p)
		require.Equal(t, "200", summary(send(h)), "shadow mode denies nothing")
		require.Equal(t, []string{"failed " + name}, b.outcomes())
	}
}

func TestMiddleware_Full(t *testing.T) {
	b, h := newRolling(t, nil,
		Policy{Name: "n", Limit: 5, Window: time.Minute, Key: ByIP, MaxKeys: 1, OnFull: limiter.DenyNew})
	require.Equal(t, 200, send(h, from("192.0.2.1")).Code)
	w := send(h, from("192.0.2.2"))
	require.Equal(t, 429, w.Code)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	require.Equal(t, limiter.ReasonFull, b.events[1].Decision.Reason)
}

func TestMiddleware_Stats(t *testing.T) {
	b, options := newBench(t)
	m, err := New(Config{Options: options, Policies: []Policy{
		{Name: "a", Limit: 5, Window: time.Minute, Key: ByIP},
		{Name: "b", Limit: 5, Window: time.Minute, Key: ByIP},
	}})
	require.NoError(t, err)
	defer m.Close()
	h := m.Handler(b.handler(200))
	send(h, from("192.0.2.1"))
	send(h, from("192.0.2.2"))
	stats := m.Stats()
	require.Len(t, stats, 2)
	require.EqualValues(t, 2, stats["a"].Keys)
	require.EqualValues(t, 2, stats["b"].Keys)
}

func TestMiddleware_CountDenied(t *testing.T) {
	b, options := newBench(t)
	policy := func(name string, window time.Duration, count bool) Policy {
		return Policy{Name: name, Limit: 2, Window: window, Key: ByIP, CountDenied: count}
	}
	for _, policies := range [][]Policy{
		{policy("a", time.Minute, true)},
		{policy("a", time.Minute, true), policy("b", time.Second, true)},
		{policy("b", time.Second, true), policy("a", time.Minute, true)},
		{policy("a", time.Minute, true), policy("b", time.Second, false)},
		{policy("a", time.Minute, false)},
	} {
		m, err := New(Config{Options: options, Policies: policies})
		require.NoError(t, err)
		h := m.Handler(b.handler(200))
		for range 5 {
			send(h)
		}
		want := map[string]uint64{"a": 3} // the longest wait is shown
		if !policies[0].CountDenied {
			want["a"] = 0
		}
		for name, stats := range m.Stats() {
			require.Equal(t, want[name], stats.Denied, "%s of %v", name, policies)
		}
		require.NoError(t, m.Close())
	}
}

func TestOutcome_String(t *testing.T) {
	var all []string
	for o := range Outcome(5) {
		all = append(all, o.String())
	}
	require.Equal(t, []string{"denied", "admitted", "gave back", "failed", "unknown"}, all)
}
