package middleware

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// This file alone decides which address a request came from. The rule is short:
// a header is believed only as far as hops that the operator trusts vouch for
// it. Everything left of the first hop that is not trusted was written by a
// stranger, and is never looked at.

// NoAddress stands for the address of a peer that has none, such as the other
// end of a unix socket. All such peers share it.
const NoAddress = "no-address"

const (
	forwardedForHeader = "X-Forwarded-For"
	forwardedHeader    = "Forwarded"
)

// singleValueHeaders are the headers that proxies set to one address, the
// client's. Some vendors let a value through that the client sent: whoever
// chooses one has to see to it that the proxy overwrites it.
var singleValueHeaders = []string{
	"Ali-Cdn-Real-Ip", "Cf-Connecting-Ip", "Do-Connecting-Ip", "Fastly-Client-Ip", "Fly-Client-Ip", "Incap-Client-Ip",
	"True-Client-Ip", "X-Appengine-User-Ip", "X-Azure-Clientip", "X-Client-Ip", "X-Cluster-Client-Ip",
	"X-Envoy-External-Address", "X-Nf-Client-Connection-Ip", "X-Real-Ip", "X-Sucuri-Clientip",
}

const (
	maxElements = 32 // elements of the header that are looked at
	maxElement  = 64 // bytes of one that can be an address: "[", 45, "]:65535" is the longest
)

// ClientIP returns the address of the client that sent r. That is the peer,
// r.RemoteAddr, unless one of the trusted prefixes contains it. Then it is found
// in X-Forwarded-For, all lines of it, from the right: the first address that is
// not trusted. A proxy appends the address that it was called from, so what is
// further left could be anything, and is ignored. An element that is no address
// ends the search, and so do 32 elements: the client is then the last trusted
// hop seen.
//
// The result is an address in its usual text form, without a port or a zone,
// IPv4 where it is an IPv4-mapped IPv6 address, or [NoAddress] where the peer has
// none. Trusted prefixes that are invalid or contain every address (/0) are
// ignored; an IPv4-mapped one is read as IPv4. [Options] has more ways to find
// the address.
func ClientIP(r *http.Request, trusted []netip.Prefix) string {
	s := source{trusted: trusted, header: forwardedForHeader}
	addr, _ := s.client(r)
	if !addr.IsValid() {
		return NoAddress
	}
	return addr.String()
}

// source says where the address of a request's client comes from.
type source struct {
	trusted []netip.Prefix
	hops    int    // 0: by trusted
	header  string // in canonical spelling
	unix    bool   // a peer without an address is trusted
}

// newSource returns the source that the options describe, or what is wrong with
// them.
func newSource(o *Options) (source, []error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	s := source{trusted: slices.Clone(o.Trusted), hops: o.Hops, header: forwardedForHeader, unix: o.TrustUnixSocket}
	for i, p := range o.Trusted {
		if _, ok := usable(p); !ok {
			fault("Trusted[%d] is %v, want a valid prefix that does not contain every address", i, p)
		}
	}
	if o.Hops < 0 || o.Hops > maxElements {
		fault("Hops is %d, want 0 to %d", o.Hops, maxElements)
	}
	if o.Hops != 0 && len(o.Trusted) > 0 {
		fault("Hops is %d and Trusted has %d prefixes, want one of the two", o.Hops, len(o.Trusted))
	}
	if o.Header == "" {
		return s, faults
	}

	s.header = http.CanonicalHeaderKey(o.Header)
	switch {
	case s.header != forwardedForHeader && s.header != forwardedHeader && !slices.Contains(singleValueHeaders, s.header):
		fault("Header is %q, want %s, %s or one of %s", o.Header,
			forwardedForHeader, forwardedHeader, strings.Join(singleValueHeaders, ", "))
	case o.Hops == 0 && len(o.Trusted) == 0 && !o.TrustUnixSocket:
		fault("Header is %q, which is never read without Trusted, Hops or TrustUnixSocket", o.Header)
	case o.Hops > 1 && s.single():
		fault("Hops is %d, want at most 1 with the single value of %s", o.Hops, o.Header)
	}
	return s, faults
}

// single reports whether the header has one address as its value, not a list.
func (s *source) single() bool { return s.header != forwardedForHeader && s.header != forwardedHeader }

// client returns the address of r's client, unmapped and without a zone, or the
// zero Addr for a peer without an address that is not trusted either. stranger
// reports that it is the peer's, which is not trusted, so that no header was
// read.
func (s *source) client(r *http.Request) (addr netip.Addr, stranger bool) {
	peer := peerAddr(r.RemoteAddr)
	switch {
	case !peer.IsValid():
		if !s.unix {
			return peer, true
		}
	case s.hops == 0 && !s.trusts(peer):
		return peer, true
	}

	client := peer // the last hop that is vouched for
	path := backwards{lines: r.Header[s.header], header: s.header}
	for n := 1; n <= maxElements; n++ {
		element, ok := path.next()
		if !ok {
			break
		}
		hop := parseElement(element)
		switch {
		case !hop.IsValid():
			return client, false
		case s.hops > 0:
			if n == s.hops {
				return hop, false
			}
		case s.trusts(hop):
			client = hop
		default:
			return hop, false
		}
	}
	return client, false
}

// trusts reports whether a trusted prefix contains addr.
func (s *source) trusts(addr netip.Addr) bool {
	for _, p := range s.trusted {
		if p, ok := usable(p); ok && p.Contains(addr) {
			return true
		}
	}
	return false
}

// usable returns p, as IPv4 if it is IPv4-mapped, and whether it is a prefix of
// some addresses but not of all.
func usable(p netip.Prefix) (netip.Prefix, bool) {
	if p.Addr().Is4In6() {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96) // invalid if that is below 0
	}
	return p, p.IsValid() && p.Bits() > 0
}

// peerAddr returns the address in a RemoteAddr, which normally has a port, or
// the zero Addr if there is none.
func peerAddr(remote string) netip.Addr {
	host := remote
	if colon := strings.LastIndexByte(remote, ':'); colon > 0 {
		switch {
		case remote[0] == '[' && remote[colon-1] == ']':
			host = remote[1 : colon-1]
		case strings.IndexByte(remote, ':') == colon: // the only one, so not of IPv6
			host = remote[:colon]
		}
	}
	addr, _ := netip.ParseAddr(host)
	return addr.Unmap().WithZone("")
}

// parseElement returns the address that one element of the header names, with or
// without a port or brackets, or the zero Addr if it is none that a client can
// have.
func parseElement(s string) netip.Addr {
	if len(s) > maxElement {
		return netip.Addr{}
	}
	addr, err := netip.ParseAddr(s)
	if err != nil {
		if inner, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(s, "]") {
			addr, _ = netip.ParseAddr(inner[:len(inner)-1])
			if addr.Is4() {
				return netip.Addr{}
			}
		} else {
			ap, _ := netip.ParseAddrPort(s)
			addr = ap.Addr()
		}
	}
	if addr.Zone() != "" || addr.Unmap().IsUnspecified() {
		return netip.Addr{}
	}
	return addr.Unmap()
}

// backwards goes through the elements of a header from the last to the first.
type backwards struct {
	lines  []string // not begun yet
	header string
	rest   string              // what is left of the line begun, except for Forwarded
	fors   [maxElements]string // the for parameters of the Forwarded line begun, element i at i % maxElements
	left   int                 // how many of them are left
}

// next returns the next element to the left. For Forwarded it is the value of
// the for parameter, "" if the element has no single one that can be read.
func (b *backwards) next() (element string, ok bool) {
	for {
		if b.left > 0 {
			b.left--
			return b.fors[b.left%maxElements], true
		}
		if b.rest != "" {
			comma := strings.LastIndexByte(b.rest, ',')
			element, b.rest = trim(b.rest[comma+1:]), b.rest[:max(comma, 0)]
			if element != "" {
				return element, true
			}
			continue
		}
		if len(b.lines) == 0 {
			return "", false
		}
		last := len(b.lines) - 1
		line := b.lines[last]
		b.lines = b.lines[:last]
		switch b.header {
		case forwardedForHeader:
			b.rest = line
		case forwardedHeader:
			b.begin(line)
		default: // a single value
			if element = trim(line); element != "" {
				return element, true
			}
		}
	}
}

// begin reads a line of Forwarded: elements between commas, parameters between
// semicolons, neither of which counts inside of quotes. It has to be read from
// the left, for only then is it known where quotes begin. A line whose quotes do
// not end is void, all of it, which counts as one element that is no address.
func (b *backwards) begin(line string) {
	var value string         // of the element's for parameter
	var params, readable int // parameters of the element; those that are for
	for {
		n, closed := scan(line, ',', ';')
		if !closed {
			b.fors[0], b.left = "", 1
			return
		}
		if param := trim(line[:n]); param != "" {
			params++
			if name, v, _ := strings.Cut(param, "="); strings.EqualFold(name, "for") {
				readable++
				value = unquote(v)
			}
		}
		if n == len(line) || line[n] == ',' {
			if params > 0 {
				if readable != 1 {
					value = ""
				}
				b.fors[b.left%maxElements] = value
				b.left++
			}
			params, readable = 0, 0
		}
		if n == len(line) {
			return // the last maxElements are kept, and nobody asks for more
		}
		line = line[n+1:]
	}
}

// scan returns the length of s up to the first of two separators that is not
// inside of quotes, or of all of s, and whether the quotes are closed there. A
// backslash inside of quotes takes away the meaning of what follows it.
func scan(s string, sep1, sep2 byte) (n int, closed bool) {
	quoted := false
	for n < len(s) && (quoted || s[n] != sep1 && s[n] != sep2) {
		switch {
		case s[n] == '"':
			quoted = !quoted
		case s[n] == '\\' && quoted:
			n++
		}
		n++
	}
	return min(n, len(s)), !quoted
}

// unquote returns the text of a token or quoted string, or "" if it is neither or
// too long to be an address.
func unquote(s string) string {
	if !strings.HasPrefix(s, `"`) {
		return s
	}
	if len(s) < 2 || len(s) > 2*maxElement {
		return ""
	}
	text := make([]byte, 0, maxElement)
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			if i == len(s)-1 {
				return string(text)
			}
			return "" // something follows
		case '\\':
			i++
			if i == len(s) {
				return ""
			}
		}
		text = append(text, s[i])
	}
	return ""
}

// trim removes the white space that may surround an element.
func trim(s string) string { return strings.Trim(s, " \t") }

// nat64 is the well-known prefix in which an IPv6-only network shows IPv4 hosts,
// each with an address of its own.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// grouping says how many leading bits of an address make a client: one customer
// has one IPv4 address, but a whole IPv6 /64 or more to choose from.
type grouping struct{ v4, v6 int }

// newGrouping returns the grouping that the options describe, or what is wrong
// with them.
func newGrouping(o *Options) (g grouping, faults []error) {
	g = grouping{v4: 32, v6: 64}
	if o.IPv4Prefix != 0 {
		g.v4 = o.IPv4Prefix
	}
	if o.IPv6Prefix != 0 {
		g.v6 = o.IPv6Prefix
	}
	if g.v4 < 1 || g.v4 > 32 {
		faults = append(faults, fmt.Errorf("IPv4Prefix is %d, want 1 to 32", o.IPv4Prefix))
	}
	if g.v6 < 1 || g.v6 > 128 {
		faults = append(faults, fmt.Errorf("IPv6Prefix is %d, want 1 to 128", o.IPv6Prefix))
	}
	return g, faults
}

// appendKey appends the text that stands for addr in keys: the address, or its
// masked prefix with the length. It is at most 43 bytes. Loopback and link-local
// addresses and NAT64 ones are never masked, which would throw different clients
// together.
func (g grouping) appendKey(b []byte, addr netip.Addr) []byte {
	bits := g.v6
	if addr.Is4() {
		bits = g.v4
	}
	if bits >= addr.BitLen() || addr.IsLoopback() || addr.IsLinkLocalUnicast() || nat64.Contains(addr) {
		return addr.AppendTo(b)
	}
	return netip.PrefixFrom(addr, bits).Masked().AppendTo(b)
}
