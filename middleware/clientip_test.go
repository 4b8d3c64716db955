package middleware

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringfence-go/ringfence/limiter"
)

var tenNet = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}

// clientOf returns the client's address that the options find, as a string.
func clientOf(t *testing.T, o Options, peer string, header string, lines ...string) string {
	s, faults := newSource(&o)
	require.Empty(t, faults)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = peer
	for _, line := range lines {
		r.Header.Add(header, line)
	}
	addr, _ := s.client(r)
	if !addr.IsValid() {
		return NoAddress
	}
	return addr.String()
}

func TestClientIP_Peer(t *testing.T) {
	for peer, want := range map[string]string{
		"203.0.113.7:80":        "203.0.113.7",
		"203.0.113.7":           "203.0.113.7",
		"[2001:db8::1]:80":      "2001:db8::1",
		"2001:db8::1":           "2001:db8::1",
		"[fe80::1%eth0]:80":     "fe80::1",
		"fe80::1%eth0":          "fe80::1",
		"[::ffff:192.0.2.1]:80": "192.0.2.1",
		"@":                     NoAddress,
		"":                      NoAddress,
		"/run/app.sock":         NoAddress,
		"garbage":               NoAddress,
		"garbage:80":            NoAddress,
	} {
		r := &http.Request{RemoteAddr: peer}
		require.Equal(t, want, ClientIP(r, nil), peer)
		require.Equal(t, peer, r.RemoteAddr)
	}
}

func TestClientIP_Elements(t *testing.T) {
	for element, want := range map[string]string{
		"1.1.1.1":                          "1.1.1.1",
		"1.1.1.1:5555":                     "1.1.1.1",
		"2001:db8::5":                      "2001:db8::5",
		"[2001:db8::5]":                    "2001:db8::5",
		"[2001:db8::5]:443":                "2001:db8::5",
		"::ffff:1.1.1.1":                   "1.1.1.1",
		"[::ffff:1.1.1.1]:80":              "1.1.1.1",
		"\t1.1.1.1 ":                       "1.1.1.1",
		"unknown":                          "10.0.0.1",
		"_hidden":                          "10.0.0.1",
		"0.0.0.0":                          "10.0.0.1",
		"::":                               "10.0.0.1",
		"::ffff:0.0.0.0":                   "10.0.0.1",
		"fe80::1%eth0":                     "10.0.0.1",
		"[fe80::1%eth0]:80":                "10.0.0.1",
		"::ffff:1.1.1.1%eth0":              "10.0.0.1",
		"::1%" + strings.Repeat("A", 4000): "10.0.0.1",
		"1.1.1.1:99999":                    "10.0.0.1",
		"1.1.1.1:-1":                       "10.0.0.1",
		"1.1.1.1:":                         "10.0.0.1",
		"[1.1.1.1]":                        "10.0.0.1",
		"[1.1.1.1]:80":                     "10.0.0.1",
		"[2001:db8::5":                     "10.0.0.1",
		"1.1.1":                            "10.0.0.1",
		"01.1.1.1":                         "10.0.0.1",
		"1.1.1.1\n":                        "10.0.0.1",
		"\xff\xfe":                         "10.0.0.1",
		`"1.1.1.1"`:                        "10.0.0.1",
	} {
		require.Equal(t, want, clientOf(t, Options{Trusted: tenNet}, "10.0.0.1:80", "X-Forwarded-For", "9.9.9.9, "+element), "%q", element)
	}
}

func TestClientIP_Chains(t *testing.T) {
	thirtyTwo := strings.Repeat("10.1.1.1, ", 31) + "10.0.0.2"
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"all trusted: the leftmost", []string{"10.0.0.4, 10.0.0.3"}, "10.0.0.4"},
		{"not an address: the last trusted hop", []string{"1.1.1.1, garbage, 10.0.0.2"}, "10.0.0.2"},
		{"not an address at once: the peer", []string{"1.1.1.1, garbage"}, "10.0.0.1"},
		{"only empty elements", []string{" , ,,"}, "10.0.0.1"},
		{"an empty line last", []string{"9.9.9.9, 1.1.1.1", ""}, "1.1.1.1"},
		{"two lines, both ended by commas", []string{"9.9.9.9,", "1.1.1.1,"}, "1.1.1.1"},
		{"32 elements", []string{"1.1.1.1, " + strings.Repeat("10.1.1.1, ", 30) + "10.0.0.2"}, "1.1.1.1"},
		{"33 elements", []string{"1.1.1.1, " + thirtyTwo}, "10.1.1.1"},
		{"33 elements on two lines", []string{"1.1.1.1", thirtyTwo}, "10.1.1.1"},
	} {
		require.Equal(t, c.want, clientOf(t, Options{Trusted: tenNet}, "10.0.0.1:80", "X-Forwarded-For", c.lines...), c.name)
	}
}

func TestClientIP_TrustedPrefixes(t *testing.T) {
	mapped := netip.MustParsePrefix("::ffff:10.0.0.0/104")
	require.Equal(t, "1.1.1.1", clientOf(t, Options{Trusted: []netip.Prefix{mapped}}, "10.0.0.1:80", "X-Forwarded-For", "1.1.1.1"),
		"an IPv4-mapped prefix is an IPv4 one")

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "6.6.6.6:80"
	r.Header.Set("X-Forwarded-For", "1.1.1.1")
	all := []netip.Prefix{{}, netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"), netip.MustParsePrefix("::ffff:0.0.0.0/96"),
		netip.PrefixFrom(netip.MustParseAddr("::ffff:6.6.6.6"), 90)}
	require.Equal(t, "6.6.6.6", ClientIP(r, all), "no prefix trusts everybody")
	for _, p := range all {
		_, faults := newSource(&Options{Trusted: []netip.Prefix{p}})
		require.Len(t, faults, 1, "%v", p)
	}
}

func TestClientIP_Forwarded(t *testing.T) {
	for _, c := range []struct {
		lines []string
		want  string
	}{
		{[]string{"for=1.1.1.1"}, "1.1.1.1"},
		{[]string{"for=9.9.9.9, for=1.1.1.1;proto=https;by=10.0.0.9"}, "1.1.1.1"},
		{[]string{"FOR=1.1.1.1"}, "1.1.1.1"},
		{[]string{`by=x;For="1.1.1.1:5555"`}, "1.1.1.1"},
		{[]string{`for="[2001:db8::5]:443"`}, "2001:db8::5"},
		{[]string{`for="[2001:db8::5]"`}, "2001:db8::5"},
		{[]string{`for="1\.1.1.\1"`}, "1.1.1.1"},
		{[]string{`for=9.9.9.9`, `for=1.1.1.1, for=10.0.0.3`, ``}, "1.1.1.1"},
		{[]string{`for=1.1.1.1, , for=10.0.0.2,`}, "1.1.1.1"},
		{[]string{`for=1.1.1.1;host="a, for=9.9.9.9"`}, "1.1.1.1"},
		{[]string{`for=1.1.1.1;host="a;for=9.9.9.9"`}, "1.1.1.1"},
		{[]string{`for=1.1.1.1;host="a\", for=9.9.9.9"`}, "1.1.1.1"},
		{[]string{`for=1.1.1.1`, `for=unknown`}, "10.0.0.1"},
		{[]string{`for=1.1.1.1, for=_gateway, for=10.0.0.2`}, "10.0.0.2"},
		{[]string{`for=1.1.1.1, proto=https`}, "10.0.0.1"},
		{[]string{`for=1.1.1.1, garbage`}, "10.0.0.1"},
		{[]string{`for=1.1.1.1, for=9.9.9.9;for=8.8.8.8`}, "10.0.0.1"},
		{[]string{`for="1.1.1.1`}, "10.0.0.1"},
		{[]string{`for="1.1.1.1, for=10.0.0.2`}, "10.0.0.1"},
		{[]string{`for=1.1.1.1, for=";\`}, "10.0.0.1"},
		{[]string{`for=9.9.9.9`, `for="1.1.1.1`, `for=10.0.0.2`}, "10.0.0.2"},
		{[]string{`for="1.1.1.1"x`}, "10.0.0.1"},
		{[]string{`for="` + strings.Repeat(`\1`, 500) + `"`}, "10.0.0.1"},
		{[]string{`for=1.1.1.1, ` + strings.Repeat("for=10.1.1.1, ", 31) + "for=10.0.0.2"}, "10.1.1.1"},
		{[]string{`for=1.1.1.1, ` + strings.Repeat("for=10.1.1.1, ", 30) + "for=10.0.0.2"}, "1.1.1.1"},
	} {
		o := Options{Trusted: tenNet, Header: "forwarded"}
		require.Equal(t, c.want, clientOf(t, o, "10.0.0.1:80", "Forwarded", c.lines...), c.lines)
	}
}

func TestClientIP_SingleValue(t *testing.T) {
	for _, c := range []struct {
		peer  string
		lines []string
		want  string
	}{
		{"10.0.0.1:80", []string{"1.1.1.1"}, "1.1.1.1"},
		{"10.0.0.1:80", []string{"9.9.9.9", "1.1.1.1"}, "1.1.1.1"},
		{"10.0.0.1:80", []string{"1.1.1.1", "10.0.0.2"}, "1.1.1.1"},
		{"10.0.0.1:80", []string{"1.1.1.1", "", " "}, "1.1.1.1"},
		{"10.0.0.1:80", []string{"9.9.9.9", "unknown"}, "10.0.0.1"},
		{"10.0.0.1:80", []string{"10.0.0.3", "10.0.0.2"}, "10.0.0.3"},
		{"10.0.0.1:80", []string{"", ""}, "10.0.0.1"},
		{"10.0.0.1:80", []string{"9.9.9.9, 1.1.1.1"}, "10.0.0.1"},
		{"10.0.0.1:80", nil, "10.0.0.1"},
		{"6.6.6.6:80", []string{"1.1.1.1"}, "6.6.6.6"},
	} {
		o := Options{Trusted: tenNet, Header: "X-Real-IP"}
		require.Equal(t, c.want, clientOf(t, o, c.peer, "X-Real-IP", c.lines...), c)
	}
	require.Equal(t, "1.1.1.1", clientOf(t, Options{Hops: 1, Header: "CF-Connecting-IP"}, "6.6.6.6:80", "CF-Connecting-IP", "1.1.1.1"))
}

func TestClientIP_Hops(t *testing.T) {
	for _, c := range []struct {
		hops  int
		lines []string
		want  string
	}{
		{1, []string{"9.9.9.9, 1.1.1.1"}, "1.1.1.1"},
		{2, []string{"9.9.9.9", "8.8.8.8", "1.1.1.1,"}, "8.8.8.8"},
		{3, []string{"8.8.8.8, 1.1.1.1"}, "6.6.6.6"},
		{2, []string{"garbage, 1.1.1.1"}, "6.6.6.6"},
		{2, []string{"8.8.8.8, garbage"}, "6.6.6.6"},
		{1, nil, "6.6.6.6"},
		{32, []string{strings.Repeat("1.1.1.1,", 32)}, "1.1.1.1"},
		{32, []string{strings.Repeat("1.1.1.1,", 31)}, "6.6.6.6"},
	} {
		require.Equal(t, c.want, clientOf(t, Options{Hops: c.hops}, "6.6.6.6:80", "X-Forwarded-For", c.lines...), c)
	}
	require.Equal(t, NoAddress, clientOf(t, Options{Hops: 1}, "@", "X-Forwarded-For", "1.1.1.1"))
	require.Equal(t, "1.1.1.1", clientOf(t, Options{Hops: 1, TrustUnixSocket: true}, "@", "X-Forwarded-For", "1.1.1.1"))
}

func TestClientIP_OneHeaderOnly(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "10.0.0.1:80"
	for _, name := range append([]string{"Forwarded"}, singleValueHeaders...) {
		r.Header.Set(name, "6.6.6.6")
	}
	require.Equal(t, "10.0.0.1", ClientIP(r, tenNet))
}

func TestOptions_ClientAddressErrors(t *testing.T) {
	for text, o := range map[string]Options{
		"Trusted[0]":                 {Trusted: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}},
		"Trusted[1]":                 {Trusted: []netip.Prefix{tenNet[0], {}}},
		"Hops is -1":                 {Hops: -1},
		"Hops is 33":                 {Hops: 33},
		"want one of the two":        {Hops: 1, Trusted: tenNet},
		`Header is "X-Fowarded-For"`: {Header: "X-Fowarded-For", Trusted: tenNet},
		`Header is "Forwarded", which is never read`: {Header: "Forwarded"},
		"Hops is 2, want at most 1":                  {Header: "X-Real-IP", Hops: 2},
		"IPv4Prefix is 33":                           {IPv4Prefix: 33},
		"IPv4Prefix is -1":                           {IPv4Prefix: -1},
		"IPv6Prefix is 129":                          {IPv6Prefix: 129},
	} {
		_, err := NewFixedWindowLimiter(FixedWindowConfig{Options: o})
		require.ErrorIs(t, err, limiter.ErrConfig, text)
		require.ErrorContains(t, err, text)
		_, err = New(Config{Options: o, Policies: []Policy{{Name: "n", Window: 1e9, Key: ByIP}}})
		require.ErrorContains(t, err, text)
	}
	_, err := NewFixedWindowLimiter(FixedWindowConfig{Options: Options{Hops: -1, IPv4Prefix: -1}})
	require.ErrorContains(t, err, "Hops")
	require.ErrorContains(t, err, "IPv4Prefix", "all faults in one error")
}

func TestGrouping_Key(t *testing.T) {
	for _, c := range []struct {
		v4, v6 int
		addr   string
		want   string
	}{
		{0, 0, "192.0.2.10", "192.0.2.10"},
		{24, 0, "192.0.2.10", "192.0.2.0/24"},
		{24, 0, "127.0.0.1", "127.0.0.1"},
		{24, 0, "169.254.1.1", "169.254.1.1"},
		{0, 0, "2001:db8:1:2::1", "2001:db8:1:2::/64"},
		{0, 0, "2001:db8:1:2::", "2001:db8:1:2::/64"},
		{0, 56, "2001:db8:1:2ff::1", "2001:db8:1:200::/56"},
		{0, 128, "2001:db8:1:2::1", "2001:db8:1:2::1"},
		{0, 0, "::1", "::1"},
		{0, 0, "fe80::1", "fe80::1"},
		{0, 0, "64:ff9b::808:808", "64:ff9b::808:808"},
		{0, 0, "2002:c000:204::1", "2002:c000:204::/64"},
	} {
		g, faults := newGrouping(&Options{IPv4Prefix: c.v4, IPv6Prefix: c.v6})
		require.Empty(t, faults)
		require.Equal(t, c.want, string(g.appendKey(nil, netip.MustParseAddr(c.addr))), c)
	}
}

func FuzzClientIP(f *testing.F) {
	for _, line := range []string{
		"", "9.9.9.9", "9.9.9.9, ", `for="9.9.9.9`, `for=9.9.9.9;by="a\`, "10.0.0.2, 10.0.0.3", "::1%aaa", "[::1]:99", ",,,,", "\xff\n",
		`for=10.0.0.2;x=","`, "for=10.0.0.2, for=", strings.Repeat("10.0.0.9,", 40),
	} {
		f.Add("10.0.0.1:80", line, line, uint8(2))
		f.Add("@", line, "", uint8(0))
	}
	const client = "198.51.100.7"
	f.Fuzz(func(t *testing.T, peer, first, last string, hops uint8) {
		// What a stranger sends, then a proxy appends the stranger's address, and
		// one more proxy the first one's.
		for _, c := range []struct {
			header, element, trusted string
			void                     bool // the stranger can spoil the line
		}{
			{"X-Forwarded-For", client, "10.9.9.9", false},
			{"Forwarded", "for=" + client, `for="10.9.9.9:1";proto=http`, true},
			{"X-Real-IP", client, "", false},
		} {
			o := Options{Trusted: tenNet, Header: c.header}
			own := clientOf(t, o, "10.0.0.1:1", c.header, first, last, c.element)
			require.Equal(t, client, own, "on a line of its own")
			if c.trusted == "" {
				continue
			}
			joined := clientOf(t, o, "10.0.0.1:1", c.header, first, last+", "+c.element+", "+c.trusted)
			if joined != client && c.void {
				require.Equal(t, "10.0.0.1", joined, "a void line")
			} else {
				require.Equal(t, client, joined)
			}
		}

		// Whatever comes, the result is an address and its key is short.
		for _, o := range []Options{
			{}, {Trusted: tenNet}, {Trusted: tenNet, Header: "Forwarded", TrustUnixSocket: true},
			{Trusted: tenNet, Header: "X-Real-IP"}, {Hops: 1 + int(hops)%maxElements},
		} {
			header := o.Header
			if header == "" {
				header = "X-Forwarded-For"
			}
			got := clientOf(t, o, peer, header, first, last)
			if got == NoAddress {
				require.False(t, peerAddr(peer).IsValid())
				continue
			}
			addr, err := netip.ParseAddr(got)
			require.NoError(t, err)
			require.Empty(t, addr.Zone())
			require.False(t, addr.Is4In6())
			require.LessOrEqual(t, len(grouping{32, 64}.appendKey(nil, addr)), 43)
			if header == "X-Forwarded-For" && o.Hops == 0 && addr != peerAddr(peer) {
				requireVouchedFor(t, addr, first+","+last)
			}
		}
	})
}

// requireVouchedFor requires that an element is addr with nothing but trusted
// addresses to its right.
func requireVouchedFor(t *testing.T, addr netip.Addr, joined string) {
	trusted := source{trusted: tenNet}
	elements := strings.Split(joined, ",")
	for i := len(elements) - 1; i >= 0; i-- {
		element := strings.Trim(elements[i], " \t")
		if element == "" {
			continue
		}
		hop := parseElement(element)
		if hop == addr {
			return
		}
		require.True(t, hop.IsValid() && trusted.trusts(hop), "%v is left of %q", addr, element)
	}
	t.Fatalf("%v is not in %q", addr, joined)
}
