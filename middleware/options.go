package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringfence-go/ringfence/limiter"
)

// Options are what [FixedWindowConfig] and [Config] have in common. The zero
// value is ready: no header about addresses is believed, the X-RateLimit-*
// fields are sent, and denials are answered in plain text or JSON.
type Options struct {
	// Trusted are the addresses of the proxies in front of this server. Header is
	// read only where the peer is one of them, and only up to the first hop that
	// is none, see [ClientIP]. A prefix that contains every address is refused.
	Trusted []netip.Prefix
	// Hops is another way to say it, for networks in which only proxies can reach
	// the server, at addresses that are not known: the client is the Hops-th
	// element of Header from the right, 1 to 32. A request with fewer elements,
	// or with one among them that is no address, counts as the peer's. It cannot
	// be combined with Trusted.
	Hops int
	// Header is the one header that names the client: "X-Forwarded-For" if empty,
	// "Forwarded" (RFC 7239), or one that holds a single address, such as
	// "X-Real-IP" or "CF-Connecting-IP"; the error for another one lists them.
	// Take care that the proxies overwrite a single value: True-Client-IP,
	// Fastly-Client-IP and X-Azure-ClientIP are passed on as the client sent them
	// unless their vendors' networks are told otherwise.
	Header string
	// TrustUnixSocket says that peers without an address, which come through a
	// unix socket, are trusted proxies. Without it they all share the key
	// [NoAddress].
	TrustUnixSocket bool
	// IPv4Prefix and IPv6Prefix are the number of leading bits of an address that
	// make one client: 1 to 32, and 32 if 0; 1 to 128, and 64 if 0. Loopback and
	// link-local addresses and those of 64:ff9b::/96 are taken whole.
	IPv4Prefix, IPv6Prefix int

	// Families are the header fields about limits to send; 0 means [Legacy].
	Families Families
	// Body is the kind of body that a denial has; the zero value is [PlainBody].
	Body Body
	// OnDenied answers denied requests in place of the body. Rate headers,
	// Retry-After and Cache-Control are set when it runs, and it may change them.
	// It has to write a status: as in any handler, none means 200.
	OnDenied http.Handler
	// Observer is told of every decision, see [Event]. It is called on the
	// request's goroutine before the handler runs, so it has to be quick, safe
	// for concurrent use, and must not panic.
	Observer func(Event)
	// Logger receives what an operator should know: misconfigured proxies once
	// each, and failures, if there is no Observer, once for each policy and kind
	// (limits that are wrong, a store that fails). Nil means [slog.Default].
	Logger *slog.Logger
	// Skip reports whether a request passes without being counted. Nothing is
	// looked up, reported or set for it. See [IsPreflight].
	Skip func(*http.Request) bool
	// Shadow counts and reports, but denies nothing and sets no header.
	Shadow bool
	// Clock is the clock of the limiters that the middleware makes itself; nil
	// means [limiter.SystemClock].
	Clock limiter.Clock
	// Now tells the wall clock time, which X-RateLimit-Reset is made from, whatever
	// the Clock; nil means [time.Now].
	Now func() time.Time
}

// IsPreflight reports whether r is the question that a browser asks before it
// sends a request to another origin (a CORS preflight): OPTIONS with an Origin
// and an Access-Control-Request-Method. It is a ready [Options].Skip. A preflight
// that is denied hides the denial of the request proper from scripts.
func IsPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions &&
		r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// engine is an Options at work: all that the two entrances share.
type engine struct {
	source
	grouping
	hasher

	families Families
	body     Body
	onDenied http.Handler
	observer func(Event)
	logger   *slog.Logger
	skip     func(*http.Request) bool
	shadow   bool
	now      func() time.Time

	warned [warnings]atomic.Bool
	failed sync.Map // set of failure, those that were logged
}

// newEngine validates the options and puts them to work.
func newEngine(o *Options) (*engine, []error) {
	e := &engine{
		hasher:   newHasher(),
		families: o.Families,
		body:     o.Body,
		onDenied: o.OnDenied,
		observer: o.Observer,
		logger:   o.Logger,
		skip:     o.Skip,
		shadow:   o.Shadow,
		now:      o.Now,
	}
	var sourceFaults, groupingFaults []error
	e.source, sourceFaults = newSource(o)
	e.grouping, groupingFaults = newGrouping(o)
	faults := append(sourceFaults, groupingFaults...)
	if e.families == 0 {
		e.families = Legacy
	}
	if err := e.families.validate(); err != nil {
		faults = append(faults, err)
	}
	if o.Body > ProblemJSON {
		faults = append(faults, fmt.Errorf("Body is %d, want PlainBody or ProblemJSON", o.Body))
	}
	if o.OnDenied != nil && isNil(o.OnDenied) {
		faults = append(faults, errors.New("OnDenied is a nil http.HandlerFunc"))
	}
	if e.now == nil {
		e.now = time.Now
	}
	return e, faults
}

// isNil reports whether a handler is nil, or a function that is: what net/http
// refuses to register.
func isNil(h http.Handler) bool {
	f, ok := h.(http.HandlerFunc)
	return h == nil || ok && f == nil
}

// mustHandle panics if there is no handler to limit.
func mustHandle(next http.Handler) {
	if isNil(next) {
		panic("ringfence: the handler to limit is nil")
	}
}

// A warning is something that is logged once.
type warning int

const (
	warnNoAddress warning = iota
	warnUntrusted
	warnNoPattern
	warnEmptyKey
	warnings
)

// warn logs a warning unless it was logged before.
func (e *engine) warn(w warning, level slog.Level, text string, args ...any) {
	if e.warned[w].Load() || e.warned[w].Swap(true) {
		return
	}
	e.log(level, text, args...)
}

func (e *engine) log(level slog.Level, text string, args ...any) {
	logger := e.logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.Log(context.Background(), level, text, args...)
}

// configError joins the faults found in a configuration, if there are any.
func configError(faults ...error) error {
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("%w: %w", limiter.ErrConfig, err)
	}
	return nil
}

// faultsOf returns the faults that an error of package limiter's constructors
// joins, without what all of them match.
func faultsOf(err error) (faults []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case ok:
		for _, err := range joined.Unwrap() {
			faults = append(faults, faultsOf(err)...)
		}
	case err != nil && err != limiter.ErrConfig:
		faults = append(faults, err)
	}
	return faults
}
