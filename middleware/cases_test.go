package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringfence-go/ringfence/limiter"
)

// The tests of this file are the numbered cases that define the middleware's
// behaviour. 36 is in server_test.go.

// stores are what a FixedWindowLimiter has to work the same on, as far as one
// limit goes: its own store, and one that can do nothing but Attempt.
var stores = []struct {
	name   string
	change func(*FixedWindowConfig)
}{
	{"memory", func(*FixedWindowConfig) {}},
	{"plain", onPlainStore},
}

func TestCase01_Window(t *testing.T) {
	for _, store := range stores {
		t.Run(store.name, func(t *testing.T) {
			b := newFixed(t, store.change)
			b.run(b.spec("3,1"),
				step{0, "200 L3 R2"}, step{1, "200 L3 R1"}, step{2, "200 L3 R0"},
				step{3, "429 L3 R0 RA57 RS946684860"},
				step{59.999, "429 L3 R0 RA1 RS946684860"},
				step{60, "200 L3 R2"})
		})
	}
}

func TestCase02_DeniedRequestsExtendNothing(t *testing.T) {
	for _, store := range stores {
		t.Run(store.name, func(t *testing.T) {
			b := newFixed(t, store.change)
			h := b.spec("1,1")
			b.run(h, step{0, "200 L1 R0"})
			for i := 1; i <= 50; i++ {
				b.run(h, step{float64(i), fmt.Sprintf("429 L1 R0 RA%d RS946684860", 60-i)})
			}
			b.run(h, step{60, "200 L1 R0"})
		})
	}
}

func TestCase03_WindowBeginsWithTheFirstHit(t *testing.T) {
	b := newFixed(t)
	b.run(b.spec("1,1"), step{30, "200 L1 R0"}, step{60, "429 L1 R0 RA30 RS946684890"}, step{90, "200 L1 R0"})
}

func TestCase04_PerSecond(t *testing.T) {
	b := newFixed(t)
	b.run(b.named("n", always(PerSecond(3))),
		step{0, "200 L3 R2"}, step{.1, "200 L3 R1"}, step{.2, "200 L3 R0"},
		step{.3, "429 L3 R0 RA1 RS946684801"}, step{.999, "429 L3 R0 RA1 RS946684801"}, step{1, "200 L3 R2"})
}

func TestCase05_FractionOfAMinute(t *testing.T) {
	b := newFixed(t)
	b.run(b.spec("1,0.5"), step{0, "200 L1 R0"}, step{29, "429 L1 R0 RA1 RS946684830"}, step{30, "200 L1 R0"})
}

func TestCase06_BelowASecond(t *testing.T) {
	b := newFixed(t)
	b.run(b.named("n", always(Per(1, 500*time.Millisecond))),
		step{0, "200 L1 R0"}, step{.4, "429 L1 R0 RA1 RS946684801"}, step{.5, "200 L1 R0"})
}

func TestCase07_Defaults(t *testing.T) {
	b := newFixed(t)
	h := b.spec("")
	for i := range 60 {
		require.Equal(t, fmt.Sprintf("200 L60 R%d", 59-i), summary(send(h)))
	}
	require.Equal(t, "429 L60 R0 RA60 RS946684860", summary(send(h)))

	b = newFixed(t)
	require.Equal(t, "200 L5 R4", summary(send(b.spec("5"))))
}

func TestCase08_GuestAndUser(t *testing.T) {
	b := newFixed(t)
	h := b.spec("60|120,1")
	require.Equal(t, "200 L60 R59", summary(send(h)))
	require.Equal(t, "200 L120 R119", summary(send(h, guest(user("7")))))
	require.Equal(t, "200 L60 R58", summary(send(h)))
}

func TestCase09_Prefixes(t *testing.T) {
	b := newFixed(t)
	first, second := b.spec("2,1,a"), b.spec("2,1,b")
	b.run(first, step{0, "200 L2 R1"}, step{0, "200 L2 R0"}, step{0, "429 L2 R0 RA60 RS946684860"})
	b.run(second, step{0, "200 L2 R1"})
}

func TestCase10_InlineThrottlesShareACounter(t *testing.T) {
	b := newFixed(t)
	wide, narrow := b.spec("60,1"), b.spec("10,1")
	for i := range 20 {
		b.run(wide, step{float64(i), fmt.Sprintf("200 L60 R%d", 59-i)})
	}
	b.run(narrow, step{20, "429 L10 R0 RA40 RS946684860"})
}

func TestCase11_ConstructionErrors(t *testing.T) {
	for _, spec := range []string{
		"nope", "60,0", "60,-1", "60,x", "-5,1", "60.5,1", "10|20|30,1", "a,b,c,d", "60,1,", "99999999999999999999,1",
	} {
		b := newFixed(t)
		m, err := b.fixed.Middleware(spec)
		require.Nil(t, m, spec)
		require.ErrorIs(t, err, limiter.ErrConfig, spec)
		require.ErrorContains(t, err, fmt.Sprintf("%q", spec))
		require.Panics(t, func() { b.fixed.MustMiddleware(spec) }, spec)
	}
}

func TestCase12_UsersAndGuests(t *testing.T) {
	b := newFixed(t)
	h := b.spec("5,1")
	require.Equal(t, "200 L5 R4", summary(send(h, guest(user("7")))))
	require.Equal(t, "200 L5 R3", summary(send(h, from("198.51.100.1", user("7")))), "one user, two addresses")
	require.Equal(t, "200 L5 R4", summary(send(h, guest())), "a guest, before the login")
	require.Equal(t, "200 L5 R4", summary(send(h, from("198.51.100.1"))), "another guest")
	require.Equal(t, "200 L5 R4", summary(send(h, guest(user("8")))), "another user at the first guest's address")
}

func TestCase13_HostIsNoKey(t *testing.T) {
	b := newFixed(t)
	h := b.spec("200,1")
	for i := range 100 {
		host := fmt.Sprintf("host-%d.example", i)
		w := send(h, guest(func(r *http.Request) {
			r.Host, r.URL.Host = host, host
			r.Header.Set("X-Forwarded-Host", host)
		}))
		require.Equal(t, fmt.Sprintf("200 L200 R%d", 199-i), summary(w))
	}
}

func TestCase14_IPv6Prefix(t *testing.T) {
	b := newFixed(t)
	h := b.spec("5,1")
	require.Equal(t, "200 L5 R4", summary(send(h, from("[2001:db8:1:2::1]"))))
	require.Equal(t, "200 L5 R3", summary(send(h, from("[2001:db8:1:2:ffff::9]"))))
	require.Equal(t, "200 L5 R4", summary(send(h, from("[2001:db8:1:3::1]"))))
}

func TestCase15_KeysAreBytes(t *testing.T) {
	b := newFixed(t)
	h := b.named("n", func(r *http.Request) Limits { return PerMinute(5).By(r.Header.Get("Name")) })
	require.Equal(t, "200 L5 R4", summary(send(h, guest(with("Name", "jôhn")))))
	require.Equal(t, "200 L5 R4", summary(send(h, guest(with("Name", "john")))))
	require.Equal(t, "200 L5 R3", summary(send(h, guest(with("Name", "jôhn")))))

	inline := b.spec("5,1")
	require.Equal(t, "200 L5 R4", summary(send(inline, guest(user("jôhn")))))
	require.Equal(t, "200 L5 R4", summary(send(inline, guest(user("john")))))
}

func TestCase16_NamedWithoutBy(t *testing.T) {
	b := newFixed(t)
	h := b.named("n", always(PerMinute(2)))
	require.Equal(t, "200 L2 R1", summary(send(h, from("192.0.2.1"))))
	require.Equal(t, "200 L2 R0", summary(send(h, from("192.0.2.2"))))
	require.Equal(t, "429 L2 R0 RA60 RS946684860", summary(send(h, from("192.0.2.1"))))
}

func TestCase17_NoLimits(t *testing.T) {
	for name, limits := range map[string]Limits{"none": NoLimits(), "unlimited": Unlimited(), "list": All(Unlimited(), Unlimited())} {
		b := newFixed(t)
		w := send(b.named(name, always(limits)))
		require.Equal(t, "200", summary(w), name)
		require.Empty(t, w.Header(), name)
		require.Empty(t, b.events, name)
	}

	b := newFixed(t)
	w := send(b.named("zero", always(Limits{})))
	require.Equal(t, "500", summary(w))
	require.Equal(t, []string{"failed zero"}, b.outcomes())
	require.ErrorContains(t, b.events[0].Err, "zero value")
	require.Zero(t, b.runs)
}

func TestCase18_SeveralLimits(t *testing.T) {
	b := newFixed(t)
	b.run(b.named("n", always(All(PerSecond(3), PerMinute(5)))),
		step{0, "200 L3 R2"}, step{.1, "200 L3 R1"}, step{.2, "200 L3 R0"},
		step{.3, "429 L3 R0 RA1 RS946684801"},
		step{1, "200 L5 R1"}, step{1.1, "200 L5 R0"},
		step{1.2, "429 L5 R0 RA59 RS946684860"})
}

func TestCase19_SeveralKeys(t *testing.T) {
	b := newFixed(t)
	b.run(b.named("n", always(All(PerDay(5).By("d"), PerMinute(3).By("m")))),
		step{0, "200 L3 R2"}, step{1, "200 L3 R1"}, step{2, "200 L3 R0"},
		step{3, "429 L3 R0 RA57 RS946684860"},
		step{60, "200 L5 R1"}, step{61, "200 L5 R0"},
		step{62, "429 L5 R0 RA86338 RS946771200"})
}

func TestCase20_UnlimitedInAList(t *testing.T) {
	b := newFixed(t)
	h := b.named("n", always(All(Unlimited(), PerMinute(2))))
	require.Equal(t, "200 L2 R1", summary(send(h)))
}

func TestCase21_CustomDenial(t *testing.T) {
	custom := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "Retry-After", "X-RateLimit-Reset"} {
			require.NotEmpty(t, w.Header().Get(name))
		}
		w.Header().Set("X-RateLimit-Reset", "changed")
		w.WriteHeader(http.StatusTeapot)
		w.Write([]byte("slow down"))
	})
	for name, b := range map[string]*bench{
		"of the limit":  newFixed(t),
		"of the option": newFixed(t, func(c *FixedWindowConfig) { c.OnDenied = custom }),
	} {
		limits := PerMinute(1)
		if name == "of the limit" {
			limits = limits.Response(custom)
		}
		h := b.named("n", always(limits))
		require.Equal(t, "200 L1 R0", summary(send(h)), name)
		w := send(h)
		require.Equal(t, "418 L1 R0 RA60 RSchanged", summary(w), name)
		require.Equal(t, "slow down", w.Body.String(), name)
	}
}

func TestCase22_EveryStatusCounts(t *testing.T) {
	b := newFixed(t)
	h := b.spec("3,1")
	require.Equal(t, "404 L3 R2", summary(send(h, guest(status(404)))))
	require.Equal(t, "500 L3 R1", summary(send(h, guest(status(500)))))
}

func TestCase23_After(t *testing.T) {
	b := newFixed(t)
	h := b.named("n", always(PerMinute(1).After(func(code int) bool { return code == 404 })))
	b.run(h, step{0, "200 L1 R1"})
	b.runWith(h, status(404), step{1, "404 L1 R0"})
	b.run(h, step{2, "429 L1 R0 RA59 RS946684861"})
	require.Equal(t, 2, b.runs, "a denied request does not reach the handler")
	b.run(h, step{61, "200 L1 R1"})
	require.Equal(t, []string{"admitted n", "gave back n", "admitted n", "denied n", "admitted n", "gave back n"}, b.outcomes())
}

func TestCase24_AfterAndCustomDenial(t *testing.T) {
	b := newFixed(t)
	h := b.named("n", always(PerMinute(1).After(func(code int) bool { return code == 404 }).Response(b.handler(402))))
	require.Equal(t, "404 L1 R0", summary(send(h, guest(status(404)))))
	require.Equal(t, "402 L1 R0 RA60 RS946684860", summary(send(h)))
}

func TestCase25_NestedInnerIsTighter(t *testing.T) {
	b := newFixed(t)
	b.run(b.spec("10,1,o", "2,1,i"),
		step{0, "200 L2 R1"}, step{1, "200 L2 R0"}, step{2, "429 L2 R0 RA58 RS946684860"})
	require.Equal(t, "200 L10 R6", summary(send(b.spec("10,1,o"))), "the outer one has used 3 before")
}

func TestCase26_NestedOuterIsTighter(t *testing.T) {
	b := newFixed(t)
	w := send(b.spec("2,1,o", "10,1,i"))
	require.Equal(t, "200 L2 R1", summary(w))
	for name, values := range w.Header() {
		require.Len(t, values, 1, name)
	}
}

func TestCase27_JSON(t *testing.T) {
	const body = "{\n    \"message\": \"Too Many Attempts.\"\n}"
	for _, header := range []map[string]string{
		{"Accept": "application/json"},
		{"Accept": "application/vnd.api+json"},
		{"Accept": "*/*", "X-Requested-With": "XMLHttpRequest"},
	} {
		b := newFixed(t)
		h := b.spec("0,1")
		w := send(h, guest(func(r *http.Request) {
			for name, value := range header {
				r.Header.Set(name, value)
			}
		}))
		require.Equal(t, "429 L0 R0 RA60 RS946684860", summary(w), header)
		require.Equal(t, "application/json", w.Header().Get("Content-Type"), header)
		require.Equal(t, body, w.Body.String(), header)
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	}

	b := newFixed(t)
	w := send(b.spec("0,1"))
	require.Equal(t, "text/plain; charset=utf-8", w.Header().Get("Content-Type"))
	require.Equal(t, "Too Many Attempts.", w.Body.String())
	w = send(b.spec("0,1"), guest(func(r *http.Request) { r.Method = http.MethodHead }))
	require.Equal(t, 429, w.Code)
	require.Empty(t, w.Body.String())
}

func TestCase28_IETFDraft11(t *testing.T) {
	b := newFixed(t, func(c *FixedWindowConfig) { c.Families = IETFDraft11 })
	h := b.named("api", always(PerMinute(3)))
	w := send(h)
	require.Equal(t, []string{`"api";q=3;w=60`}, w.Header().Values("RateLimit-Policy"))
	require.Equal(t, []string{`"api";r=2;t=60`}, w.Header().Values("RateLimit"))
	send(h)
	send(h)
	b.clock.Set(3 * time.Second)
	w = send(h)
	require.Equal(t, "429 RA57", summary(w))
	require.Equal(t, []string{`"api";q=3;w=60`}, w.Header().Values("RateLimit-Policy"))
	require.Equal(t, []string{`"api";r=0;t=57`}, w.Header().Values("RateLimit"))
}

func TestCase29_IETFDraft6(t *testing.T) {
	b := newFixed(t, func(c *FixedWindowConfig) { c.Families = IETFDraft6 })
	w := send(b.named("api", always(PerMinute(3))))
	for name, value := range map[string]string{
		"RateLimit-Limit": "3", "RateLimit-Remaining": "2", "RateLimit-Reset": "60", "RateLimit-Policy": "3;w=60",
	} {
		require.Equal(t, []string{value}, w.Header().Values(name), name)
	}
}

func TestCase29_RollingIETFDraft11(t *testing.T) {
	b, h := newRolling(t, func(c *Config) { c.Families = IETFDraft11 },
		Policy{Name: "api", Limit: 3, Window: time.Minute, Key: ByIP})
	w := send(h)
	require.Equal(t, []string{`"api";q=3;w=60`}, w.Header().Values("RateLimit-Policy"))
	require.Equal(t, []string{`"api";r=2;t=66`}, w.Header().Values("RateLimit"))
	send(h)
	send(h)
	b.clock.Set(3 * time.Second)
	w = send(h)
	require.Equal(t, "429 RA63", summary(w))
	require.Equal(t, []string{`"api";r=0;t=63`}, w.Header().Values("RateLimit"))
}

func TestCase30_ProblemJSON(t *testing.T) {
	b := newFixed(t, func(c *FixedWindowConfig) { c.Body = ProblemJSON })
	h := b.named("api", always(PerMinute(1)))
	send(h)
	w := send(h)
	require.Equal(t, 429, w.Code)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.JSONEq(t, `{
		"type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
		"title": "Quota Exceeded",
		"status": 429,
		"violated-policies": ["api"]
	}`, w.Body.String())
}

func TestCase31_TrustedPrefix(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for _, c := range []struct {
		peer  string
		lines []string
		want  string
	}{
		{"6.6.6.6:1", []string{"1.1.1.1"}, "6.6.6.6"},
		{"10.0.0.1:1", nil, "10.0.0.1"},
		{"10.0.0.1:1", []string{"9.9.9.9, 1.1.1.1"}, "1.1.1.1"},
		{"10.0.0.1:1", []string{"9.9.9.9", "1.1.1.1"}, "1.1.1.1"},
		{"10.0.0.1:1", []string{"9.9.9.9, 1.1.1.1, 10.0.0.2"}, "1.1.1.1"},
		{"10.0.0.1:1", []string{"9.9.9.9, 1.1.1.1, ::ffff:10.0.0.2"}, "1.1.1.1"},
		{"10.0.0.1:1", []string{"9.9.9.9, 1.1.1.1,"}, "1.1.1.1"},
		{"10.0.0.1:1", []string{"1.1.1.1:5555"}, "1.1.1.1"},
		{"[::ffff:10.0.0.1]:1", []string{"1.1.1.1"}, "1.1.1.1"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = c.peer
		for _, line := range c.lines {
			r.Header.Add("X-Forwarded-For", line)
		}
		require.Equal(t, c.want, ClientIP(r, trusted), c)
	}
}

func TestCase32_UnixSocketAndHops(t *testing.T) {
	key := func(change func(*Options), peer string, lines ...string) string {
		b := newFixed(t, func(c *FixedWindowConfig) { change(&c.Options) })
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = peer
		r.Header["X-Forwarded-For"] = lines
		return b.fixed.ClientKey(r)
	}
	require.Equal(t, NoAddress, key(func(*Options) {}, "@", "9.9.9.9, 1.1.1.1"))
	require.Equal(t, "1.1.1.1", key(func(o *Options) { o.TrustUnixSocket = true }, "@", "9.9.9.9, 1.1.1.1"))

	two := func(o *Options) { o.Hops = 2 }
	for _, peer := range []string{"6.6.6.6:1", "10.0.0.1:1", "[2001:db8::1]:1"} {
		require.Equal(t, "8.8.8.8", key(two, peer, "9.9.9.9, 8.8.8.8, 10.0.0.2"))
	}
	require.Equal(t, "6.6.6.6", key(two, "6.6.6.6:1", "9.9.9.9"))
}

// barrier sends n requests at once and returns their summaries, sorted.
func barrier(h http.Handler, n int, r func(i int) *http.Request) []string {
	var start, done sync.WaitGroup
	start.Add(1)
	summaries := make([]string, n)
	for i := range n {
		done.Go(func() {
			start.Wait()
			summaries[i] = summary(send(h, r(i)))
		})
	}
	start.Done()
	done.Wait()
	slices.Sort(summaries)
	return summaries
}

func sameGuest(int) *http.Request { return guest() }

func TestCase33_Barrier(t *testing.T) {
	for _, store := range stores {
		t.Run(store.name, func(t *testing.T) {
			for range 50 {
				b := newFixed(t, store.change)
				h := b.fixed.MustMiddleware("1,1")(b.handler(http.StatusOK))
				got := barrier(h, 32, sameGuest)
				require.Equal(t, 1, b.runs)
				require.Equal(t, "200 L1 R0", got[0])
				require.Equal(t, slices.Repeat([]string{"429 L1 R0 RA60 RS946684860"}, 31), got[1:])
			}
		})
	}
}

func TestCase34_ExactlyTheLimit(t *testing.T) {
	b := newFixed(t)
	got := barrier(b.spec("10,1"), 100, sameGuest)
	for i := range 10 {
		require.Equal(t, fmt.Sprintf("200 L10 R%d", i), got[i])
	}
	require.Equal(t, slices.Repeat([]string{"429 L10 R0 RA60 RS946684860"}, 90), got[10:])
}

func TestCase34_DeniedRequestsTakeNothing(t *testing.T) {
	b := newFixed(t)
	h := b.named("n", always(All(PerMinute(1000).By("wide"), PerMinute(10).By("narrow"))))
	got := barrier(h, 100, sameGuest)
	require.Equal(t, 10, b.runs)
	require.Equal(t, slices.Repeat([]string{"429 L10 R0 RA60 RS946684860"}, 90), got[10:])
	results := make([]limiter.StoreResult, 1)
	key := (&namedRule{label: "n"}).key(0, "wide")
	b.fixed.multi.AttemptMany([]limiter.StoreItem{{Key: key, Max: 1000, Decay: time.Minute}}, results)
	require.Equal(t, 11, results[0].Attempts, "the wide limit has counted the admitted ones only")
}

func TestCase35_StoreError(t *testing.T) {
	secret := errors.New("password of the database")
	failing := func(policy OnStoreError) func(*FixedWindowConfig) {
		return func(c *FixedWindowConfig) {
			c.Store = &failingStore{newPlainStore(c.Clock), secret}
			c.OnStoreError = policy
		}
	}
	for policy, want := range map[OnStoreError]string{AdmitOnError: "200", DenyOnError: "503 RA1"} {
		b := newFixed(t, failing(policy))
		w := send(b.spec("5,1"))
		require.Equal(t, want, summary(w))
		require.Equal(t, []string{"failed inline"}, b.outcomes())
		require.ErrorIs(t, b.events[0].Err, secret)
		require.NotContains(t, w.Body.String()+fmt.Sprint(w.Header()), "password")
	}

	var config FixedWindowConfig
	failing(0)(&config)
	_, err := NewFixedWindowLimiter(config)
	require.ErrorIs(t, err, limiter.ErrConfig)
	require.True(t, strings.Contains(err.Error(), "AdmitOnError") && strings.Contains(err.Error(), "DenyOnError"), err)
}

func TestCase35_StoreThatWorks(t *testing.T) {
	b := newFixed(t, func(c *FixedWindowConfig) {
		c.Store, c.OnStoreError = &failingStore{plainStore: newPlainStore(c.Clock)}, DenyOnError
	})
	b.run(b.spec("1,1"), step{0, "200 L1 R0"}, step{1, "429 L1 R0 RA59 RS946684860"})
}
