package middleware

import (
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// keyOf returns what a request is counted under.
func keyOf(t *testing.T, key KeyFunc, r *http.Request) string {
	b, h := newRolling(t, nil, Policy{Name: "n", Limit: 1, Window: time.Minute, Key: key})
	send(h, r)
	return b.events[0].Key
}

func TestKeys(t *testing.T) {
	require.Equal(t, "192.0.2.10", keyOf(t, ByIP, guest()))
	require.Equal(t, "2001:db8:1:2::/64", keyOf(t, ByIP, from("[2001:db8:1:2::1]")))
	require.Equal(t, "v:secret", keyOf(t, ByHeader("x-api-key"), guest(with("X-Api-Key", "secret"))))
	require.Equal(t, "192.0.2.10", keyOf(t, ByHeader("X-Api-Key"), guest()), "never unlimited")
	require.Equal(t, "192.0.2.10", keyOf(t, ByHeader("X-Api-Key"), guest(with("X-Api-Key", ""))))

	part := func(s string) KeyFunc { return func(Request) string { return s } }
	require.Equal(t, "1:a2:bc", keyOf(t, Join(part("a"), part("bc")), guest()))
	require.Equal(t, "2:ab1:c", keyOf(t, Join(part("ab"), part("c")), guest()))
	require.NotEqual(t, keyOf(t, Join(part("1:a"), part("")), guest()), keyOf(t, Join(part("1"), part("a")), guest()))
	require.Equal(t, "10:192.0.2.103:GET", keyOf(t, Join(ByIP, func(r Request) string { return r.Method }), guest()))

	for _, key := range []KeyFunc{ByHeader(""), ByHeader("a b"), ByHeader("a\n"), ByHeader("ä"), Join(), Join(ByIP, nil)} {
		require.Nil(t, key)
	}
}

func TestByPattern(t *testing.T) {
	b, options := newBench(t)
	m, err := New(Config{Options: options, Policies: []Policy{{Name: "n", Limit: 2, Window: time.Minute, Key: ByPattern}}})
	require.NoError(t, err)
	defer m.Close()
	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", m.Handler(b.handler(200)))
	mux.Handle("/", m.Handler(b.handler(200)))
	path := func(path string) *http.Request {
		return guest(func(r *http.Request) { r.URL.Path = path })
	}
	require.Equal(t, "200 L2 R1", summary(send(mux, path("/users/1"))))
	require.Equal(t, "200 L2 R0", summary(send(mux, path("/users/2"))), "the pattern, not the path")
	require.Equal(t, 429, send(mux, path("/users/3")).Code)
	require.Equal(t, "200 L2 R1", summary(send(mux, path("/else"))))
	require.Empty(t, b.log.String())

	inside := http.NewServeMux()
	inside.Handle("/", b.handler(200))
	outside := m.Handler(inside)
	require.Equal(t, "200 L2 R1", summary(send(outside, path("/users/1"))))
	require.Equal(t, "200 L2 R0", summary(send(outside, path("/else"))))
	require.Equal(t, 429, send(outside, path("/third")).Code, "one shared bucket")
	require.Equal(t, 1, strings.Count(b.log.String(), "no ServeMux pattern"))
}

// TestRequest_MadeElsewhere: a KeyFunc can be tested on its own.
func TestRequest_MadeElsewhere(t *testing.T) {
	r := Request{Request: from("2001:db8:1:2:3::4")}
	require.Equal(t, "2001:db8:1:2::/64", r.ClientKey())
	require.Equal(t, "2001:db8:1:2::/64", ByIP(r))
	require.Equal(t, "2001:db8:1:2::/64", ByHeader("X-Api-Key")(r))
	require.Equal(t, "no-pattern", ByPattern(r))
}

func TestInternal(t *testing.T) {
	for addr, want := range map[string]bool{
		"9.255.255.255": false, "10.0.0.0": true, "10.255.255.255": true, "11.0.0.0": false,
		"127.0.0.1": true, "126.0.0.1": false, "128.0.0.1": false,
		"100.63.255.255": false, "100.64.0.0": true, "100.127.255.255": true, "100.128.0.0": false,
		"169.253.1.1": false, "169.254.1.1": true, "172.15.1.1": false, "172.16.0.0": true, "172.31.255.255": true, "172.32.0.0": false,
		"192.167.1.1": false, "192.168.1.1": true, "192.0.2.1": false,
		"::1": true, "fe80::1": true, "fd00::1": true, "fc00::1": true, "2001:db8::1": false,
	} {
		require.Equal(t, want, internal(netip.MustParseAddr(addr)), addr)
	}
}

func TestWarnings_GoToTheDefaultLogger(t *testing.T) {
	var log strings.Builder
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	b := newFixed(t, func(c *FixedWindowConfig) { c.Logger = nil })
	send(b.spec("1,1"), from("@"))
	require.Contains(t, log.String(), "no address")
}

// Without an observer each policy that fails is logged, and only once; a panic
// with where it was.
func TestWarnings_FailuresOfEachPolicy(t *testing.T) {
	b := newFixed(t, func(c *FixedWindowConfig) { c.Observer = nil })
	require.NoError(t, b.fixed.Named("first", always(Limits{})))
	require.NoError(t, b.fixed.Named("second", func(*http.Request) Limits { panic("a mistake") }))
	for _, name := range []string{"first", "second", "first", "second"} {
		require.Equal(t, "500", summary(send(b.spec(name))))
	}
	require.Equal(t, 1, strings.Count(b.log.String(), "policy=first"), b.log.String())
	require.Equal(t, 1, strings.Count(b.log.String(), "policy=second"), b.log.String())
	require.Regexp(t, `error="panic: a mistake" stack="goroutine .*key_test\.go`, b.log.String())
}

func TestKeys_EmptyIsOneKeyAndAWarning(t *testing.T) {
	b, h := newRolling(t, nil, Policy{Name: "n", Limit: 2, Window: time.Minute, Key: func(Request) string { return "" }})
	require.Equal(t, "200 L2 R1", summary(send(h, from("192.0.2.1"))))
	require.Equal(t, "200 L2 R0", summary(send(h, from("192.0.2.2"))))
	require.Equal(t, 429, send(h).Code)
	require.Equal(t, 1, strings.Count(b.log.String(), "key of a request is empty"))
}

func TestHasher_Bound(t *testing.T) {
	h, other := newHasher(), newHasher()
	short := strings.Repeat("x", maxKey)
	require.Equal(t, short, h.bound(short))
	long := short + "x"
	hash := h.bound(long)
	require.Len(t, hash, 66)
	require.Equal(t, hash, h.bound(long))
	require.NotEqual(t, hash, h.bound(long+"x"))
	require.NotEqual(t, hash, other.bound(long), "the seed is random")
	require.NotEqual(t, hash, h.bound(hash), "a key that looks like a hash is none")
	require.Equal(t, "", h.bound(""))
}
