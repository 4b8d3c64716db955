package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/ringfence-go/ringfence/limiter"
)

// Outcome says what became of a request.
type Outcome uint8

const (
	// Denied: a limit is used up. Nothing was counted, except by a plain store in
	// the limits before that one.
	Denied Outcome = iota
	// Admitted: all limits have counted the request.
	Admitted
	// GaveBack: one limit's unit was given back after the response, see
	// [Limits.After]. It follows the Admitted of the same request.
	GaveBack
	// Failed: there is no decision, see Event.Err.
	Failed
)

// String returns the outcome in lower case.
func (o Outcome) String() string {
	switch o {
	case Denied:
		return "denied"
	case Admitted:
		return "admitted"
	case GaveBack:
		return "gave back"
	case Failed:
		return "failed"
	}
	return "unknown"
}

// Event is what [Options].Observer is told: one for each request that is decided
// or cannot be, and one for each unit given back.
type Event struct {
	// Request is the one that was decided, as the middleware got it.
	Request *http.Request
	// Outcome is what became of it.
	Outcome Outcome
	// Policy is the name of the limit that decided: that of the [Policy], of the
	// named limiter (followed by "-2", "-3" and so on for further limits of its
	// list), or of an inline throttle its prefix, "inline" without one. Of several
	// limits it is the one that the header fields show.
	Policy string
	// Key is the key that the limit counted under, at most 128 bytes. It tells
	// users and addresses, so mind where it is logged.
	Key string
	// Decision is what the limit decided. After Failed it means nothing.
	Decision limiter.Decision
	// Shadow says that the decision was without effect.
	Shadow bool
	// Err is why a request Failed: the error of the store, what is wrong with the
	// limits, or a [*PanicError].
	Err error
}

// PanicError is a panic of a function that is called to decide a request, such
// as a named limiter or a key function. The request was answered with status 500.
type PanicError struct {
	Value any    // what panic was called with
	Stack []byte // of the goroutine, as [debug.Stack] returns it
}

// Error returns the value of the panic.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value of the panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// recovered makes a panic that is under way an error. It must be deferred itself.
// A handler's wish to abort the connection is respected.
func recovered(err *error) {
	switch v := recover(); v {
	case nil:
	case http.ErrAbortHandler:
		panic(v)
	default:
		*err = &PanicError{Value: v, Stack: debug.Stack()}
	}
}

// report tells the observer what was decided by v.
func (e *engine) report(r *http.Request, outcome Outcome, v *verdict) {
	if e.observer != nil {
		e.observer(Event{
			Request: r, Outcome: outcome, Policy: v.policy, Key: v.key, Decision: v.Decision, Shadow: e.shadow,
		})
	}
}

// A failure is a reason why requests cannot be decided, in one policy. Each is
// logged once: that of one policy must not hide that of another.
type failure struct {
	policy string
	store  bool // the store failed; else the limits are wrong
}

// fail tells the observer, or else the log, that there is no decision. The client
// never learns why.
func (e *engine) fail(r *http.Request, f failure, key string, err error) {
	if e.observer != nil {
		e.observer(Event{Request: r, Outcome: Failed, Policy: f.policy, Key: key, Shadow: e.shadow, Err: err})
		return
	}
	if _, logged := e.failed.LoadOrStore(f, nil); logged {
		return
	}
	args := []any{slog.String("policy", f.policy), slog.Any("error", err)}
	if p := (*PanicError)(nil); errors.As(err, &p) {
		args = append(args, slog.String("stack", string(p.Stack)))
	}
	e.log(slog.LevelError, "ringfence: a request could not be decided; set an Observer to hear of all such requests", args...)
}
