package middleware

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringfence-go/ringfence/limiter"
)

func TestPrefersJSON(t *testing.T) {
	for _, c := range []struct {
		accept []string
		script string
		want   bool
	}{
		{nil, "", false},
		{nil, "XMLHttpRequest", true},
		{nil, "xmlhttprequest", true},
		{nil, "fetch", false},
		{[]string{"*/*"}, "", false},
		{[]string{"*"}, "XMLHttpRequest", true},
		{[]string{"text/html"}, "XMLHttpRequest", false},
		{[]string{"text/html, */*"}, "XMLHttpRequest", false},
		{[]string{"application/json"}, "", true},
		{[]string{"Application/JSON; charset=utf-8"}, "", true},
		{[]string{"text/json"}, "", true},
		{[]string{"application/vnd.api+json"}, "", true},
		{[]string{"application/+json"}, "", false},
		{[]string{"application/jsonp"}, "", false},
		{[]string{"application/json-seq"}, "", false},
		{[]string{"text/html, application/json"}, "", false},
		{[]string{"text/html;q=0.9, application/json"}, "", true},
		{[]string{"text/html;q=0.9", "application/json"}, "", true},
		{[]string{"text/html; Q=0.899 , application/json;q=0.9"}, "", true},
		{[]string{"application/json;q=0.8, text/html;q=0.9"}, "", false},
		{[]string{"application/json;q=0"}, "", false},
		{[]string{"application/json;q=bad"}, "", false},
		{[]string{"application/json;q=1.001"}, "", true},
		{[]string{"application/json;q=0.1234"}, "", false},
		{[]string{"application/json;q=-1"}, "", false},
		{[]string{`text/html;x="a, application/json", */json`}, "", false},
		{[]string{`text/html;q=0.1;x="a, b;q=1", */json;q=0.2`}, "", true},
		{[]string{`"`}, "", false},
		{[]string{",,,application/json"}, "", true},
		{[]string{strings.Repeat("a/b;q=0.1,", maxRanges-1) + "application/json"}, "", true},
		{[]string{strings.Repeat("a/b;q=0.1,", maxRanges) + "application/json"}, "", false},
		{[]string{";;;", "application/json;;;q=1"}, "", true},
	} {
		h := http.Header{}
		if c.accept != nil {
			h["Accept"] = c.accept
		}
		if c.script != "" {
			h.Set("X-Requested-With", c.script)
		}
		require.Equal(t, c.want, prefersJSON(h), "%q", c)
	}
}

func FuzzAccept(f *testing.F) {
	for _, accept := range []string{"", "*/*", "application/json;q=0.5,", `a/b;x="`, ";q=", "a;q=1.", "\xff/\x00+json"} {
		f.Add(accept, accept)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		prefersJSON(http.Header{"Accept": {first, second}})
		require.True(t, prefersJSON(http.Header{"Accept": {"a/json;q=1", first}}), "nothing is preferred to what comes first with 1")
		media, q := mediaRange(first)
		require.LessOrEqual(t, len(media), len(first))
		require.True(t, 0 <= q && q <= 1000)
	})
}

func TestDenial_Bodies(t *testing.T) {
	b := newFixed(t, func(c *FixedWindowConfig) { c.Body = ProblemJSON })
	h := b.named(`a"b`+"\n", always(All(PerMinute(1), PerMinute(9), PerHour(1))))
	send(h)
	w := send(h, guest(with("Accept", "text/html")))
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	var document struct {
		Policies []string `json:"violated-policies"`
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &document))
	require.Equal(t, []string{"a\"b\n", "a\"b\n-3"}, document.Policies)

	w = send(h, guest(func(r *http.Request) { r.Method = http.MethodHead }))
	require.Equal(t, 429, w.Code)
	require.Empty(t, w.Body.String())
	require.NotEmpty(t, w.Header().Get("Content-Type"))

	_, err := NewFixedWindowLimiter(FixedWindowConfig{Options: Options{Body: 2}})
	require.ErrorIs(t, err, limiter.ErrConfig)
}

func TestDenial_RollingProblem(t *testing.T) {
	_, h := newRolling(t, func(c *Config) { c.Body = ProblemJSON },
		Policy{Name: "a", Limit: 1, Window: time.Minute, Key: ByIP},
		Policy{Name: "b", Limit: 9, Window: time.Minute, Key: ByIP},
		Policy{Name: "c", Limit: 1, Window: time.Hour, Key: ByIP})
	send(h)
	w := send(h)
	require.Equal(t, "429 L1 R0 RA3960 RS946688760", summary(w), "the longest wait")
	require.Contains(t, w.Body.String(), `"violated-policies":["a","c"]`)
}
