package middleware

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringfence-go/ringfence/limiter"
)

// The tests of this file are about what went wrong in the field for users of other
// limiters, by the number that each case has there. What concerns limits as such
// is tested in package limiter. No test here, for there is no such feature:
//
//	42, 77 in part   limits on requests in flight, and their slots
//	75 in part       recognizing a request that passes the same limit twice: both count
//	79 in part       stores in other processes
//	98               changing a policy while it runs: LimitFunc and named limiters
//	                 return the limit anew for each request
//
// 58 is in server_test.go, and TestCase36 beside it; more of 50 and 55 is in
// clientip_test.go.

func TestField03_RefusedByOneKeySpendsNothingOfTheOther(t *testing.T) {
	limits := func(r *http.Request) Limits {
		return All(PerMinute(10).By("owner"), PerMinute(1).By(r.Header.Get("Key")))
	}
	b := newFixed(t)
	h := b.named("n", limits)
	require.Equal(t, "200 L1 R0", summary(send(h, guest(with("Key", "a")))))
	sameSummary(t, h, 8, "429 L1 R0 RA60 RS946684860", func(int) *http.Request { return guest(with("Key", "a")) })
	require.Equal(t, "200 L1 R0", summary(send(h, guest(with("Key", "b")))))
	results := make([]limiter.StoreResult, 1)
	key := (&namedRule{label: "n"}).key(0, "owner")
	b.fixed.multi.AttemptMany([]limiter.StoreItem{{Key: key, Max: 10, Decay: time.Minute}}, results)
	require.Equal(t, 3, results[0].Attempts, "2 by requests, 1 by this look")
}

func TestField04_RefusedRequestsSpendNothing(t *testing.T) {
	policy := func(name string, limit uint64) Policy {
		return Policy{Name: name, Limit: limit, Window: time.Minute, Key: ByIP}
	}
	b, options := newBench(t)
	special := policy("special", 3)
	special.LimitFunc, special.Limit = func(r *http.Request) uint64 {
		if r.URL.Path == "/special" {
			return 3
		}
		return limiter.Unlimited
	}, 0
	m, err := New(Config{Options: options, Policies: []Policy{policy("group", 10), special}})
	require.NoError(t, err)
	defer m.Close()
	h := m.Handler(b.handler(200))
	toSpecial := func(r *http.Request) { r.URL.Path = "/special" }
	require.Equal(t, "200 L3 R2", summary(send(h, guest(toSpecial))))
	require.Equal(t, "200 L3 R1", summary(send(h, guest(toSpecial))))
	require.Equal(t, "200 L3 R0", summary(send(h, guest(toSpecial))))
	require.Equal(t, 429, send(h, guest(toSpecial)).Code)
	require.Equal(t, 429, send(h, guest(toSpecial)).Code)
	for i := range 7 {
		require.Equal(t, fmt.Sprintf("200 L10 R%d", 6-i), summary(send(h)))
	}
	require.Equal(t, 429, send(h).Code)
}

func TestField23_ZeroAndNegative(t *testing.T) {
	for _, store := range stores {
		b := newFixed(t, store.change)
		sameSummary(t, b.spec("0,1"), 3, "429 L0 R0 RA60 RS946684860", sameGuest)
		for _, spec := range []string{"-1,1", "1,0", "1,-1", "-9223372036854775808,1"} {
			_, err := b.fixed.Middleware(spec)
			require.ErrorIs(t, err, limiter.ErrConfig, spec)
		}
	}
	for _, limits := range []Limits{PerMinute(-1), PerMinute(-1 << 31), Per(1, 0), Per(1, -time.Second), Per(1, time.Microsecond)} {
		b := newFixed(t)
		require.Equal(t, "500", summary(send(b.named("n", always(limits)))))
		require.Equal(t, Failed, b.events[0].Outcome)
		require.Zero(t, b.runs)
	}

	_, h := newRolling(t, nil, Policy{Name: "n", Limit: 0, Window: time.Minute, Key: ByIP})
	sameSummary(t, h, 3, "429 L0 R0 RA60 RS946684860", sameGuest)
	b, h := newRolling(t, nil, Policy{Name: "n", Window: time.Minute, Key: ByIP, LimitFunc: func(*http.Request) uint64 {
		minusOne := -1
		return uint64(minusOne)
	}})
	require.Equal(t, "500", summary(send(h)))
	require.Equal(t, []string{"failed n"}, b.outcomes())
}

func TestField37_ResetIsNeverInThePast(t *testing.T) {
	b, options := newBench(t)
	suspended := time.Duration(0)
	options.Now = func() time.Time { return T.Add(b.clock.Now() + suspended) }
	f, err := NewFixedWindowLimiter(FixedWindowConfig{Options: options})
	require.NoError(t, err)
	defer f.Close()
	b.fixed = f
	h := b.spec("1,1")
	b.run(h, step{0, "200 L1 R0"})
	suspended = 8 * time.Hour // the machine slept: the wall clock moved, the monotonic one did not
	b.run(h, step{1, "429 L1 R0 RA59 RS946713660"})
	require.EqualValues(t, 946684801+8*3600+59, 946713660)
}

func TestField39_ExactlyN(t *testing.T) {
	b := newFixed(t)
	h := b.spec("5,1")
	for i := range 5 {
		require.Equal(t, fmt.Sprintf("200 L5 R%d", 4-i), summary(send(h)))
	}
	require.Equal(t, 429, send(h).Code)

	b = newFixed(t)
	h = b.named("failures", always(PerMinute(5).After(func(code int) bool { return code >= 400 })))
	for range 5 {
		require.Equal(t, 401, send(h, guest(status(401))).Code)
	}
	require.Equal(t, 429, send(h, guest(status(401))).Code)
	require.Equal(t, 5, b.runs)
}

func TestField40_NAtOnce(t *testing.T) {
	b := newFixed(t)
	for i, got := range barrier(b.spec("6,1"), 6, sameGuest) {
		require.Equal(t, fmt.Sprintf("200 L6 R%d", i), got)
	}

	// In any minute never more than 6, and 6 again a tick later.
	b, h := newRolling(t, nil, Policy{Name: "n", Limit: 6, Window: time.Minute, Key: ByIP})
	var admitted []time.Duration
	for now := time.Duration(0); now < 5*time.Minute; now += 700 * time.Millisecond {
		b.clock.Set(now)
		if send(h).Code == 200 {
			admitted = append(admitted, now)
		}
	}
	require.Greater(t, len(admitted), 20)
	for i := range admitted[6:] {
		require.GreaterOrEqual(t, admitted[i+6]-admitted[i], time.Minute)
		require.LessOrEqual(t, admitted[i+6]-admitted[i], 67*time.Second)
	}
}

func TestField43_ClientHeadersAreNotBelieved(t *testing.T) {
	headers := append([]string{"X-Forwarded-For", "Forwarded"}, singleValueHeaders...)
	b := newFixed(t)
	h := b.spec("5,1")
	codes := map[int]int{}
	for i := range 100 {
		codes[send(h, guest(func(r *http.Request) {
			for _, name := range headers {
				r.Header.Set(name, fmt.Sprintf("198.51.100.%d", i))
			}
			r.Header.Set("Forwarded", fmt.Sprintf("for=198.51.100.%d", i))
		})).Code]++
	}
	require.Equal(t, map[int]int{200: 5, 429: 95}, codes)

	victim := from("192.0.2.9")
	for range 10 {
		send(h, from("192.0.2.77", with("X-Forwarded-For", "192.0.2.9")))
	}
	require.Equal(t, "200 L5 R4", summary(send(h, victim)))
}

// trusting returns a limiter behind proxies of 10.0.0.0/8, and a function that
// returns what a request with these header lines is counted under.
func trusting(t *testing.T) func(lines ...string) string {
	b := newFixed(t, func(c *FixedWindowConfig) { c.Trusted = tenNet })
	return func(lines ...string) string {
		r := from("10.0.0.1")
		r.Header["X-Forwarded-For"] = lines
		return b.fixed.ClientKey(r)
	}
}

func TestField44_RightmostUntrusted(t *testing.T) {
	key := trusting(t)
	require.Equal(t, "203.0.113.7", key("6.6.6.6, 203.0.113.7"))
	require.Equal(t, "203.0.113.7", key("6.6.6.6, 203.0.113.7, 10.0.0.2"))
	require.Equal(t, "10.0.0.3", key("10.0.0.3, 10.0.0.2"), "all trusted: the leftmost")
}

func TestField46_AllLines(t *testing.T) {
	key := trusting(t)
	require.Equal(t, "203.0.113.7", key("6.6.6.6", "203.0.113.7"))
	require.Equal(t, key("6.6.6.6, 203.0.113.7"), key("6.6.6.6", "203.0.113.7"))
}

func TestField47_Ports(t *testing.T) {
	key := trusting(t)
	require.Equal(t, "203.0.113.7", key("203.0.113.7:51000"))
	require.Equal(t, "203.0.113.7", key("203.0.113.7:51001"))
	require.Equal(t, key("2001:db8::1"), key("[2001:db8::1]:443"))
}

func TestField49_RemoteAddrWithoutPort(t *testing.T) {
	b := newFixed(t)
	h := b.spec("2,1")
	send(h, from("203.0.113.7"))
	bare := from("203.0.113.7")
	bare.RemoteAddr = "203.0.113.7"
	require.Equal(t, "200 L2 R0", summary(send(h, bare)))

	garbage := guest()
	garbage.RemoteAddr = "garbage"
	require.Equal(t, "200 L2 R1", summary(send(h, garbage)))
	require.Equal(t, "200 L2 R0", summary(send(h, garbage)))
	require.Equal(t, 429, send(h, garbage).Code, "no free pass")
	require.Equal(t, 1, strings.Count(b.log.String(), "no address"))
}

func TestField50_UnixSocket(t *testing.T) {
	peers := []string{"", "@", "/run/app.sock"}
	socket := func(peer string, change ...func(*http.Request)) *http.Request {
		return guest(append(change, func(r *http.Request) { r.RemoteAddr = peer })...)
	}
	b := newFixed(t)
	h := b.spec("9,1")
	for i, peer := range peers {
		w := send(h, socket(peer, with("X-Forwarded-For", "1.1.1.1")))
		require.Equal(t, fmt.Sprintf("200 L9 R%d", 8-i), summary(w), "one bucket")
	}
	require.Equal(t, 1, strings.Count(b.log.String(), "no address"), "one warning")

	b = newFixed(t, func(c *FixedWindowConfig) { c.TrustUnixSocket = true })
	for _, peer := range peers {
		require.Equal(t, "1.1.1.1", b.fixed.ClientKey(socket(peer, with("X-Forwarded-For", "1.1.1.1"))))
	}
	require.Empty(t, b.log.String())
	require.Equal(t, NoAddress, b.fixed.ClientKey(socket("@")))
	require.Contains(t, b.log.String(), "a proxy on a unix socket names no client in X-Forwarded-For")
}

func TestField51_ProxyWithoutTrust(t *testing.T) {
	for _, header := range []string{"X-Forwarded-For", "Forwarded", "X-Real-IP"} {
		b := newFixed(t)
		h := b.spec("100,1")
		codes := map[int]int{}
		for i := range 200 {
			codes[send(h, from("10.0.0.1", with(header, fmt.Sprintf("198.51.100.%d", i)))).Code]++
		}
		require.Equal(t, map[int]int{200: 100, 429: 100}, codes, "one key")
		require.Equal(t, 1, strings.Count(b.log.String(), "not trusted"), b.log.String())
		require.Contains(t, b.log.String(), "10.0.0.1")
	}

	b := newFixed(t)
	h := b.spec("100,1")
	send(h, from("203.0.113.7", with("X-Forwarded-For", "1.1.1.1")))
	send(h, from("10.0.0.1"))
	require.Empty(t, b.log.String(), "a client that makes it up, and a proxy that says nothing")
	b = newFixed(t, func(c *FixedWindowConfig) { c.Trusted = tenNet })
	send(b.spec("100,1"), from("10.0.0.1", with("X-Forwarded-For", "1.1.1.1")))
	require.Empty(t, b.log.String(), "configured")
}

func TestField52_IPv6Rotation(t *testing.T) {
	b := newFixed(t)
	h := b.spec("2000,1")
	for i := range 1000 {
		w := send(h, from(fmt.Sprintf("[2001:db8:1:2:%x:%x::1]", i, 7*i)))
		require.Equal(t, fmt.Sprintf("200 L2000 R%d", 1999-i), summary(w))
	}
	require.Equal(t, "200 L2000 R1999", summary(send(h, from("[2001:db8:1:3::1]"))))
	for bits := 32; bits <= 128; bits++ {
		_, err := NewFixedWindowLimiter(FixedWindowConfig{Options: Options{IPv6Prefix: bits}, Store: newPlainStore(b.clock)})
		require.NoError(t, err)
	}
	require.Equal(t, "192.0.2.10", b.fixed.ClientKey(guest()), "IPv4 is taken whole")
}

func TestField54_NAT64(t *testing.T) {
	b := newFixed(t)
	require.NotEqual(t, b.fixed.ClientKey(from("[64:ff9b::808:808]")), b.fixed.ClientKey(from("[64:ff9b::909:909]")))
}

func TestField55_Zones(t *testing.T) {
	b := newFixed(t, func(c *FixedWindowConfig) { c.Trusted = tenNet })
	linkLocal := guest()
	linkLocal.RemoteAddr = "[fe80::1%eth0]:80"
	require.Equal(t, "fe80::1", b.fixed.ClientKey(linkLocal))
	hostile := from("10.0.0.1", with("X-Forwarded-For", "::1%"+strings.Repeat("A", 4000)))
	require.Equal(t, "10.0.0.1", b.fixed.ClientKey(hostile))
}

func TestField57_OneHeader(t *testing.T) {
	b := newFixed(t, func(c *FixedWindowConfig) { c.Trusted, c.Header = tenNet, "X-Real-IP" })
	r := from("10.0.0.1", with("X-Forwarded-For", "1.1.1.1"), with("True-Client-IP", "1.1.1.1"))
	require.Equal(t, "10.0.0.1", b.fixed.ClientKey(r), "the configured header is absent")
	r.Header.Set("X-Real-IP", "2.2.2.2")
	require.Equal(t, "2.2.2.2", b.fixed.ClientKey(r))
	for _, name := range []string{"X-Fowarded-For", "RemoteAddr", "X-Forwarded-Host", "X-Real-IP, X-Forwarded-For"} {
		_, err := NewFixedWindowLimiter(FixedWindowConfig{Options: Options{Trusted: tenNet, Header: name}})
		require.ErrorContains(t, err, name)
	}
}

func TestField59_WebsocketMessagesAreNoRequests(t *testing.T) {
	// TestCase36_Websocket shows that the handshake counts 1 and messages nothing.
	// A handler limits them by the core itself.
	messages, err := limiter.New(limiter.Config{Limit: 2, Window: time.Second, Clock: limiter.NewManualClock()})
	require.NoError(t, err)
	defer messages.Close()
	var answers []bool
	for range 3 {
		answers = append(answers, messages.Allow())
	}
	require.Equal(t, []bool{true, true, false}, answers)
}

// preflight makes a request a CORS preflight.
func preflight(r *http.Request) {
	r.Method = http.MethodOptions
	r.Header.Set("Origin", "https://app.example")
	r.Header.Set("Access-Control-Request-Method", "POST")
}

func TestField60_Preflights(t *testing.T) {
	b := newFixed(t, func(c *FixedWindowConfig) { c.Skip = IsPreflight })
	h := b.spec("2,1")
	sameSummary(t, h, 100, "200", func(int) *http.Request { return guest(preflight) })
	bare := guest(func(r *http.Request) { r.Method = http.MethodOptions })
	require.Equal(t, "200 L2 R1", summary(send(h, bare)), "a bare OPTIONS counts")
	withOrigin := guest(preflight, func(r *http.Request) { r.Header.Del("Access-Control-Request-Method") })
	require.Equal(t, "200 L2 R0", summary(send(h, withOrigin)))

	cors := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Expose-Headers", strings.Join(ExposedHeaders(), ", "))
		h.ServeHTTP(w, r)
	})
	w := send(cors)
	require.Equal(t, 429, w.Code)
	require.Equal(t, "*", w.Header().Get("Access-Control-Allow-Origin"))
	for name := range w.Header() {
		if strings.HasPrefix(name, "X-Ratelimit") || name == "Retry-After" {
			require.Contains(t, strings.ToLower(w.Header().Get("Access-Control-Expose-Headers")), strings.ToLower(name))
		}
	}
}

func TestField62_RetryAfterIsRoundedUp(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		1: "1", 400 * time.Millisecond: "1", 999 * time.Millisecond: "1", time.Second: "1",
		1001 * time.Millisecond: "2", 0: "1", 290 * 365 * 24 * time.Hour: "9145440000",
	} {
		v := verdict{Decision: limiter.Decision{RetryAfter: wait}}
		require.Equal(t, want, fmt.Sprint(retrySeconds(&v)), wait)
	}

	// Waiting as long as announced always admits.
	policies := map[string]func(*testing.T) (*bench, http.Handler){
		"fixed": func(t *testing.T) (*bench, http.Handler) {
			b := newFixed(t, func(c *FixedWindowConfig) { // a small one, which is swept fast
				store, err := limiter.NewMemoryStore(limiter.MemoryStoreConfig{Clock: c.Clock, MaxKeys: 16})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, store.Close()) })
				c.Store = store
			})
			return b, b.named("n", always(Per(2, 3700*time.Millisecond)))
		},
		"rolling": func(t *testing.T) (*bench, http.Handler) {
			return newRolling(t, nil,
				Policy{Name: "short", Limit: 2, Window: 3700 * time.Millisecond, Key: ByIP, MaxKeys: 16},
				Policy{Name: "long", Limit: 5, Window: 11 * time.Second, Slots: 7, Key: ByIP, MaxKeys: 16})
		},
	}
	for name, setUp := range policies {
		t.Run(name, func(t *testing.T) {
			b, h := setUp(t)
			denied := 0
			for i := range 5000 {
				b.clock.Advance(time.Duration(i*i%977) * time.Millisecond)
				w := send(h)
				if w.Code == 200 {
					continue
				}
				denied++
				wait := w.Header().Get("Retry-After")
				require.Regexp(t, "^[1-9][0-9]*$", wait)
				var seconds int64
				_, err := fmt.Sscan(wait, &seconds)
				require.NoError(t, err)
				b.clock.Advance(time.Duration(seconds) * time.Second)
				require.Equal(t, 200, send(h).Code, "after %s seconds", wait)
			}
			require.Greater(t, denied, 100)
		})
	}
}

func TestField64_ResetUnits(t *testing.T) {
	b, options := newBench(t)
	options.Families = Legacy | IETFDraft6
	options.Now = func() time.Time { return time.Unix(1_700_000_000, 4e8) }
	f, err := NewFixedWindowLimiter(FixedWindowConfig{Options: options})
	require.NoError(t, err)
	defer f.Close()
	b.fixed = f
	h := b.named("n", always(Per(1, 30200*time.Millisecond)))
	send(h)
	w := send(h)
	require.Equal(t, "1700000031", w.Header().Get("X-RateLimit-Reset"))
	require.Equal(t, "31", w.Header().Get("RateLimit-Reset"))
	require.Equal(t, "31", w.Header().Get("Retry-After"))
}

func TestField65_Families(t *testing.T) {
	const legacy, reset = "X-Ratelimit-Limit X-Ratelimit-Remaining", " X-Ratelimit-Reset"
	const draft6 = "Ratelimit-Limit Ratelimit-Policy Ratelimit-Remaining Ratelimit-Reset"
	const draft11 = "Ratelimit Ratelimit-Policy"
	for families, want := range map[Families][2]string{ // with 200 and with 429
		0:                    {legacy, legacy + reset},
		Legacy:               {legacy, legacy + reset},
		IETFDraft6:           {draft6, draft6},
		IETFDraft11:          {draft11, draft11},
		NoHeaders:            {"", ""},
		Legacy | IETFDraft6:  {draft6 + " " + legacy, draft6 + " " + legacy + reset},
		Legacy | IETFDraft11: {draft11 + " " + legacy, draft11 + " " + legacy + reset},
	} {
		b := newFixed(t, func(c *FixedWindowConfig) { c.Families = families })
		h := b.named("n", always(All(PerMinute(5).By("a"), PerHour(1).By("b"))))
		for i, want := range want {
			w := send(h)
			require.Equal(t, []int{200, 429}[i], w.Code)
			var got []string
			for name, values := range w.Header() {
				require.Len(t, values, 1, name)
				if strings.Contains(name, "Ratelimit") {
					got = append(got, name)
				}
			}
			slices.Sort(got)
			require.Equal(t, want, strings.Join(got, " "), "families %d", families)
			require.Equal(t, i == 1, w.Header().Get("Retry-After") != "")
		}
	}
	for _, families := range []Families{IETFDraft6 | IETFDraft11, NoHeaders | Legacy, 16, 255} {
		_, err := NewFixedWindowLimiter(FixedWindowConfig{Options: Options{Families: families}})
		require.ErrorIs(t, err, limiter.ErrConfig)
		require.ErrorContains(t, err, "Families")
	}
}

func TestField67_CustomDenial(t *testing.T) {
	deny := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", w.Header().Get("Retry-After")+"0")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	_, h := newRolling(t, func(c *Config) { c.OnDenied = deny }, Policy{Name: "n", Limit: 1, Window: time.Minute, Key: ByIP})
	send(h)
	w := send(h)
	require.Equal(t, "503 L1 R0 RA660 RS946684866", summary(w))
	require.Empty(t, w.Body.String())
}

func TestField68_TwoThrottles(t *testing.T) {
	b := newFixed(t)
	h := b.spec("100,60,hour", "10,1,minute")
	for i := range 10 {
		require.Equal(t, fmt.Sprintf("200 L10 R%d", 9-i), summary(send(h)))
	}
	require.Equal(t, 429, send(h).Code)
	require.Equal(t, "200 L100 R88", summary(send(b.spec("100,60,hour"))), "11 passes, 1 each")

	b = newFixed(t)
	h = b.spec("60,1,group", "5,1,route")
	sameStatus(t, h, 5, 200)
	require.Equal(t, 429, send(h).Code)
}

func sameStatus(t *testing.T, h http.Handler, n, want int) {
	t.Helper()
	for range n {
		require.Equal(t, want, send(h).Code)
	}
}

func TestField69_SharedOnPurpose(t *testing.T) {
	b := newFixed(t)
	first, second := b.spec("3,1"), b.spec("60,1")
	for range 3 {
		send(second)
	}
	require.Equal(t, 429, send(first).Code, "inline throttles without a prefix are one counter, see Middleware")

	b = newFixed(t)
	require.NoError(t, b.fixed.Named("n", always(PerMinute(3))))
	first, second = b.spec("n"), b.spec("n")
	send(first)
	require.Equal(t, "200 L3 R1", summary(send(second)), "one name, one counter")
}

func TestField71_CountedBeforeRejected(t *testing.T) {
	b := newFixed(t)
	h := b.fixed.MustMiddleware("3,1")(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized) // a middleware inside that checks a signature
	}))
	sameStatus(t, h, 3, 401)
	require.Equal(t, 429, send(h).Code, "guesses are not free")
}

func failures(code int) bool { return code >= 400 }

func TestField72_FailuresOnly(t *testing.T) {
	b := newFixed(t)
	login := b.named("login", always(PerMinute(5).After(failures)))
	sameSummary(t, login, 100, "200 L5 R5", sameGuest)
	b.runs = 0

	got := barrier(login, 50, func(int) *http.Request { return guest(status(401)) })
	require.Equal(t, 5, b.runs)
	for i, s := range got {
		if i < 5 {
			require.Equal(t, fmt.Sprintf("401 L5 R%d", i), s)
		} else {
			require.Equal(t, "429 L5 R0 RA60 RS946684860", s)
		}
	}
	b.clock.Set(time.Minute)
	require.Equal(t, "200 L5 R5", summary(send(login)), "its own denials have not counted")
}

func TestField72_ParallelSuccesses(t *testing.T) {
	b := newFixed(t)
	login := b.named("login", always(PerMinute(50).After(failures)))
	for _, s := range barrier(login, 50, sameGuest) {
		require.True(t, strings.HasPrefix(s, "200 L50 R"), s)
	}
	require.Equal(t, "200 L50 R50", summary(send(login)), "each has given back once")
	gaveBack := 0
	for _, e := range b.events {
		if e.Outcome == GaveBack {
			gaveBack++
		}
	}
	require.Equal(t, 51, gaveBack)
}

func TestField73_ByAccountAndByAddress(t *testing.T) {
	b := newFixed(t)
	login := b.named("login", func(r *http.Request) Limits {
		return All(
			PerMinute(20).By(b.fixed.ClientKey(r)).After(failures),
			PerMinute(5).By(r.Header.Get("Account")).After(failures),
		)
	})
	attempt := func(address, account string) int {
		return send(login, from(address, with("Account", account), status(401))).Code
	}
	for i := range 1000 {
		attempt("192.0.2.1", fmt.Sprintf("account-%d", i))
	}
	require.Equal(t, 20, b.runs, "many accounts, one address")
	b.runs = 0
	for i := range 1000 {
		attempt(fmt.Sprintf("198.51.%d.%d", i/250, i%250), "victim")
	}
	require.Equal(t, 5, b.runs, "one account, many addresses")
}

func TestField75_PassesAreCounted(t *testing.T) {
	b := newFixed(t)
	require.NoError(t, b.fixed.Named("n", always(PerMinute(10))))
	require.Equal(t, "200 L10 R8", summary(send(b.spec("n", "n"))), "two passes, as documented")

	mux := http.NewServeMux()
	mux.HandleFunc("/dir/", func(w http.ResponseWriter, r *http.Request) {})
	h := b.fixed.MustMiddleware("10,1")(mux)
	w := send(h, guest(func(r *http.Request) { r.URL.Path = "/dir" }))
	require.GreaterOrEqual(t, w.Code, 301)
	require.Equal(t, "9", w.Header().Get("X-RateLimit-Remaining"), "a redirect is one pass")
}

func TestField76_Host(t *testing.T) {
	b := newFixed(t)
	h := b.spec("10,1")
	codes := map[int]int{}
	for i := range 100 {
		codes[send(h, guest(func(r *http.Request) { r.Host = fmt.Sprintf("h%d.example", i) })).Code]++
	}
	require.Equal(t, map[int]int{200: 10, 429: 90}, codes)
}

func TestField77_Panics(t *testing.T) {
	for _, value := range []any{http.ErrAbortHandler, errors.New("other")} {
		b := newFixed(t)
		h := b.fixed.MustMiddleware("2,1")(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(value) }))
		require.PanicsWithValue(t, value, func() { send(h) })
		require.PanicsWithValue(t, value, func() { send(h) })
		require.Equal(t, 429, send(h).Code, "the requests stay counted")

		_, options := newBench(t)
		m, err := New(Config{Options: options, Policies: []Policy{{Name: "n", Limit: 1, Window: time.Minute, Key: ByIP}}})
		require.NoError(t, err)
		h = m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(value) }))
		require.PanicsWithValue(t, value, func() { send(h) })
		require.Equal(t, 429, send(h).Code)
		require.NoError(t, m.Close())
	}
}

func TestField77_ClientGoesAway(t *testing.T) {
	gone := make(chan struct{})
	b := newFixed(t)
	require.NoError(t, b.fixed.Named("n", always(PerMinute(2).After(failures))))
	server := httptest.NewServer(b.fixed.MustMiddleware("n")(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stay" {
			return
		}
		w.WriteHeader(http.StatusBadGateway)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	})))
	defer server.Close()
	response, err := http.Get(server.URL)
	require.NoError(t, err)
	response.Body.Close() // in the middle of the stream
	<-gone
	response, err = http.Get(server.URL + "/stay")
	require.NoError(t, err)
	io.Copy(io.Discard, response.Body)
	response.Body.Close()
	require.Equal(t, "1", response.Header.Get("X-RateLimit-Remaining"), "counted once, as what was written")
}

func TestField79_OneScope(t *testing.T) {
	for _, store := range stores {
		b := newFixed(t, store.change)
		m := b.fixed.MustMiddleware("2,1")
		first, second := m(b.handler(200)), m(b.handler(200))
		require.Equal(t, "200 L2 R1", summary(send(first)), store.name)
		require.Equal(t, "200 L2 R0", summary(send(second)), store.name)
		require.Equal(t, 429, send(first).Code, store.name)
	}
	b, options := newBench(t)
	m, err := New(Config{Options: options, Policies: []Policy{{Name: "n", Limit: 1, Window: time.Minute, Key: ByIP}}})
	require.NoError(t, err)
	defer m.Close()
	require.Equal(t, 200, send(m.Handler(b.handler(200))).Code)
	require.Equal(t, 429, send(m.Handler(b.handler(200))).Code)
}

func TestField89_KindsOfKeys(t *testing.T) {
	b := newFixed(t)
	h := b.spec("5,1")
	require.Equal(t, "200 L5 R4", summary(send(h, from("203.0.113.7"))))
	require.Equal(t, "200 L5 R4", summary(send(h, guest(user("203.0.113.7")))))

	b = newFixed(t)
	by := func(r *http.Request) Limits { return PerMinute(5).By(r.Header.Get("Key")) }
	for _, name := range []string{"login", "api", "n", "n2"} {
		require.NoError(t, b.fixed.Named(name, by))
	}
	require.Equal(t, "200 L5 R4", summary(send(b.spec("login"), guest(with("Key", "same")))))
	require.Equal(t, "200 L5 R4", summary(send(b.spec("api"), guest(with("Key", "same")))))
	require.Equal(t, "200 L5 R4", summary(send(b.spec("n2"), guest(with("Key", "bc")))))
	require.Equal(t, "200 L5 R4", summary(send(b.spec("n"), guest(with("Key", "2bc")))))
	prefix := strings.Repeat("x", 32)
	require.Equal(t, "200 L5 R4", summary(send(b.spec("api"), guest(with("Key", prefix+"1")))))
	require.Equal(t, "200 L5 R4", summary(send(b.spec("api"), guest(with("Key", prefix+"2")))))

	_, rolling := newRolling(t, nil, Policy{Name: "n", Limit: 5, Window: time.Minute, Key: ByHeader("X-Api-Key")})
	require.Equal(t, "200 L5 R4", summary(send(rolling, from("203.0.113.7"))))
	require.Equal(t, "200 L5 R4", summary(send(rolling, guest(with("X-Api-Key", "203.0.113.7")))))
}

func TestField90_LongKeys(t *testing.T) {
	long := strings.Repeat("k", 1<<20)
	b, h := newRolling(t, nil, Policy{Name: "n", Limit: 5, Window: time.Minute, Key: ByHeader("X-Api-Key")})
	for _, key := range []string{long + "1", long + "2", long, "a\nb", "a\n", "\xff\xfe", "\xff"} {
		require.Equal(t, "200 L5 R4", summary(send(h, guest(with("X-Api-Key", key)))))
		require.LessOrEqual(t, len(b.events[len(b.events)-1].Key), maxKey)
	}
	require.Equal(t, "200 L5 R3", summary(send(h, guest(with("X-Api-Key", long+"1")))))
	hash := b.events[0].Key
	require.Equal(t, "200 L5 R4", summary(send(h, guest(with("X-Api-Key", hash)))), "nobody gets at a key by its hash")

	f := newFixed(t)
	inline := f.spec("5,1," + strings.Repeat("p", 200))
	require.Equal(t, "200 L5 R4", summary(send(inline, guest(user(long)))))
	require.Equal(t, "200 L5 R4", summary(send(inline, guest(user(long+"1")))))
	require.Equal(t, "200 L5 R4", summary(send(inline, guest())))
	for _, e := range f.events {
		require.LessOrEqual(t, len(e.Key), maxKey)
	}
}

func TestField91_Goroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine is left
		for range 1000 {
			m, err := New(Config{Policies: []Policy{{Name: "n", Limit: 1, Window: time.Minute, Key: ByIP}}})
			require.NoError(t, err)
			h := m.Handler(http.NotFoundHandler())
			send(h)
			require.NoError(t, m.Close())
			require.NoError(t, m.Close())
			require.Equal(t, 429, send(h).Code, "decisions go on")

			f, err := NewFixedWindowLimiter(FixedWindowConfig{})
			require.NoError(t, err)
			h = f.MustMiddleware("1,1")(http.NotFoundHandler())
			send(h)
			require.NoError(t, f.Close())
			require.NoError(t, f.Close())
			require.Equal(t, 429, send(h).Code)
		}
	})
	before := runtime.NumGoroutine()
	for range 100 {
		_, err := New(Config{Policies: []Policy{
			{Name: "n", Limit: 1, Window: time.Minute, Key: ByIP},
			{Name: "bad", Window: -1, Key: ByIP},
		}})
		require.Error(t, err)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before, "an error leaves nothing running")
}

func TestField91_GivenStoreStaysOpen(t *testing.T) {
	store := &closableStore{plainStore: newPlainStore(limiter.NewManualClock())}
	f, err := NewFixedWindowLimiter(FixedWindowConfig{Store: store})
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.False(t, store.closed)
}

type closableStore struct {
	*plainStore
	closed bool
}

func (s *closableStore) Close() error {
	s.closed = true
	return nil
}

func TestField114_ErrorsAreTyped(t *testing.T) {
	_, err := NewFixedWindowLimiter(FixedWindowConfig{Options: Options{Hops: -1}})
	require.ErrorIs(t, err, limiter.ErrConfig)
	_, err = New(Config{})
	require.ErrorIs(t, err, limiter.ErrConfig)
	b := newFixed(t)
	require.ErrorIs(t, b.fixed.Named("", nil), limiter.ErrConfig)
	_, err = b.fixed.Middleware("x")
	require.ErrorIs(t, err, limiter.ErrConfig)

	down := errors.New("down")
	b = newFixed(t, func(c *FixedWindowConfig) {
		c.Store, c.OnStoreError = &failingStore{newPlainStore(c.Clock), down}, DenyOnError
	})
	send(b.spec("1,1"))
	require.ErrorIs(t, b.events[0].Err, down)
}

func TestField116_UnknownName(t *testing.T) {
	b := newFixed(t)
	_, err := b.fixed.Middleware("nosuch")
	require.ErrorContains(t, err, `"nosuch"`)
}

func TestField117_ExplicitNoLimits(t *testing.T) {
	b := newFixed(t)
	w := send(b.named("none", always(NoLimits())))
	require.Equal(t, "200", summary(w))
	for name, limits := range map[string]func(*http.Request) Limits{
		"zero":        always(Limits{}),
		"empty list":  always(All()),
		"panic":       func(*http.Request) Limits { panic("no") },
		"nil handler": always(Respond(nil)),
		"wrong list":  always(All(PerMinute(1), NoLimits())),
	} {
		b := newFixed(t)
		require.Equal(t, "500", summary(send(b.named(name, limits))), name)
		require.Equal(t, []string{"failed " + name}, b.outcomes())
		require.Zero(t, b.runs, "never silently open")
	}
}

func TestField119_Observer(t *testing.T) {
	for _, shadow := range []bool{false, true} {
		b, h := newRolling(t, func(c *Config) { c.Shadow = shadow },
			Policy{Name: "minute", Limit: 3, Window: time.Minute, Key: ByIP},
			Policy{Name: "hour", Limit: 4, Window: time.Hour, Key: ByIP})
		for range 5 {
			send(h)
		}
		b.clock.Set(2 * time.Minute)
		for range 3 {
			send(h)
		}
		require.Equal(t, []string{
			"admitted minute", "admitted minute", "admitted minute", "denied minute", "denied minute",
			"admitted hour", "denied hour", "denied hour",
		}, b.outcomes(), "the counts do not depend on shadow mode")
		for _, e := range b.events {
			require.Equal(t, "192.0.2.10", e.Key)
			require.Equal(t, shadow, e.Shadow)
			require.NotNil(t, e.Request)
			require.Equal(t, e.Outcome == Admitted, e.Decision.Allowed)
		}
		require.Equal(t, limiter.ReasonLimited, b.events[7].Decision.Reason)
		if shadow {
			require.Equal(t, 8, b.runs, "nothing is denied")
		} else {
			require.Equal(t, 4, b.runs)
		}
	}
}

func TestField119_ShadowSetsNothing(t *testing.T) {
	b := newFixed(t, func(c *FixedWindowConfig) { c.Shadow, c.Families = true, Legacy|IETFDraft11 })
	asked := 0
	h := b.named("n", always(PerMinute(1).After(func(code int) bool { asked++; return failures(code) })))
	for _, code := range []int{200, 401, 401, 200} {
		w := send(h, guest(status(code)))
		require.Equal(t, code, w.Code)
		require.Empty(t, w.Header())
	}
	require.Equal(t, []string{"admitted n", "gave back n", "admitted n", "denied n", "denied n"}, b.outcomes())
	require.Equal(t, 2, asked, "a response that would not have been is not asked about")

	for name, limits := range map[string]Limits{"zero": {}, "reply": Respond(http.NotFoundHandler())} {
		b = newFixed(t, func(c *FixedWindowConfig) { c.Shadow = true })
		require.Equal(t, "200", summary(send(b.named(name, always(limits)))))
	}
	b = newFixed(t, func(c *FixedWindowConfig) {
		c.Shadow, c.OnStoreError = true, DenyOnError
		c.Store = &failingStore{newPlainStore(c.Clock), errors.New("down")}
	})
	require.Equal(t, "200", summary(send(b.spec("1,1"))))
	require.Equal(t, []string{"failed inline"}, b.outcomes())
}

func TestField120_Skip(t *testing.T) {
	store := newPlainStore(limiter.NewManualClock())
	skip := func(r *http.Request) bool { return r.Header.Get("Internal") != "" }
	b := newFixed(t, func(c *FixedWindowConfig) { c.Store, c.Skip = store, skip })
	h := b.spec("1,1")
	sameSummary(t, h, 100, "200", func(int) *http.Request { return guest(with("Internal", "yes")) })
	require.Zero(t, store.calls)
	require.Empty(t, b.events)
	require.Equal(t, "200 L1 R0", summary(send(h)))

	_, options := newBench(t)
	options.Skip = skip
	m, err := New(Config{Options: options, Policies: []Policy{{Name: "n", Limit: 1, Window: time.Minute, Key: ByIP}}})
	require.NoError(t, err)
	defer m.Close()
	sameSummary(t, m.Handler(b.handler(200)), 100, "200", func(int) *http.Request { return guest(with("Internal", "yes")) })
	require.Zero(t, m.Stats()["n"].Keys)
}
