package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ringfence-go/ringfence/limiter"
)

// OnStoreError says what happens to a request whose limits cannot be looked up.
type OnStoreError uint8

const (
	// AdmitOnError lets the request pass, without rate headers: the service stays
	// up, unlimited, while the store is down.
	AdmitOnError OnStoreError = iota + 1
	// DenyOnError answers with status 503 and Retry-After: 1. It is for routes
	// that must not be open without a limit, such as a login.
	DenyOnError
)

// FixedWindowConfig says how a [FixedWindowLimiter] works. The zero value is
// ready.
type FixedWindowConfig struct {
	Options
	// Store counts the attempts; nil means a [limiter.MemoryStore] of the
	// limiter's own. In a MemoryStore a max above 16,777,215 acts as that, and is
	// shown as that. A [limiter.MultiStore] decides several limits of a request
	// all or nothing. A plain one is asked about one limit after the other, up to
	// the first that denies, and what it has counted by then stays counted. So is
	// a [limiter.ErrorStore].
	Store limiter.Store
	// OnStoreError is required if Store is a [limiter.ErrorStore].
	OnStoreError OnStoreError
	// Principal returns the id of the user that a request was authenticated as,
	// and false, or "", for a guest. Inline throttles count users by id instead
	// of by address. Nil means that all are guests.
	Principal func(*http.Request) (id string, ok bool)
}

// FixedWindowLimiter limits requests in fixed windows that begin with the first
// request counted, in the way of Laravel's throttle middleware. Make one with
// [NewFixedWindowLimiter], register named limiters, and attach them or inline
// throttles with [FixedWindowLimiter.Middleware]. It is safe for concurrent use.
//
// A window admits at most its limit, exactly, however many requests come at
// once; two windows on end admit up to twice that within the length of one. [New]
// has rolling windows, which do not.
type FixedWindowLimiter struct {
	engine    *engine
	store     limiter.Store
	multi     limiter.MultiStore // store, if it can do that
	fallible  limiter.ErrorStore // likewise
	most      uint64             // the largest max that store holds to
	onError   OnStoreError
	principal func(*http.Request) (string, bool)
	own       *limiter.MemoryStore

	mu       sync.Mutex
	named    map[string]func(*http.Request) Limits
	attached bool
}

// NewFixedWindowLimiter returns a limiter, or an error that matches
// [limiter.ErrConfig] and names everything that is wrong with config.
func NewFixedWindowLimiter(config FixedWindowConfig) (*FixedWindowLimiter, error) {
	e, faults := newEngine(&config.Options)
	f := &FixedWindowLimiter{
		engine:    e,
		store:     config.Store,
		onError:   config.OnStoreError,
		most:      maxMax,
		principal: config.Principal,
		named:     make(map[string]func(*http.Request) Limits),
	}
	if f.onError > DenyOnError {
		faults = append(faults, fmt.Errorf("OnStoreError is %d, want AdmitOnError or DenyOnError", f.onError))
	}
	if v := reflect.ValueOf(f.store); v.Kind() == reflect.Pointer && v.IsNil() {
		faults = append(faults, fmt.Errorf("Store is a nil %T", f.store))
	}
	if fallible, ok := f.store.(limiter.ErrorStore); ok {
		f.fallible = fallible
		if f.onError == 0 {
			faults = append(faults, errors.New("OnStoreError is not set, but Store can fail (it has AttemptContext): "+
				"choose AdmitOnError, open while the store is down, or DenyOnError, closed"))
		}
	} else {
		f.multi, _ = f.store.(limiter.MultiStore)
	}
	if f.store == nil {
		own, err := limiter.NewMemoryStore(limiter.MemoryStoreConfig{Clock: config.Clock})
		faults = append(faults, faultsOf(err)...)
		f.store, f.multi, f.own = own, own, own
	}
	if err := configError(faults...); err != nil {
		f.Close()
		return nil, err
	}
	if _, ok := f.store.(*limiter.MemoryStore); ok {
		f.most = memoryMax
	}
	return f, nil
}

// Close ends what the limiter itself has started: its own store, not one that it
// was given. Decisions go on. Calling it again does nothing.
func (f *FixedWindowLimiter) Close() error {
	if f.own == nil {
		return nil
	}
	return f.own.Close()
}

// Named registers a limiter under a name: limits is called with each request and
// returns the limits to apply. All names have to be registered before the first
// call of [FixedWindowLimiter.Middleware], for a name could look like an inline
// throttle. A name is not empty and has no comma; with [IETFDraft11] it is
// printable ASCII. Where limits panics, or returns limits with a mistake, the
// request is answered with status 500.
//
// If the store cannot give back, limits is called once right away, with an empty
// GET request for "/" from 192.0.2.1, to see whether it uses [Limits.After]; what
// else is wrong with its answer is ignored. If it uses After on a later request
// only, that one is answered with status 500.
func (f *FixedWindowLimiter) Named(name string, limits func(*http.Request) Limits) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if name == "" {
		fault("the name of a limiter is empty")
	}
	if strings.Contains(name, ",") {
		fault("limiter %q has a comma in its name", name)
	}
	if f.engine.families&IETFDraft11 != 0 && !printable(name) {
		fault("limiter %q has a name that is not printable ASCII, which IETFDraft11 needs", name)
	}
	if f.named[name] != nil {
		fault("limiter %q is registered already", name)
	}
	if f.attached {
		fault("limiter %q is registered too late, after the first call of Middleware", name)
	}
	if limits == nil {
		fault("limiter %q has no function", name)
	} else if f.multi == nil && usesAfter(limits) {
		fault("limiter %q: %w", name, errCannotGiveBack)
	}
	if err := configError(faults...); err != nil {
		return err
	}
	f.named[name] = limits
	return nil
}

var errCannotGiveBack = errors.New("After needs a store that can give back (a limiter.MultiStore)")

// usesAfter reports whether limits returns a limit with After for an empty
// request. It may panic, for it may need more of a request than there is.
func usesAfter(limits func(*http.Request) Limits) (uses bool) {
	defer func() { recover() }()
	r, err := http.NewRequest(http.MethodGet, "/", nil)
	if err != nil {
		return false
	}
	r.RemoteAddr = "192.0.2.1:1" // of nobody (RFC 5737): a peer without an address is worth a warning
	list := limits(r)
	for i := range list.len() {
		uses = uses || list.at(i).after != nil
	}
	return uses
}

// Middleware returns the middleware for spec: the name of a limiter that was
// registered with [FixedWindowLimiter.Named], or an inline throttle
//
//	max,minutes,prefix
//
// of which the end or all may be left out: the empty spec is 60,1. The minutes
// may have a fraction, and max can be two numbers for guests and users, as in
// "60|120,0.5". Anything else is an error that matches [limiter.ErrConfig]. The
// middleware panics if the handler that it is given is nil.
//
// An inline throttle counts a user by id and a guest by address, and by nothing
// else: all inline throttles share one counter for each client unless they have
// different prefixes. Two around one handler count two. The same is true of a
// named limiter that a request passes twice.
func (f *FixedWindowLimiter) Middleware(spec string) (func(http.Handler) http.Handler, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attached = true
	rule, err := f.rule(spec)
	if err != nil {
		return nil, configError(err)
	}
	return func(next http.Handler) http.Handler {
		mustHandle(next)
		return &fixedHandler{f: f, rule: rule, next: next}
	}, nil
}

// MustMiddleware is [FixedWindowLimiter.Middleware] for specs that are known to
// be right: it panics if spec is not.
func (f *FixedWindowLimiter) MustMiddleware(spec string) func(http.Handler) http.Handler {
	m, err := f.Middleware(spec)
	if err != nil {
		panic(err)
	}
	return m
}

// rule is where a middleware gets its limits from.
type rule interface {
	// name returns what the rule is called in events.
	name() string
	// fill adds the limits of a request to c. It returns a handler that is to
	// answer instead, if there is one, or what is wrong.
	fill(c *call, r *http.Request) (http.Handler, error)
}

func (f *FixedWindowLimiter) rule(spec string) (rule, error) {
	if limits := f.named[spec]; limits != nil {
		return newNamedRule(f, spec, limits), nil
	}
	t, err := parseThrottle(spec)
	if err != nil {
		return nil, err
	}
	rule := &inlineRule{f: f, throttle: t, label: "inline"}
	if t.split && f.principal == nil {
		return nil, fmt.Errorf("throttle %q has a limit for users, but there is no Principal", spec)
	}
	if t.prefix != "" {
		if f.engine.families&IETFDraft11 != 0 && !printable(t.prefix) {
			return nil, fmt.Errorf("throttle %q has a prefix that is not printable ASCII, which IETFDraft11 needs", spec)
		}
		rule.label = t.prefix
		rule.prefix = string(append(appendPart([]byte("p:"), t.prefix), '|'))
	}
	return rule, nil
}

// inlineRule is an inline throttle.
type inlineRule struct {
	f *FixedWindowLimiter
	throttle
	label  string
	prefix string // of keys
}

func (i *inlineRule) name() string { return i.label }

func (i *inlineRule) fill(c *call, r *http.Request) (_ http.Handler, err error) {
	defer recovered(&err)
	v := c.add()
	v.policy, v.window, v.Limit = i.label, i.window, uint64(i.guest)
	key := append(make([]byte, 0, maxKey), i.prefix...)
	if id := i.f.user(r); id != "" {
		v.Limit = uint64(i.user)
		key = append(append(key, userMark...), id...)
	} else {
		key = i.f.engine.appendClient(append(key, "inline:domainless|"...), r)
	}
	v.key = i.f.engine.bound(string(key))
	return nil, nil
}

// userMark begins what stands for a user in keys.
const userMark = "u:"

// user returns the id of the user that r was authenticated as, "" for a guest.
func (f *FixedWindowLimiter) user(r *http.Request) string {
	if f.principal != nil {
		if id, ok := f.principal(r); ok {
			return id
		}
	}
	return ""
}

// ClientKey returns the address of r's client as the limiter's options find and
// mask it, for [Limits.By].
func (f *FixedWindowLimiter) ClientKey(r *http.Request) string {
	return Request{r, f.engine}.ClientKey()
}

// CallerKey returns a key for [Limits.By] that stands for whoever sent r: the
// user, or for a guest the address. No user id yields an address's key.
func (f *FixedWindowLimiter) CallerKey(r *http.Request) string {
	if id := f.user(r); id != "" {
		return userMark + id
	}
	return f.ClientKey(r)
}

// namedRule is a named limiter.
type namedRule struct {
	f      *FixedWindowLimiter
	label  string
	limits func(*http.Request) Limits

	policies [4]string // names that were made before
}

func newNamedRule(f *FixedWindowLimiter, name string, limits func(*http.Request) Limits) *namedRule {
	n := &namedRule{f: f, label: name, limits: limits}
	n.policies[0] = name
	for i := 1; i < len(n.policies); i++ {
		n.policies[i] = name + "-" + strconv.Itoa(i+1)
	}
	return n
}

func (n *namedRule) name() string { return n.label }

func (n *namedRule) fill(c *call, r *http.Request) (_ http.Handler, err error) {
	defer recovered(&err)
	list := n.limits(r)
	if err := list.check(); err != nil {
		return nil, err
	}
	if list.kind != kindLimits {
		return list.reply, nil
	}
	for i := range list.len() {
		l := list.at(i)
		if l.unlimited {
			continue
		}
		if l.after != nil && n.f.multi == nil {
			return nil, errCannotGiveBack
		}
		v := c.add()
		v.policy, v.window, v.Limit, v.after, v.denial = n.policy(i), l.window, uint64(l.max), l.after, l.denial
		v.key = n.f.engine.bound(n.key(i, l.by))
	}
	return nil, nil
}

// policy returns the name of the limit in place i of the list.
func (n *namedRule) policy(i int) string {
	if i < len(n.policies) {
		return n.policies[i]
	}
	return n.label + "-" + strconv.Itoa(i+1)
}

// key returns the key of the limit in place i of the list.
func (n *namedRule) key(i int, by string) string {
	key := append(make([]byte, 0, maxKey), "n:"...)
	key = appendPart(key, n.label)
	key = appendPart(key, strconv.Itoa(i))
	return string(appendPart(key, by))
}

// fixedHandler is a middleware around a handler.
type fixedHandler struct {
	f    *FixedWindowLimiter
	rule rule
	next http.Handler
}

// ServeHTTP decides the request, and runs the handler if it is admitted.
func (h *fixedHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := h.f.engine
	if e.skip != nil && e.skip(r) {
		h.next.ServeHTTP(w, r)
		return
	}
	c := newCall()
	reply, err := h.rule.fill(c, r)
	switch {
	case err != nil:
		e.fail(r, failure{policy: h.rule.name()}, "", err)
		if !e.shadow {
			c.free()
			refuse(w, r, http.StatusInternalServerError, &internalError)
			return
		}
	case reply != nil:
		if !e.shadow {
			c.free()
			reply.ServeHTTP(w, r)
			return
		}
	case len(c.verdicts) > 0:
		if err := h.f.decide(c, r); err != nil {
			last := &c.verdicts[len(c.verdicts)-1]
			e.fail(r, failure{policy: last.policy, store: true}, last.key, err)
			if h.f.onError == DenyOnError && !e.shadow {
				c.free()
				w.Header()[retryAfter] = []string{"1"}
				refuse(w, r, http.StatusServiceUnavailable, &unavailable)
				return
			}
			break
		}
		if !e.conclude(w, r, c) {
			return
		}
		if c.denied < 0 && c.refundable() {
			newAfterWriter(w, r, e, h.f.multi, c).serve(h.next)
			return
		}
	}
	c.free()
	h.next.ServeHTTP(w, r)
}

// decide asks the store about all limits of c, and leaves only those in c that
// it was asked about. An error is about the last of them.
func (f *FixedWindowLimiter) decide(c *call, r *http.Request) error {
	for i := range c.verdicts {
		c.verdicts[i].Limit = min(c.verdicts[i].Limit, f.most)
	}
	if f.multi != nil && (len(c.verdicts) > 1 || c.verdicts[0].after != nil) {
		c.attemptMany(f.multi)
		return nil
	}
	c.denied = -1
	for i := range c.verdicts {
		v := &c.verdicts[i]
		var allowed bool
		var attempts int
		var rest time.Duration
		var err error
		if f.fallible != nil {
			allowed, attempts, rest, err = f.fallible.AttemptContext(r.Context(), v.key, int(v.Limit), v.window)
		} else {
			allowed, attempts, rest = f.store.Attempt(v.key, int(v.Limit), v.window)
		}
		if err != nil {
			c.verdicts = c.verdicts[:i+1]
			return err
		}
		v.settle(allowed, attempts, rest)
		if !allowed {
			c.verdicts, c.denied = c.verdicts[:i+1], i
			break
		}
	}
	c.choose()
	return nil
}
