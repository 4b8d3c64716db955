package limiter

// Stats counts what a limiter has seen since it was made. The fields are read
// one after the other, not at one instant.
type Stats struct {
	// Keys is the number of keys that have a state of their own now; 0 for a
	// Limiter.
	Keys uint64
	// Retired is the number of idle keys removed so far.
	Retired uint64
	// Forced is the number of decisions on new keys that OnFull settled because
	// MaxKeys was reached.
	Forced uint64
	// Late is the number of decisions whose reading of the clock was older than
	// the epoch they were decided in. A few at the turn of a tick are normal.
	Late uint64
	// Backward is the number of those that were late by more than one tick. A
	// goroutine that lost the processor for that long causes it, and so does a
	// clock that stepped back. While it grows the limiter is too strict.
	Backward uint64
	// Admitted is the number of units admitted, in sub-windows that have closed:
	// it lags by what is counted in the open ones. The first decision after a
	// sub-window closes it, or the sweep that removes the key, so that the last
	// units before a pause are missing until it ends. Refunded units are not in it.
	Admitted uint64
	// Denied is the number of requests denied, if Config.CountDenied is set: waits
	// that failed are among them, and an AttemptAll counts once, at the limit that
	// it names.
	Denied uint64
	// Starved is what [CoarseClock.Starved] says of the limiter's clock, so of all
	// that the clock is given to; 0 with another clock.
	Starved uint64
	// Undeposited is the number of units that were charged in advance for one
	// processor and expired without having been given out: too strict by as
	// much. It is 0 for a Keyed.
	Undeposited uint64
}
