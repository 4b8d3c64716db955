package middleware

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// KeyFunc returns the key that a request is counted under. It is called on every
// request, by many goroutines at once. Requests with equal keys share a counter,
// so a key that a client can choose freely buys that client a fresh limit
// whenever it likes: use only what something before the limiter has verified, or
// the address. Keys are bytes, compared as they are; long ones are stored as a
// hash. The empty key is one like any other, and a warning is logged.
type KeyFunc func(r Request) string

// Request is what a [KeyFunc] sees: the request, and the address that the
// middleware's options find for it. One that is made elsewhere, to test a KeyFunc,
// has the zero [Options].
type Request struct {
	*http.Request
	engine *engine
}

var zeroEngine = sync.OnceValue(func() *engine {
	e, _ := newEngine(&Options{})
	return e
})

// options returns the options at work.
func (r Request) options() *engine {
	if r.engine == nil {
		return zeroEngine()
	}
	return r.engine
}

// ClientKey returns the address of the client, masked: "192.0.2.10",
// "2001:db8:1:2::/64", or [NoAddress]. A key made of something else should begin
// with a byte that no address has, such as "u:".
func (r Request) ClientKey() string {
	return string(r.options().appendClient(make([]byte, 0, 64), r.Request))
}

// ByIP is the [KeyFunc] that makes every client address a key.
func ByIP(r Request) string { return r.ClientKey() }

// ByHeader returns a [KeyFunc] for a header field that identifies the caller, an
// API key for instance. A request without it is counted under its address. The
// field has to be verified before the limiter runs, or else a caller who makes
// up a new value for each request is never denied. For a name that is no header
// field name the result is nil, which [New] refuses.
func ByHeader(name string) KeyFunc {
	if !validHeaderName(name) {
		return nil
	}
	name = http.CanonicalHeaderKey(name)
	return func(r Request) string {
		if value := r.Header.Get(name); value != "" {
			return "v:" + value
		}
		return r.ClientKey()
	}
}

// ByPattern is the [KeyFunc] that makes every pattern of a [http.ServeMux] a key,
// whichever path matched it. The middleware has to be inside of the ServeMux for
// that, around its handlers; where there is no pattern all requests share one
// key, and a warning is logged.
func ByPattern(r Request) string {
	if r.Pattern != "" {
		return r.Pattern
	}
	r.options().warn(warnNoPattern, slog.LevelWarn,
		"ringfence: a request has no ServeMux pattern, all such requests share one limit; wrap the handlers instead of the mux")
	return "no-pattern" // no pattern is without a slash
}

// Join returns a [KeyFunc] that combines others: requests share a key if they
// share all parts of it. Parts are delimited by their lengths, so that ("a",
// "bc") is not ("ab", "c"). With no parts, which all requests would share, and
// with a nil one the result is nil, which [New] refuses.
func Join(parts ...KeyFunc) KeyFunc {
	if len(parts) == 0 || slices.ContainsFunc(parts, func(part KeyFunc) bool { return part == nil }) {
		return nil
	}
	return func(r Request) string {
		key := make([]byte, 0, maxKey)
		for _, part := range parts {
			key = appendPart(key, part(r))
		}
		return string(key)
	}
}

// validHeaderName reports whether name is a token as RFC 9110 has it.
func validHeaderName(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return name != ""
}

// appendPart appends a part of a key with its length before it.
func appendPart(key []byte, part string) []byte {
	key = strconv.AppendInt(key, int64(len(part)), 10)
	key = append(key, ':')
	return append(key, part...)
}

// appendClient appends the masked address of r's client.
func (e *engine) appendClient(b []byte, r *http.Request) []byte {
	addr, stranger := e.client(r)
	if !addr.IsValid() {
		text := "ringfence: a peer has no address, all such peers share one limit; set TrustUnixSocket if they are proxies"
		if e.unix {
			text = "ringfence: a proxy on a unix socket names no client in " + e.header + ", all such requests share one limit"
		}
		e.warn(warnNoAddress, slog.LevelWarn, text)
		return append(b, NoAddress...)
	}
	if stranger && !e.warned[warnUntrusted].Load() && internal(addr) && forwarded(r.Header) {
		e.warn(warnUntrusted, slog.LevelWarn,
			"ringfence: headers about the client's address are ignored, since the peer is not trusted; "+
				"if it is a proxy, all its clients share one limit until Trusted or Hops is set",
			slog.String("peer", addr.String()))
	}
	return e.appendKey(b, addr)
}

// internal reports whether addr is one that a proxy of the operator's own could
// have: loopback, link-local, private, or of the address space that carriers and
// some clouds use inside (RFC 6598).
func internal(addr netip.Addr) bool {
	if !addr.Is4() {
		return addr.IsPrivate() || addr.IsLoopback() || addr.IsLinkLocalUnicast()
	}
	switch a := addr.As4(); a[0] {
	case 10, 127:
		return true
	case 100:
		return a[1]&0xc0 == 64
	case 169:
		return a[1] == 254
	case 172:
		return a[1]&0xf0 == 16
	case 192:
		return a[1] == 168
	}
	return false
}

// forwarded reports whether a proxy has left a trace in the headers.
func forwarded(h http.Header) bool {
	return h[forwardedForHeader] != nil || h[forwardedHeader] != nil || h["X-Real-Ip"] != nil
}

const (
	// maxKey is the length in bytes of the longest key that is stored as it is.
	maxKey = 128
	// hashMark begins a key that is a hash.
	hashMark = "h:"
)

// hasher bounds the length of keys. Its seed is random and secret, so that
// nobody can look for two keys with one hash beforehand.
type hasher struct{ seed [sha256.Size]byte }

func newHasher() (h hasher) {
	rand.Read(h.seed[:]) // never fails: see crypto/rand
	return h
}

// bound returns key, or where it is long a keyed 256-bit hash of it. Short keys
// that look like a hash are hashed as well, so that neither passes for the other.
func (h *hasher) bound(key string) string {
	if len(key) <= maxKey && !strings.HasPrefix(key, hashMark) {
		return key
	}
	mac := hmac.New(sha256.New, h.seed[:])
	mac.Write([]byte(key))
	return hashMark + hex.EncodeToString(mac.Sum(nil))
}
