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

// fields collects header fields, and sets them with two allocations in all.
type fields struct {
	text  []byte
	names [10]string
	ends  [10]int
	n     int
}

// end ends a field: its value is what was added to the text since the last one.
func (f *fields) end(name string) {
	f.names[f.n], f.ends[f.n] = name, len(f.text)
	f.n++
}

func (f *fields) number(name string, n int64) {
	f.text = strconv.AppendInt(f.text, n, 10)
	f.end(name)
}

// set sets the fields, each to one value.
func (f *fields) set(h http.Header) {
	text, values := string(f.text), make([]string, f.n)
	start := 0
	for i, end := range f.ends[:f.n] {
		values[i] = text[start:end]
		h[f.names[i]] = values[i : i+1 : i+1]
		start = end
	}
}

// setFields sets the header fields for a decision, in which the verdict in place
// shown is the one to show.
func (e *engine) setFields(h http.Header, verdicts []verdict, shown int, denied bool) {
	v := &verdicts[shown]
	var buffer [128]byte
	f := fields{text: buffer[:0]}
	if denied {
		f.number(retryAfter, retrySeconds(v))
		f.text = append(f.text, "no-store"...)
		f.end(cacheControl)
	}
	e.addTuples(&f, h, e.families, v, denied)
	switch {
	case e.families&IETFDraft6 != 0:
		f.list(ietfPolicy, h[ietfPolicy], verdicts, policy6)
	case e.families&IETFDraft11 != 0:
		f.list(ietfPolicy, h[ietfPolicy], verdicts, policy11)
		if denied { // alone, so that no t is above Retry-After
			f.list(ietfStatus, nil, verdicts[shown:shown+1], status11)
		} else {
			f.list(ietfStatus, h[ietfStatus], verdicts, status11)
		}
	}
	f.set(h)
}

// addTuples adds the fields of these families that are about one limit, v. What
// an outer limiter has set stays where that one has less left, unless v denies.
func (e *engine) addTuples(f *fields, h http.Header, families Families, v *verdict, denied bool) {
	if families&Legacy != 0 && (denied || !lessLeft(h[xRemaining], v.Remaining)) {
		f.number(xLimit, int64(v.Limit))
		f.number(xRemaining, int64(v.Remaining))
		if denied {
			f.number(xReset, unixSeconds(e.now().Add(v.wait())))
		}
	}
	if families&IETFDraft6 != 0 && v.Limit <= maxInteger && (denied || !lessLeft(h[ietfRemaining], v.Remaining)) {
		f.number(ietfLimit, int64(v.Limit))
		f.number(ietfRemaining, int64(v.Remaining))
		f.number(ietfReset, resetSeconds(v))
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

// list adds a field that is a list: what is there from an outer limiter, then an
// item for each verdict.
func (f *fields) list(name string, outer []string, verdicts []verdict, kind listItem) {
	start := len(f.text)
	for _, line := range outer {
		f.separate(start)
		f.text = append(f.text, line...)
	}
	f.items(start, verdicts, kind)
	if len(f.text) > start {
		f.end(name)
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
			f.text = strconv.AppendUint(f.text, v.Limit, 10)
			f.window(v.window)
		case policy11:
			f.text = appendQuoted(f.text, v.policy)
			f.text = strconv.AppendUint(append(f.text, ";q="...), v.Limit, 10)
			f.window(v.window)
		case status11:
			f.text = appendQuoted(f.text, v.policy)
			f.text = strconv.AppendUint(append(f.text, ";r="...), v.Remaining, 10)
			f.text = strconv.AppendInt(append(f.text, ";t="...), resetSeconds(v), 10)
		}
	}
}

// separate adds a comma unless the list that begins at start is empty.
func (f *fields) separate(start int) {
	if len(f.text) > start {
		f.text = append(f.text, ", "...)
	}
}

// window adds ;w=60. The parameter counts whole seconds, and is left out for a
// window below one.
func (f *fields) window(d time.Duration) {
	if d >= time.Second {
		f.text = strconv.AppendInt(append(f.text, ";w="...), seconds(d), 10)
	}
}

// appendQuoted appends a String of a structured field. The name is printable.
func appendQuoted(b []byte, name string) []byte {
	b = append(b, '"')
	for i := range len(name) {
		if name[i] == '"' || name[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, name[i])
	}
	return append(b, '"')
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

func takeSnapshot(h http.Header) (s snapshot) {
	for i := range tuples {
		for k, name := range tuples[i].names {
			s[i][k] = h[name]
		}
	}
	return s
}

// revise sets the fields again after some of what had been counted was given
// back. outer is what the response said before they were set, mine what it said
// then, and list the item of them that was added to RateLimit. What somebody
// else has set since then stays.
func (e *engine) revise(h http.Header, outer, mine *snapshot, list string, verdicts []verdict) {
	var families Families
	for i := range tuples {
		if same(mine[i][1], outer[i][1]) || !same(mine[i][1], h[tuples[i].names[1]]) {
			continue // an outer or inner limiter has less left, or the handler knows better
		}
		families |= tuples[i].family
		for k, name := range tuples[i].names {
			if same(mine[i][k], h[name]) {
				restore(h, name, outer[i][k])
			}
		}
	}
	var f fields
	e.addTuples(&f, h, families, &verdicts[leastRemaining(verdicts)], false)
	f.set(h)
	if status := h[ietfStatus]; list != "" && len(status) == 1 {
		h[ietfStatus] = []string{strings.Replace(status[0], list, statusList(verdicts), 1)}
	}
}

// same reports whether two values of a field are the very same memory.
func same(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
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
	return string(f.text)
}
