package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Families are the header fields about limits that are sent. Add up what is
// wanted.
type Families uint8

const (
	// Legacy is X-RateLimit-Limit and X-RateLimit-Remaining, and with a denial
	// X-RateLimit-Reset, the time in Unix seconds at which it ends.
	Legacy Families = 1 << iota
	// IETFDraft6 is RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset (in
	// seconds from now), and RateLimit-Policy, as in revisions 4 to 6 of
	// draft-ietf-httpapi-ratelimit-headers.
	IETFDraft6
	// IETFDraft11 is RateLimit-Policy and RateLimit with named policies, as in
	// revisions 8 to 11 of that draft. It cannot be combined with IETFDraft6,
	// which gives RateLimit-Policy another form.
	IETFDraft11
	// NoHeaders is none of them. A denial still has a Retry-After.
	NoHeaders
)

// validate reports families that do not go together.
func (f Families) validate() error {
	switch {
	case f >= NoHeaders<<1:
		return fmt.Errorf("Families is %d, want a sum of Legacy, IETFDraft6 and IETFDraft11, or NoHeaders", f)
	case f&NoHeaders != 0 && f != NoHeaders:
		return errors.New("Families has NoHeaders and others")
	case f&IETFDraft6 != 0 && f&IETFDraft11 != 0:
		return errors.New("Families has IETFDraft6 and IETFDraft11, want one of them")
	}
	return nil
}

// Names of header fields in canonical spelling, in which they are keys of a
// [http.Header]. On the wire they are compared without regard to case.
const (
	xLimit        = "X-Ratelimit-Limit"
	xRemaining    = "X-Ratelimit-Remaining"
	xReset        = "X-Ratelimit-Reset"
	ietfLimit     = "Ratelimit-Limit"
	ietfRemaining = "Ratelimit-Remaining"
	ietfReset     = "Ratelimit-Reset"
	ietfPolicy    = "Ratelimit-Policy"
	ietfStatus    = "Ratelimit"
	retryAfter    = "Retry-After"
	cacheControl  = "Cache-Control"
	contentType   = "Content-Type"
)

// ExposedHeaders are the names of all fields that the middleware can set about
// limits, for the Access-Control-Expose-Headers of a CORS middleware, which has
// to be outside of this one.
func ExposedHeaders() []string {
	return []string{
		retryAfter, "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
		"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "RateLimit-Policy", "RateLimit",
	}
}

// fields sets header fields. Their values are cut from pieces of memory that
// serve many responses one after the other, so that a response hardly ever
// allocates. No byte and no element is used twice: what was set belongs to the
// response for good.
type fields struct {
	text   strings.Builder
	spare  []string
	digits [20]byte

	limit     int64 // the last one that was set; the next one is often the same
	limitText string
}

const (
	textPiece  = 1024 // bytes
	textRoom   = 128  // bytes that are there when a value begins; it may get longer
	valuePiece = 32   // strings
)

// set sets a field to one value.
func (f *fields) set(h http.Header, name, value string) {
	if len(f.spare) == 0 {
		f.spare = make([]string, valuePiece)
	}
	f.spare[0] = value
	h[name] = f.spare[:1:1]
	f.spare = f.spare[1:]
}

// number sets a field to a number.
func (f *fields) number(h http.Header, name string, n int64) { f.set(h, name, f.decimal(n)) }

// limitNumber sets a field to a limit.
func (f *fields) limitNumber(h http.Header, name string, limit int64) {
	if f.limitText == "" || f.limit != limit {
		f.limit, f.limitText = limit, f.decimal(limit)
	}
	f.set(h, name, f.limitText)
}

// decimal returns n as text.
func (f *fields) decimal(n int64) string {
	if 0 <= n && n < 100 {
		return strconv.FormatInt(n, 10) // which is at hand
	}
	start := f.begin()
	f.write(n)
	return f.text.String()[start:]
}

// begin returns where the text of a value begins.
func (f *fields) begin() int {
	if f.text.Cap()-f.text.Len() < textRoom {
		f.text.Reset()
		f.text.Grow(textPiece)
	}
	return f.text.Len()
}

// write adds a number to the text.
func (f *fields) write(n int64) { f.text.Write(strconv.AppendInt(f.digits[:0], n, 10)) }

// setFields sets the header fields for the decision in c.
func (e *engine) setFields(h http.Header, c *call) {
	f, v, denied := &c.fields, &c.verdicts[c.shown], c.denied >= 0
	if denied {
		f.number(h, retryAfter, retrySeconds(v))
		f.set(h, cacheControl, "no-store")
	}
	e.setTuples(h, f, e.families, v, denied)
	switch {
	case e.families&IETFDraft6 != 0:
		f.list(h, ietfPolicy, h[ietfPolicy], c.verdicts, policy6)
	case e.families&IETFDraft11 != 0:
		f.list(h, ietfPolicy, h[ietfPolicy], c.verdicts, policy11)
		if denied { // alone, so that no t is above Retry-After
			f.list(h, ietfStatus, nil, c.verdicts[c.shown:c.shown+1], status11)
		} else {
			f.list(h, ietfStatus, h[ietfStatus], c.verdicts, status11)
		}
	}
}

// setTuples sets the fields of these families that are about one limit, v. What
// an outer limiter has set stays where that one has less left, unless v denies.
func (e *engine) setTuples(h http.Header, f *fields, families Families, v *verdict, denied bool) {
	if families&Legacy != 0 && (denied || !lessLeft(h[xRemaining], v.Remaining)) {
		f.limitNumber(h, xLimit, int64(v.Limit))
		f.number(h, xRemaining, int64(v.Remaining))
		if denied {
			f.number(h, xReset, unixSeconds(e.now().Add(v.wait())))
		}
	}
	if families&IETFDraft6 != 0 && v.Limit <= maxInteger && (denied || !lessLeft(h[ietfRemaining], v.Remaining)) {
		f.limitNumber(h, ietfLimit, int64(v.Limit))
		f.number(h, ietfRemaining, int64(v.Remaining))
		f.number(h, ietfReset, resetSeconds(v))
	}
}

// lessLeft reports whether the field of an outer limiter shows less than
// remaining. On a tie the inner one wins.
func lessLeft(field []string, remaining uint64) bool {
	if len(field) != 1 {
		return false
	}
	outer, err := strconv.ParseUint(field[0], 10, 64)
	return err == nil && outer < remaining
}

// list sets a field to a list: what is there from an outer limiter, then an item
// for each verdict.
func (f *fields) list(h http.Header, name string, outer []string, verdicts []verdict, kind listItem) {
	start := f.begin()
	for _, line := range outer {
		f.separate(start)
		f.text.WriteString(line)
	}
	f.items(start, verdicts, kind)
	if f.text.Len() > start {
		f.set(h, name, f.text.String()[start:])
	}
}

// A listItem is a form that a verdict has in a list.
type listItem uint8

const (
	policy6  listItem = iota // 100;w=60
	policy11                 // "name";q=100;w=60
	status11                 // "name";r=50;t=30
)

// maxInteger is the largest integer of a structured field (RFC 9651).
const maxInteger = 999_999_999_999_999

// items adds an item for each verdict to the list that begins at start.
func (f *fields) items(start int, verdicts []verdict, kind listItem) {
	for i := range verdicts {
		v := &verdicts[i]
		if v.Limit > maxInteger {
			continue
		}
		f.separate(start)
		switch kind {
		case policy6:
			f.write(int64(v.Limit))
			f.window(v.window)
		case policy11:
			f.quote(v.policy)
			f.parameter(";q=", int64(v.Limit))
			f.window(v.window)
		case status11:
			f.quote(v.policy)
			f.parameter(";r=", int64(v.Remaining))
			f.parameter(";t=", resetSeconds(v))
		}
	}
}

// separate adds a comma unless the list that begins at start is empty.
func (f *fields) separate(start int) {
	if f.text.Len() > start {
		f.text.WriteString(", ")
	}
}

func (f *fields) parameter(name string, value int64) {
	f.text.WriteString(name)
	f.write(value)
}

// window adds ;w=60. The parameter counts whole seconds, and is left out for a
// window below one.
func (f *fields) window(d time.Duration) {
	if d >= time.Second {
		f.parameter(";w=", seconds(d))
	}
}

// quote adds a String of a structured field. The name is printable.
func (f *fields) quote(name string) {
	f.text.WriteByte('"')
	for i := range len(name) {
		if name[i] == '"' || name[i] == '\\' {
			f.text.WriteByte('\\')
		}
		f.text.WriteByte(name[i])
	}
	f.text.WriteByte('"')
}

// printable reports whether s is printable ASCII, which a String can hold.
func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// retrySeconds returns when to send a denied request again.
func retrySeconds(v *verdict) int64 { return max(1, seconds(v.wait())) }

// resetSeconds returns when there is more of v's limit again: for a request that
// it denies enough, for another one all.
func resetSeconds(v *verdict) int64 {
	if !v.Allowed {
		return retrySeconds(v)
	}
	return seconds(v.ResetAfter)
}

// seconds returns d in seconds, rounded up.
func seconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}

// unixSeconds returns t in seconds since 1970, rounded up.
func unixSeconds(t time.Time) int64 {
	n := t.Unix()
	if t.Nanosecond() > 0 {
		n++
	}
	return n
}

// tuple is what a response says about one limit in the fields of one family: the
// limit, what remains, and the reset.
type tuple [3][]string

// tuples are the names of these fields.
var tuples = [...]struct {
	family Families
	names  [3]string
}{
	{Legacy, [3]string{xLimit, xRemaining, xReset}},
	{IETFDraft6, [3]string{ietfLimit, ietfRemaining, ietfReset}},
}

// snapshot is the tuples of a response at one time.
type snapshot [len(tuples)]tuple

func takeSnapshot(h http.Header) *snapshot {
	var s snapshot
	for i := range tuples {
		for k, name := range tuples[i].names {
			s[i][k] = h[name]
		}
	}
	return &s
}

// same reports whether two values of a field are the very same memory.
func same(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// continues reports whether a field still has the one line that it had before,
// and something after it: items or lines.
func continues(now, before []string) bool {
	return len(now) > 1 && now[0] == before[0] || len(now) > 0 && strings.HasPrefix(now[0], before[0]+", ")
}

// restore gives a field the value it had before.
func restore(h http.Header, name string, value []string) {
	if value == nil {
		delete(h, name)
	} else {
		h[name] = value
	}
}

// statusList returns the items of RateLimit for the verdicts.
func statusList(verdicts []verdict) string {
	var f fields
	f.items(0, verdicts, status11)
	return f.text.String()
}
