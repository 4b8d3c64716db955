// Package middleware limits HTTP requests: net/http middlewares on top of
// package limiter, for any router that takes a func(http.Handler) http.Handler.
//
// There are two entrances. [New] counts over rolling windows: no interval of the
// window's length ever holds more than the limit.
//
//	m, err := middleware.New(middleware.Config{
//		Policies: []middleware.Policy{
//			{Name: "api", Limit: 100, Window: time.Minute, Key: middleware.ByIP},
//		},
//	})
//	if err != nil {
//		log.Fatal(err)
//	}
//	mux := http.NewServeMux()
//	log.Fatal(http.ListenAndServe(":8080", m.Handler(mux)))
//
// [NewFixedWindowLimiter] counts in fixed windows that begin with the first
// request, as Laravel's throttle middleware does, with its named limiters and its
// short texts for inline ones.
//
//	f, err := middleware.NewFixedWindowLimiter(middleware.FixedWindowConfig{})
//	if err != nil {
//		log.Fatal(err)
//	}
//	search := http.NotFoundHandler()
//	http.Handle("/search", f.MustMiddleware("60,1")(search)) // 60 in 1 minute
//
// For limits on anything else, such as the messages inside of one websocket, of
// which a middleware sees the handshake only, use package limiter itself.
//
// # Order
//
// A middleware that rejects requests on its own, by a signature or a password,
// belongs inside of the limiter, or else guesses are free. One that
// authenticates, and whose result the keys are made of, belongs outside. CORS
// belongs outside, so that scripts can read a denial; see [IsPreflight] and
// [ExposedHeaders].
//
// # Guarantees
//
// A request is decided by one atomic attempt on each of its limits, which also
// gives the header fields. Nothing reads a count first and adds to it later, so
// requests that come at the same instant cannot all pass. With New, and with
// FixedWindowLimiter on a [limiter.MultiStore] such as the default, a request is
// counted by all of its limits or by none: one that is denied costs nothing and
// extends nothing. On a plain [limiter.Store] the limits before the one that
// denies have counted it.
//
// Nothing that a client controls selects what it is counted under, unless a key
// function says so: not the Host, not the path or the method, not a header about
// addresses, except where a trusted proxy has written it (see [ClientIP]). A key
// longer than 128 bytes is stored as a hash of it with a secret seed.
//
// A mistake is an error when something is made, never a limiter that does
// nothing. What shows only with a request, such as a named limiter that panics,
// is answered with status 500 and reported to the [Options].Observer.
//
// The ResponseWriter is passed on as it is, so that streaming, server-sent
// events, websockets and HTTP/2 work as without the middleware. Only where a
// limit has [Limits.After] it is wrapped. Flush, Hijack and ReadFrom are there if
// they were there before, other interfaces can be reached by
// [http.ResponseController].
//
// A panic of the handler goes through, and the request stays counted. So does a
// request whose client goes away. A redirect by the ServeMux inside is a request
// like any other, and the one that follows it is another one.
//
// # Header fields
//
// The fields are set before the handler runs; what the handler then sets stands.
// Around one another, the limiter with the smallest rest sets them, and the inner
// one on a tie; lists name the policies of all.
//
// Retry-After is in whole seconds, rounded up. A fixed window in a
// [limiter.MemoryStore] ends up to a millisecond late, so that a denial right after
// its first request usually says one second more than the window. A request that
// no wait helps, for it costs more than the limit or the limit is 0, is told the
// window as well, and is denied again then: a client cannot tell it by the fields.
//
// # Cost
//
// Deciding a request takes a lookup of its key in each limit, and one atomic
// operation there, without a lock if the key is known. A request with one limit
// allocates once, for its key, and a few dozen bytes of header fields. One that
// is denied costs a little more than one that is admitted, for it has more fields
// and a body. After costs a ResponseWriter more. BenchmarkHTTP of benchmarks/peers
// compares this with other middlewares.
//
// # Limits
//
// The state is in this process. With n processes behind a load balancer a client
// gets up to n times the limit, unless they share a [limiter.Store] of yours.
// Keys that are stored as a hash are then told apart by each process on its own,
// since the seed is random; keep shared keys short.
package middleware
