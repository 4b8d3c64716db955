// Package peers puts other rate limiters into the table of
// [github.com/ringfence-go/ringfence/benchmarks], to be measured beside
// ringfence and the mutex limiters in the same run. It is a module of its own,
// so that nobody who imports ringfence downloads them.
//
// Each is set up the way its own documentation recommends for a limit per
// window: token buckets get a burst of the limit and a rate of limit per window.
// What differs from that is said beside its adapter.
//
//	golang.org/x/time/rate          token bucket; keyed by two common idioms,
//	                                a sync.Map and a map under a mutex
//	go.uber.org/ratelimit           leaky bucket that waits; without keys
//	sethvargo/go-limiter            fixed window, keyed
//	ulule/limiter                   fixed window, keyed
//	throttled/throttled             GCRA, keyed, least recently used keys evicted
//	didip/tollbooth                 token bucket, keyed
//	go-chi/httprate                 sliding window estimate, keyed by a hash
//	RussellLuo/slidingwindow        sliding window estimate; without keys
//	juju/ratelimit                  token bucket; without keys
//
// Not measured, because they could not be downloaded where the results were
// made: clipperhouse/rate, webriots/rate, tollbooth v8.
package peers
