package middleware

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/ringfence-go/ringfence/limiter"
)

// afterWriter is the ResponseWriter of a handler whose response decides what is
// counted (see Limits.After). It stays out of the way, except that it learns of
// the status just before the header is written. What it can do besides is added
// by [afterWriter.as].
type afterWriter struct {
	http.ResponseWriter
	request  *http.Request
	engine   *engine
	store    limiter.MultiStore
	verdicts []verdict
	results  []limiter.StoreResult // of the verdicts, with what was charged
	outer    *snapshot             // of the fields, before they were set
	mine     *snapshot             // and after
	status   []string              // RateLimit after it was set
	before   string                // and what of it comes before the limits' own items
	settled  bool
}

// newAfterWriter returns a writer for the request that was decided in c, which it
// frees. Its fields have been set.
func newAfterWriter(w http.ResponseWriter, r *http.Request, e *engine, store limiter.MultiStore, c *call) *afterWriter {
	a := &afterWriter{
		ResponseWriter: w,
		request:        r,
		engine:         e,
		store:          store,
		verdicts:       slices.Clone(c.verdicts),
		results:        slices.Clone(c.results),
		outer:          c.outer,
		mine:           takeSnapshot(w.Header()),
	}
	if e.families&IETFDraft11 != 0 {
		a.status = w.Header()[ietfStatus]
		a.before = strings.TrimSuffix(w.Header().Get(ietfStatus), statusList(a.verdicts))
	}
	c.free()
	return a
}

// serve runs the handler. If it panics, what was reserved stays counted.
func (a *afterWriter) serve(next http.Handler) {
	next.ServeHTTP(a.as(), a.request)
	a.settle(http.StatusOK)
}

// settle asks the limits whether a response with this status counts, and gives
// their units back if not. Only the first call does anything.
func (a *afterWriter) settle(status int) {
	if a.settled {
		return
	}
	a.settled = true
	revised := false
	for i := range a.verdicts {
		v := &a.verdicts[i]
		if v.after == nil || v.after(status) || !a.store.Refund(&a.results[i].Charge) {
			continue
		}
		v.Remaining = min(v.Remaining+1, v.Limit)
		revised = true
		a.engine.report(a.request, GaveBack, v)
	}
	if revised && !a.engine.shadow {
		a.revise()
	}
}

// revise sets the fields again after some of what had been counted was given
// back. What somebody else has set since they were set stays.
func (a *afterWriter) revise() {
	h, c, revised := a.Header(), newCall(), http.Header{}
	for i := range tuples {
		for k, name := range tuples[i].names {
			restore(revised, name, a.outer[i][k])
		}
	}
	a.engine.setTuples(revised, &c.fields, a.engine.families, &a.verdicts[leastRemaining(a.verdicts)], false)
	c.free()
	for i := range tuples {
		if !same(a.mine[i][1], h[tuples[i].names[1]]) {
			continue // an inner limiter has less left, or the handler knows better
		}
		for k, name := range tuples[i].names {
			if same(a.mine[i][k], h[name]) {
				restore(h, name, revised[name])
			}
		}
	}
	if now := h[ietfStatus]; a.status != nil && (same(now, a.status) || continues(now, a.status)) {
		line := a.before + statusList(a.verdicts) + now[0][len(a.status[0]):]
		h[ietfStatus] = append([]string{line}, now[1:]...)
	}
}

// WriteHeader settles the limits by the final status. One that is none is left
// to the writer inside, which panics.
func (a *afterWriter) WriteHeader(status int) {
	if 200 <= status && status <= 999 || status == http.StatusSwitchingProtocols {
		a.settle(status)
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write writes the header first if that was not done, as every ResponseWriter
// does.
func (a *afterWriter) Write(p []byte) (int, error) {
	a.settle(http.StatusOK)
	return a.ResponseWriter.Write(p)
}

// WriteString is Write without a copy of s, if the writer inside can do that.
func (a *afterWriter) WriteString(s string) (int, error) {
	a.settle(http.StatusOK)
	return io.WriteString(a.ResponseWriter, s)
}

// Unwrap returns the writer inside, for [http.ResponseController]. Where that one
// would go on to a writer further inside to hijack the connection, it finds a hop
// first, so that a is still asked.
func (a *afterWriter) Unwrap() http.ResponseWriter {
	if _, hijacks := a.ResponseWriter.(http.Hijacker); !hijacks && finds[http.Hijacker](a.ResponseWriter) {
		return hop{a.ResponseWriter, hijacker{a}}
	}
	return a.ResponseWriter
}

// hop is around a writer inside of an afterWriter that cannot hijack by itself.
type hop struct {
	http.ResponseWriter
	hijacker
}

func (h hop) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// FlushError is what [http.ResponseController] flushes by. It must not find the
// writer inside instead, which would write the header.
func (a *afterWriter) FlushError() error {
	if !canFlush(a.ResponseWriter) {
		return http.ErrNotSupported
	}
	a.settle(http.StatusOK)
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// canFlush reports whether a ResponseController can flush w.
func canFlush(w http.ResponseWriter) bool {
	return finds[http.Flusher](w) || finds[interface{ FlushError() error }](w)
}

// finds reports whether a ResponseController finds a T in w, by unwrapping.
func finds[T any](w http.ResponseWriter) bool {
	for {
		if _, ok := any(w).(T); ok {
			return true
		}
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = outer.Unwrap()
	}
}

type flusher struct{ a *afterWriter }

// Flush writes the header, if that was not done, and sends what was written.
func (f flusher) Flush() { f.a.FlushError() }

type hijacker struct{ a *afterWriter }

// Hijack takes the connection over. The handler switches protocols.
func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.a.ResponseWriter).Hijack()
	if err == nil {
		h.a.settle(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

type readerFrom struct{ a *afterWriter }

// ReadFrom writes what it reads from src. The header is not written before
// something could be read, so that a handler can still report that nothing could.
func (r readerFrom) ReadFrom(src io.Reader) (n int64, err error) {
	if !r.a.settled {
		// Only Write is offered here, or io.CopyN would come back to ReadFrom.
		n, err = io.CopyN(struct{ io.Writer }{r.a}, src, firstRead)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	more, err := r.a.ResponseWriter.(io.ReaderFrom).ReadFrom(src)
	return n + more, err
}

// firstRead is how much of a body is copied before the rest is left to the writer
// inside: what net/http looks at to tell the content type.
const firstRead = 512

// as returns a as a writer that can do exactly what the writer inside can do.
func (a *afterWriter) as() http.ResponseWriter {
	_, flushes := a.ResponseWriter.(http.Flusher)
	_, hijacks := a.ResponseWriter.(http.Hijacker)
	_, reads := a.ResponseWriter.(io.ReaderFrom)
	f, h, r := flusher{a}, hijacker{a}, readerFrom{a}
	switch {
	case flushes && hijacks && reads: // HTTP/1.1
		return struct {
			*afterWriter
			flusher
			hijacker
			readerFrom
		}{a, f, h, r}
	case flushes && hijacks:
		return struct {
			*afterWriter
			flusher
			hijacker
		}{a, f, h}
	case flushes && reads:
		return struct {
			*afterWriter
			flusher
			readerFrom
		}{a, f, r}
	case hijacks && reads:
		return struct {
			*afterWriter
			hijacker
			readerFrom
		}{a, h, r}
	case flushes: // HTTP/2
		return struct {
			*afterWriter
			flusher
		}{a, f}
	case hijacks:
		return struct {
			*afterWriter
			hijacker
		}{a, h}
	case reads:
		return struct {
			*afterWriter
			readerFrom
		}{a, r}
	}
	return a
}
