package limiter

import "time"

// Unlimited is the limit that admits everything and counts nothing. It is an
// explicit value: no conversion of a small negative or of the largest integer
// yields it, and larger values are errors.
const Unlimited uint64 = 1 << 62

// A Reason says why a request was decided as it was.
type Reason uint8

const (
	// ReasonLimited: the limit is used up for now.
	ReasonLimited Reason = iota
	// ReasonAdmitted: the request fits and was counted; after Peek, it would fit.
	ReasonAdmitted
	// ReasonTooCostly: the cost is above the limit, which no wait changes.
	ReasonTooCostly
	// ReasonFull: the key is new and there is no room for its state.
	ReasonFull
	// ReasonUnlimited: there is no limit, nothing was counted.
	ReasonUnlimited
)

// String returns the reason in lower case.
func (r Reason) String() string {
	switch r {
	case ReasonLimited:
		return "limited"
	case ReasonAdmitted:
		return "admitted"
	case ReasonTooCostly:
		return "too costly"
	case ReasonFull:
		return "full"
	case ReasonUnlimited:
		return "unlimited"
	}
	return "unknown"
}

// A Decision is the answer to one request. It is a plain value; the zero value
// denies.
type Decision struct {
	// Allowed reports whether the request may pass.
	Allowed bool
	// Reason says why.
	Reason Reason
	// Limit is the limit that was applied, in units per window.
	Limit uint64
	// Remaining is how many units were left after this request, at the instant
	// of the decision: 0 to Limit. It is [Unlimited] where Limit is.
	Remaining uint64
	// RetryAfter is 0 if the request is allowed. Else it is the time from now to
	// the earliest moment at which the same request passes if nobody else takes
	// the units meanwhile: waiting that long on an otherwise idle limiter always
	// admits. It is [Never] where no wait helps, and one tick where the reason
	// is [ReasonFull], which is an estimate.
	RetryAfter time.Duration
	// ResetAfter is the time from now until everything that is counted has
	// expired, if nothing more is. It is 0 where nothing is counted.
	ResetAfter time.Duration
}
