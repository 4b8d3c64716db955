package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringfence-go/ringfence/limiter"
)

// The examples use a manual clock, so that they always print the same. Leave
// Clock out for the system clock.

// One limit for everything: at most three units in any second.
func ExampleLimiter() {
	clock := limiter.NewManualClock()
	l, err := limiter.New(limiter.Config{Limit: 3, Window: time.Second, Clock: clock})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 4 {
		fmt.Println(l.Allow())
	}
	clock.Advance(1100 * time.Millisecond) // the window and a tick, which is a tenth of it
	fmt.Println(l.Allow())
	// Output:
	// true
	// true
	// true
	// false
	// true
}

// How much is left, and when to come back.
func ExampleLimiter_Attempt() {
	l, err := limiter.New(limiter.Config{Limit: 2, Window: time.Minute, Clock: limiter.NewManualClock()})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		d := l.Attempt(1)
		fmt.Println(d.Allowed, d.Reason, d.Remaining, "of", d.Limit, d.RetryAfter)
	}
	// Output:
	// true admitted 1 of 2 0s
	// true admitted 0 of 2 0s
	// false limited 0 of 2 1m6s
}

// A limit for each client, here by address.
func ExampleKeyed() {
	clients, err := limiter.NewKeyed[string](limiter.KeyedConfig{
		Config:  limiter.Config{Limit: 1, Window: time.Minute, Clock: limiter.NewManualClock()},
		MaxKeys: 100_000, // bounds the memory
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer clients.Close()
	fmt.Println(clients.Allow("192.0.2.1"))
	fmt.Println(clients.Allow("192.0.2.1"))
	fmt.Println(clients.Allow("198.51.100.7"))
	fmt.Println(clients.Len(), "clients")
	// Output:
	// true
	// false
	// true
	// 2 clients
}

// A limit that depends on the client's plan. What a client has used counts when
// its plan changes.
func ExampleKeyed_AttemptLimit() {
	plans := map[string]uint64{"free": 2, "paid": 100, "staff": limiter.Unlimited}
	clients, err := limiter.NewKeyed[string](limiter.KeyedConfig{
		Config: limiter.Config{Limit: 2, Window: time.Minute, Clock: limiter.NewManualClock()},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer clients.Close()
	for _, plan := range []string{"free", "free", "free", "paid", "staff"} {
		d := clients.AttemptLimit("alice", 1, plans[plan])
		fmt.Println(plan, d.Allowed, d.Reason)
	}
	// Output:
	// free true admitted
	// free true admitted
	// free false limited
	// paid true admitted
	// staff true unlimited
}

// Requests that cost more than others: here, as much as they have megabytes.
func ExampleLimiter_AllowN() {
	l, err := limiter.New(limiter.Config{Limit: 100, Window: time.Minute, Clock: limiter.NewManualClock()})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, megabytes := range []uint64{60, 60, 40, 101} {
		d := l.Attempt(megabytes)
		fmt.Println(megabytes, d.Allowed, d.Reason, d.Remaining)
	}
	// Output:
	// 60 true admitted 40
	// 60 false limited 40
	// 40 true admitted 0
	// 101 false too costly 0
}

// Several limits at once: all are charged, or none is.
func ExampleAttemptAll() {
	clock := limiter.NewManualClock()
	total, err := limiter.New(limiter.Config{Limit: 10, Window: time.Second, Clock: clock})
	if err != nil {
		fmt.Println(err)
		return
	}
	clients, err := limiter.NewKeyed[string](limiter.KeyedConfig{
		Config: limiter.Config{Limit: 1, Window: time.Hour, Clock: clock},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer clients.Close()
	for range 2 {
		d, denier := limiter.AttemptAll(total.Item(1), clients.Item("alice", 1))
		fmt.Println(d.Allowed, denier, d.RetryAfter)
	}
	fmt.Println(total.Peek(1).Remaining, "left of the total")
	// Output:
	// true -1 0s
	// false 1 1h6m0s
	// 9 left of the total
}

// Waiting until a unit is there, for as long as the context lasts.
func ExampleLimiter_Wait() {
	l, err := limiter.New(limiter.Config{Limit: 5, Window: 50 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range 12 {
		if err := l.Wait(context.Background()); err != nil {
			fmt.Println(err)
			return
		}
		if i == 11 {
			fmt.Println("12 units, in more than two windows")
		}
	}
	// Output:
	// 12 units, in more than two windows
}

// A wait that the context's deadline would cut short fails at once.
func ExampleLimitedError() {
	l, err := limiter.New(limiter.Config{Limit: 1, Window: time.Hour, Clock: limiter.NewManualClock()})
	if err != nil {
		fmt.Println(err)
		return
	}
	l.Allow()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = l.Wait(ctx)
	var limited *limiter.LimitedError
	if errors.As(err, &limited) {
		fmt.Println(limited.RetryAfter)
	}
	fmt.Println(errors.Is(err, limiter.ErrLimited), errors.Is(err, context.DeadlineExceeded))
	// Output:
	// 1h6m0s
	// true true
}

// Changing a limit while it is in use. What was used stays used.
func ExampleLimiter_SetLimit() {
	l, err := limiter.New(limiter.Config{Limit: 10, Window: time.Minute, Clock: limiter.NewManualClock()})
	if err != nil {
		fmt.Println(err)
		return
	}
	l.AllowN(7)
	for _, limit := range []uint64{10, 2, 20} {
		if err := l.SetLimit(limit); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(limit, l.Peek(1).Allowed, l.Peek(1).Remaining)
	}
	// Output:
	// 10 true 3
	// 2 false 0
	// 20 true 13
}

// A mailer is code that uses a limiter, and takes its clock from outside.
type mailer struct{ limit *limiter.Limiter }

func newMailer(clock limiter.Clock) (*mailer, error) {
	l, err := limiter.New(limiter.Config{Limit: 1, Window: time.Hour, Clock: clock})
	return &mailer{l}, err
}

func (m *mailer) send(to string) string {
	if d := m.limit.Attempt(1); !d.Allowed {
		return "try again in " + d.RetryAfter.String()
	}
	return "sent to " + to
}

// Testing code that uses a limiter, without sleeping.
func ExampleManualClock() {
	clock := limiter.NewManualClock()
	m, err := newMailer(clock)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.send("alice"))
	fmt.Println(m.send("bob"))
	clock.Advance(66 * time.Minute)
	fmt.Println(m.send("bob"))
	// Output:
	// sent to alice
	// try again in 1h6m0s
	// sent to bob
}

// A fixed window for each key, that begins with its first attempt.
func ExampleMemoryStore() {
	clock := limiter.NewManualClock()
	s, err := limiter.NewMemoryStore(limiter.MemoryStoreConfig{Clock: clock})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	for range 3 {
		fmt.Println(s.Attempt("login:alice", 2, time.Minute))
		clock.Advance(10 * time.Second)
	}
	// Output:
	// true 1 1m0s
	// true 2 50s
	// false 2 40s
}

// Giving back what was taken: here, attempts that turned out well do not count.
func ExampleMemoryStore_Refund() {
	s, err := limiter.NewMemoryStore(limiter.MemoryStoreConfig{Clock: limiter.NewManualClock()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	items := []limiter.StoreItem{
		{Key: "address:192.0.2.1", Max: 100, Decay: time.Hour},
		{Key: "account:alice", Max: 5, Decay: time.Minute},
	}
	results := make([]limiter.StoreResult, len(items))
	for _, password := range []string{"wrong", "right", "wrong"} {
		if s.AttemptMany(items, results) >= 0 {
			fmt.Println("too many attempts")
			return
		}
		fmt.Println(password, results[1].Attempts)
		if password == "right" {
			for _, r := range results {
				s.Refund(&r.Charge)
			}
		}
	}
	// Output:
	// wrong 1
	// right 2
	// wrong 2
}
