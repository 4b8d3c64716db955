package middleware

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringfence-go/ringfence/limiter"
)

func TestFields_ValuesStayTheResponses(t *testing.T) {
	b := newFixed(t)
	h := b.spec("5000,1")
	var responses []*httptest.ResponseRecorder
	for range 3000 {
		w := send(h)
		w.Header()["X-Ratelimit-Limit"] = append(w.Header()["X-Ratelimit-Limit"], "added by somebody")
		w.Header()["X-Ratelimit-Limit"][0] = "changed by somebody"
		responses = append(responses, w)
	}
	for i, w := range responses {
		require.Equal(t, []string{fmt.Sprint(4999 - i)}, w.Header()["X-Ratelimit-Remaining"])
		require.Equal(t, []string{"changed by somebody", "added by somebody"}, w.Header()["X-Ratelimit-Limit"])
	}
	require.Equal(t, "200 L5000 R1999", summary(send(h)))
}

func TestFamilies_Lists(t *testing.T) {
	limits := All(Per(3, 500*time.Millisecond), Per(9, 1500*time.Millisecond), PerHour(0))
	for families, want := range map[Families][3]string{
		IETFDraft6: {"3, 9;w=2, 0;w=3600", "", "3600"},
		IETFDraft11: {
			`"a\"\\b ~";q=3, "a\"\\b ~-2";q=9;w=2, "a\"\\b ~-3";q=0;w=3600`,
			`"a\"\\b ~-3";r=0;t=3600`,
			"3600",
		},
	} {
		b := newFixed(t, func(c *FixedWindowConfig) { c.Families = families })
		w := send(b.named(`a"\b ~`, always(limits)))
		require.Equal(t, []string{want[0]}, w.Header().Values("RateLimit-Policy"))
		require.Equal(t, want[1], w.Header().Get("RateLimit"))
		require.Equal(t, want[2], w.Header().Get("Retry-After"))
	}
}

func TestFamilies_ListsOfNestedLimiters(t *testing.T) {
	for families, want := range map[Families][2]string{
		IETFDraft6:  {"9;w=60, 2;w=60", ""},
		IETFDraft11: {`"o";q=9;w=60, "i";q=2;w=60`, `"o";r=8;t=60, "i";r=1;t=60`},
	} {
		b := newFixed(t, func(c *FixedWindowConfig) { c.Families = families })
		h := b.spec("9,1,o", "2,1,i")
		w := send(h)
		require.Equal(t, []string{want[0]}, w.Header().Values("RateLimit-Policy"))
		require.Equal(t, want[1], w.Header().Get("RateLimit"))
		send(h)
		b.clock.Set(10 * time.Second)
		w = send(h)
		require.Equal(t, "50", w.Header().Get("Retry-After"))
		require.Equal(t, []string{want[0]}, w.Header().Values("RateLimit-Policy"))
		if families == IETFDraft11 {
			require.Equal(t, []string{`"i";r=0;t=50`}, w.Header().Values("RateLimit"), "no t above Retry-After")
		} else {
			require.Equal(t, "2/0/50", w.Header().Get("RateLimit-Limit")+"/"+w.Header().Get("RateLimit-Remaining")+"/"+w.Header().Get("RateLimit-Reset"))
		}
	}
}

func TestFamilies_NamesOfDraft11(t *testing.T) {
	for _, name := range []string{"jôhn", "a\nb", "a\x7f", "\xff"} {
		b := newFixed(t, func(c *FixedWindowConfig) { c.Families = IETFDraft11 })
		require.ErrorContains(t, b.fixed.Named(name, always(NoLimits())), "printable")
		_, err := b.fixed.Middleware("1,1," + name)
		require.ErrorContains(t, err, "printable")
		_, err = New(Config{Options: Options{Families: IETFDraft11}, Policies: []Policy{{Name: name, Window: 1e9, Key: ByIP}}})
		require.ErrorContains(t, err, "printable")

		b = newFixed(t)
		require.NoError(t, b.fixed.Named(name, always(NoLimits())), "the name is not sent")
	}
}

func TestFamilies_LargeIntegers(t *testing.T) {
	_, h := newRolling(t, func(c *Config) { c.Families = Legacy | IETFDraft11 },
		Policy{Name: "large", Limit: 1e15, Window: 1000 * time.Hour, Slots: 1, Key: ByIP},
		Policy{Name: "small", Limit: 5, Window: time.Hour, Key: ByIP})
	w := send(h)
	require.Equal(t, `"small";q=5;w=3600`, w.Header().Get("RateLimit-Policy"))
	require.Equal(t, `"small";r=4;t=3960`, w.Header().Get("RateLimit"))

	for _, families := range []Families{IETFDraft6, IETFDraft11} {
		_, h = newRolling(t, func(c *Config) { c.Families = families },
			Policy{Name: "large", Limit: 1e15, Window: 1000 * time.Hour, Slots: 1, Key: ByIP})
		require.Empty(t, send(h).Header(), "an integer of a structured field has at most 15 digits")
	}
}

func TestHeaders_NestedTieIsTheInner(t *testing.T) {
	for _, families := range []Families{Legacy, IETFDraft6} {
		b := newFixed(t, func(c *FixedWindowConfig) { c.Families = families })
		outer, both := b.spec("5,1,o"), b.spec("5,1,o", "4,1,i")
		send(outer)
		h := send(both).Header()
		require.Equal(t, "43", h.Get("X-RateLimit-Limit")+h.Get("X-RateLimit-Remaining")+h.Get("RateLimit-Limit")+h.Get("RateLimit-Remaining"))
	}
}

func TestHeaders_NestedDoesNotTrustNonsense(t *testing.T) {
	b := newFixed(t)
	h := b.spec("5,1")
	for _, value := range []string{"", "x", "-1", "99999999999999999999"} {
		b.clock.Advance(time.Minute)
		w := httptest.NewRecorder()
		w.Header().Set("X-RateLimit-Remaining", value)
		h.ServeHTTP(w, guest())
		require.Equal(t, "200 L5 R4", summary(w), value)
	}
}

func TestHeaders_Seconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, limiter.Never: 9223372037,
	} {
		require.Equal(t, want, seconds(d), d)
	}
	require.EqualValues(t, 1, unixSeconds(time.Unix(0, 1)))
	require.EqualValues(t, 1, unixSeconds(time.Unix(1, 0)))
	require.EqualValues(t, 0, unixSeconds(time.Unix(-1, 1)))
}

func TestExposedHeaders_AreAllThatAreSet(t *testing.T) {
	exposed := map[string]bool{}
	for _, name := range ExposedHeaders() {
		exposed[http.CanonicalHeaderKey(name)] = true
	}
	for _, families := range []Families{Legacy | IETFDraft6, Legacy | IETFDraft11} {
		b := newFixed(t, func(c *FixedWindowConfig) { c.Families = families })
		for name := range send(b.spec("0,1")).Header() {
			require.True(t, exposed[name] || name == "Content-Type" || name == "Cache-Control", name)
		}
	}
}
