package limiter

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The errors of this package, for [errors.Is]. Every error returned by the package matches one of them, or is the error of
// the caller's own context.
var (
	// ErrConfig is matched by every error of a constructor or a setter that was given a value it cannot work with. The
	// error's text names the field and the value.
	ErrConfig = errors.New("ringfence: invalid configuration")

	// ErrLimited says that the limit is used up for now.
	ErrLimited = errors.New("ringfence: limited")

	// ErrCostExceedsLimit says that one request costs more than the limit, so that no wait can admit it.
	ErrCostExceedsLimit = errors.New("ringfence: cost exceeds the limit")

	// ErrFull says that a new key was refused because as many keys as allowed are in use.
	ErrFull = errors.New("ringfence: too many keys in use")

	// ErrClosed says that the limiter was closed.
	ErrClosed = errors.New("ringfence: closed")
)

// LimitedError is the error of a wait that would outlast its context's deadline. It matches both [ErrLimited] and
// [context.DeadlineExceeded].
type LimitedError struct {
	// RetryAfter is the time from the failed call to the earliest moment at which the same request could be admitted. It is
	// positive, and [Never] where no wait helps.
	RetryAfter time.Duration
}

// Error says when a retry can succeed.
func (e *LimitedError) Error() string {
	if e.RetryAfter == Never {
		return "ringfence: limited, and no wait would help"
	}
	return "ringfence: limited, retry after " + e.RetryAfter.String()
}

// Is reports whether target is [ErrLimited] or [context.DeadlineExceeded].
func (e *LimitedError) Is(target error) bool {
	return target == ErrLimited || target == context.DeadlineExceeded
}

// configError joins the faults found in a configuration, if there are any.
func configError(faults []error) error {
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrConfig, errors.Join(faults...))
}
