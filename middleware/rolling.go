package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/ringfence-go/ringfence/limiter"
)

// Config says how a [Middleware] works. Policies has no default.
type Config struct {
	Options
	// Policies are the limits that a request has to pass, all of them.
	Policies []Policy
}

// Policy is a limit over a rolling window.
type Policy struct {
	// Name tells the policy from others, in header fields, problem documents and
	// events. It is not empty, and with [IETFDraft11] it is printable ASCII.
	Name string
	// Limit is the number of units allowed in any window: 0 denies everything,
	// [limiter.Unlimited] admits everything. The largest is told by
	// [limiter.Config].
	Limit uint64
	// LimitFunc returns the limit of a request, for plans that differ, in place of
	// Limit. Where it is [limiter.Unlimited] the request is not counted. Limits
	// that are larger than the largest act as that, and those above
	// [limiter.Unlimited], such as a converted -1, are a mistake: status 500.
	LimitFunc func(*http.Request) uint64
	// Window is the length of time that the limit holds over, at least Slots
	// microseconds.
	Window time.Duration
	// Slots is the number of ticks that the window is divided into, 1 to
	// [limiter.MaxSlots]; 0 means [limiter.DefaultSlots]. A unit expires at most one
	// tick late, so that Retry-After and the t of RateLimit can be longer than the
	// window by as much.
	Slots int
	// Key returns what requests are counted by. There is no default: [ByIP] is a
	// good one for guests. One that always returns the same makes one limit for all
	// requests together.
	Key KeyFunc
	// Cost returns the number of units that a request takes; nil means 1. A
	// request that costs 0 passes while the limit is not exceeded, and one that
	// costs more than the limit is always denied: no wait helps it, although its
	// Retry-After says to come back a window later. An Observer can tell by the
	// [limiter.ReasonTooCostly] of the Decision.
	Cost func(*http.Request) uint64
	// MaxKeys is the largest number of keys that are counted at a time; 0 means
	// the default of [limiter.KeyedConfig].
	MaxKeys int
	// OnFull says what becomes of new keys when MaxKeys are in use.
	OnFull limiter.OnFull
	// CountDenied makes [Middleware.Stats] count in Denied the requests that the
	// policy denied. One that several deny counts for the one that is shown. Without
	// it a denial is counted nowhere.
	CountDenied bool
}

// Middleware limits requests over rolling windows: whichever interval of a
// policy's length you look at, it holds no more than the policy's limit. Make one
// with [New]. It is safe for concurrent use.
type Middleware struct {
	engine   *engine
	policies []policy
}

// policy is a Policy at work.
type policy struct {
	Policy
	keyed *limiter.Keyed[string]
}

// New returns a middleware, or an error that matches [limiter.ErrConfig] and
// names everything that is wrong with config.
func New(config Config) (*Middleware, error) {
	e, faults := newEngine(&config.Options)
	m := &Middleware{engine: e}
	if len(config.Policies) == 0 {
		faults = append(faults, errors.New("no Policies are given, want at least one"))
	}
	names := make(map[string]bool)
	for i, p := range config.Policies {
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Errorf("policy %q (Policies[%d]): %w", p.Name, i, fmt.Errorf(format, args...)))
		}
		switch {
		case p.Name == "":
			fault("Name is empty")
		case names[p.Name]:
			fault("Name is that of another policy")
		case e.families&IETFDraft11 != 0 && !printable(p.Name):
			fault("Name is not printable ASCII, which IETFDraft11 needs")
		}
		names[p.Name] = true
		if p.Key == nil {
			fault("Key is nil, want a key function (ByHeader returns nil for a bad name, Join for no parts or a nil one)")
		}
		if p.LimitFunc != nil && p.Limit != 0 {
			fault("Limit is %d and LimitFunc is set, want one of the two", p.Limit)
		}
		keyed, err := limiter.NewKeyed[string](limiter.KeyedConfig{
			Config:  limiter.Config{Limit: p.Limit, Window: p.Window, Slots: p.Slots, Clock: config.Clock, CountDenied: p.CountDenied},
			MaxKeys: p.MaxKeys,
			OnFull:  p.OnFull,
		})
		if err != nil {
			for _, err := range faultsOf(err) {
				fault("%w", err)
			}
			continue
		}
		m.policies = append(m.policies, policy{Policy: p, keyed: keyed})
	}
	if err := configError(faults...); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Close ends what the middleware has started. Decisions go on. Calling it again
// does nothing.
func (m *Middleware) Close() error {
	var faults []error
	for _, p := range m.policies {
		faults = append(faults, p.keyed.Close())
	}
	return errors.Join(faults...)
}

// Stats returns what the limiter of each policy has counted, by name. Denied is
// counted where [Policy].CountDenied is set.
func (m *Middleware) Stats() map[string]limiter.Stats {
	stats := make(map[string]limiter.Stats, len(m.policies))
	for _, p := range m.policies {
		stats[p.Name] = p.keyed.Stats()
	}
	return stats
}

// Handler returns a handler that passes requests on to next, if all policies
// admit them. A request is counted by all of them or by none. If several deny
// it, the one with the longest wait is shown, so that a client that waits as long
// as Retry-After says does not come too early. Handler panics if next is nil.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	mustHandle(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := m.engine
		if e.skip != nil && e.skip(r) {
			next.ServeHTTP(w, r)
			return
		}
		c := newCall()
		if at, err := m.decide(c, r); err != nil {
			e.fail(r, failure{policy: at}, "", err)
			if !e.shadow {
				c.free()
				refuse(w, r, http.StatusInternalServerError, &internalError)
				return
			}
		} else if len(c.verdicts) > 0 && !e.conclude(w, r, c) {
			return
		}
		c.free()
		next.ServeHTTP(w, r)
	})
}

// decide takes what r costs from all policies, or from none. An error is about
// the policy whose name it returns as well.
func (m *Middleware) decide(c *call, r *http.Request) (at string, err error) {
	defer recovered(&err)
	for i := range m.policies {
		p := &m.policies[i]
		at = p.Name
		if err := p.ask(c, Request{r, m.engine}); err != nil {
			return at, err
		}
	}
	switch len(c.verdicts) {
	case 0:
		return "", nil
	case 1:
		v := &c.verdicts[0]
		v.Decision = v.keyed.AttemptLimit(v.key, v.cost, v.Limit)
		if c.denied = -1; !v.Allowed {
			c.denied = 0
		}
	default:
		for i := range c.verdicts {
			v := &c.verdicts[i]
			c.rolling = append(c.rolling, v.keyed.ItemLimit(v.key, v.cost, v.Limit))
			c.decisions = append(c.decisions, limiter.Decision{})
		}
		_, c.denied = limiter.AttemptAllInto(c.decisions, c.rolling...)
		for i := range c.verdicts {
			c.verdicts[i].Decision = c.decisions[i]
		}
	}
	c.choose()
	return "", nil
}

// ask adds to c what the request is to take from p, unless that is unlimited.
func (p *policy) ask(c *call, r Request) error {
	limit, cost := p.Limit, uint64(1)
	if p.LimitFunc != nil {
		limit = p.LimitFunc(r.Request)
	}
	if limit == limiter.Unlimited {
		return nil
	}
	if limit > limiter.Unlimited {
		return fmt.Errorf("the limit is %d, want at most limiter.Unlimited", limit)
	}
	if p.Cost != nil {
		cost = p.Cost(r.Request)
	}
	key := p.Key(r)
	if key == "" {
		r.engine.warn(warnEmptyKey, slog.LevelWarn, "ringfence: the key of a request is empty, all such requests share one limit; if that is meant, return a constant",
			slog.String("policy", p.Name))
	}
	v := c.add()
	v.policy, v.window, v.keyed, v.cost, v.Limit = p.Name, p.Window, p.keyed, cost, limit
	v.key = r.engine.bound(key)
	return nil
}
