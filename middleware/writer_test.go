package middleware

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
)

// can are interfaces that a writer may have beside those of every ResponseWriter.
type can struct{ flush, hijack, readFrom bool }

type fakeHijacker struct{ err error }

func (h fakeHijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, h.err }

type fakeReaderFrom struct{ w io.Writer }

func (r fakeReaderFrom) ReadFrom(src io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{r.w}, src)
}

// writerThat returns a writer that can do just that, around a recorder.
func writerThat(c can, hijackError error) (http.ResponseWriter, *httptest.ResponseRecorder) {
	w := httptest.NewRecorder()
	plain := struct{ http.ResponseWriter }{w}
	h, r := fakeHijacker{hijackError}, fakeReaderFrom{w}
	type (
		hijacker struct{ http.Hijacker }
		reader   struct{ io.ReaderFrom }
		flusher  struct{ http.Flusher }
	)
	switch c {
	case can{true, false, false}:
		return struct {
			http.ResponseWriter
			flusher
		}{plain, flusher{w}}, w
	case can{false, true, false}:
		return struct {
			http.ResponseWriter
			hijacker
		}{plain, hijacker{h}}, w
	case can{false, false, true}:
		return struct {
			http.ResponseWriter
			reader
		}{plain, reader{r}}, w
	case can{true, true, false}:
		return struct {
			http.ResponseWriter
			flusher
			hijacker
		}{plain, flusher{w}, hijacker{h}}, w
	case can{true, false, true}:
		return struct {
			http.ResponseWriter
			flusher
			reader
		}{plain, flusher{w}, reader{r}}, w
	case can{false, true, true}:
		return struct {
			http.ResponseWriter
			hijacker
			reader
		}{plain, hijacker{h}, reader{r}}, w
	case can{true, true, true}:
		return struct {
			http.ResponseWriter
			flusher
			hijacker
			reader
		}{plain, flusher{w}, hijacker{h}, reader{r}}, w
	}
	return plain, w
}

// failuresOnly returns a bench and a limit of 2 a minute around f, which counts
// the statuses in counted and remembers those it was asked about.
func failuresOnly(t *testing.T, f http.HandlerFunc) (b *bench, h http.Handler, asked *[]int) {
	b = newFixed(t)
	asked = new([]int)
	require.NoError(t, b.fixed.Named("n", always(PerMinute(2).After(func(status int) bool {
		*asked = append(*asked, status)
		return status >= 400
	}))))
	return b, b.fixed.MustMiddleware("n")(f), asked
}

func TestAfterWriter_Interfaces(t *testing.T) {
	for i := range 8 {
		c := can{i&1 != 0, i&2 != 0, i&4 != 0}
		outside, _ := writerThat(c, nil)
		_, h, _ := failuresOnly(t, func(w http.ResponseWriter, r *http.Request) {
			var got can
			_, got.flush = w.(http.Flusher)
			_, got.hijack = w.(http.Hijacker)
			_, got.readFrom = w.(io.ReaderFrom)
			require.Equal(t, c, got)
			require.Equal(t, outside, w.(interface{ Unwrap() http.ResponseWriter }).Unwrap())
		})
		h.ServeHTTP(outside, guest())
	}
}

func TestAfterWriter_Status(t *testing.T) {
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		want    string
		asked   []int
	}{
		{"nothing written", func(w http.ResponseWriter, r *http.Request) {}, "200 L2 R2", []int{200}},
		{"Write", func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("x")) }, "200 L2 R2", []int{200}},
		{"WriteString", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "x") }, "200 L2 R2", []int{200}},
		{"Flush", func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			w.WriteHeader(404) // too late
		}, "200 L2 R2", []int{200}},
		{"controller", func(w http.ResponseWriter, r *http.Request) { http.NewResponseController(w).Flush() }, "200 L2 R2", []int{200}},
		{"informational", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(103); w.WriteHeader(404) }, "404 L2 R1", []int{404}},
		{"switching protocols", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(101) }, "101 L2 R2", []int{101}},
		{"twice", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(404); w.WriteHeader(200) }, "404 L2 R1", []int{404}},
		{"hijack", func(w http.ResponseWriter, r *http.Request) { http.NewResponseController(w).Hijack() }, "200 L2 R2", []int{101}},
		{"invalid", func(w http.ResponseWriter, r *http.Request) {
			for _, status := range []int{0, 99, 1000} {
				require.Panics(t, func() { w.WriteHeader(status) })
			}
			w.WriteHeader(500)
		}, "500 L2 R1", []int{500}},
		{"ReadFrom", func(w http.ResponseWriter, r *http.Request) {
			io.Copy(w, strings.NewReader(strings.Repeat("x", 2*firstRead)))
		}, "200 L2 R2", []int{200}},
		{"Write, then ReadFrom", func(w http.ResponseWriter, r *http.Request) {
			w.Write([]byte("x"))
			io.Copy(w, strings.NewReader("y"))
		}, "200 L2 R2", []int{200}},
		{"ReadFrom that fails at once", func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(w, iotest.ErrReader(errors.New("no")))
			require.Error(t, err)
			w.WriteHeader(500)
		}, "500 L2 R1", []int{500}},
	} {
		b, h, asked := failuresOnly(t, c.handler)
		outside, w := writerThat(can{true, true, true}, nil)
		if c.name == "informational" {
			outside = skipInformational{outside}
		}
		h.ServeHTTP(outside, guest())
		require.Equal(t, c.want, summary(w), c.name)
		require.Equal(t, c.asked, *asked, c.name)
		require.Equal(t, "admitted n", b.outcomes()[0], c.name)
	}
}

// skipInformational keeps informational responses from a recorder, which takes
// them for final ones.
type skipInformational struct{ http.ResponseWriter }

func (w skipInformational) WriteHeader(status int) {
	if status >= 200 {
		w.ResponseWriter.WriteHeader(status)
	}
}

func TestAfterWriter_BodyIsComplete(t *testing.T) {
	body := strings.Repeat("0123456789", firstRead)
	for _, n := range []int{0, 1, firstRead - 1, firstRead, firstRead + 1, len(body)} {
		_, h, _ := failuresOnly(t, func(w http.ResponseWriter, r *http.Request) {
			got, err := io.Copy(w, strings.NewReader(body[:n]))
			require.NoError(t, err)
			require.Equal(t, int64(n), got)
		})
		outside, w := writerThat(can{readFrom: true}, nil)
		h.ServeHTTP(outside, guest())
		require.Equal(t, body[:n], w.Body.String())
	}
}

func TestAfterWriter_HijackThatFails(t *testing.T) {
	_, h, asked := failuresOnly(t, func(w http.ResponseWriter, r *http.Request) {
		_, _, err := w.(http.Hijacker).Hijack()
		require.Error(t, err)
		w.WriteHeader(500)
	})
	outside, w := writerThat(can{hijack: true}, errors.New("no"))
	h.ServeHTTP(outside, guest())
	require.Equal(t, "500 L2 R1", summary(w))
	require.Equal(t, []int{500}, *asked)
}

// unwrapper hides what the writer inside can do from all but a ResponseController.
type unwrapper struct{ http.ResponseWriter }

func (u unwrapper) Unwrap() http.ResponseWriter { return u.ResponseWriter }

func TestAfterWriter_FlushThroughOtherWrappers(t *testing.T) {
	flush := func(w http.ResponseWriter, r *http.Request) {
		_, ok := w.(http.Flusher)
		require.False(t, ok)
		if err := http.NewResponseController(w).Flush(); err != nil {
			require.ErrorIs(t, err, http.ErrNotSupported)
			w.WriteHeader(500)
		}
	}
	_, h, asked := failuresOnly(t, flush)
	w := httptest.NewRecorder()
	h.ServeHTTP(unwrapper{w}, guest())
	require.True(t, w.Flushed)
	require.Equal(t, "200 L2 R2", summary(w), "the fields are right although the controller writes the header")

	plain, w := writerThat(can{}, nil)
	h.ServeHTTP(unwrapper{plain}, guest())
	require.Equal(t, "500 L2 R1", summary(w), "a Flush that cannot be writes nothing")
	require.Equal(t, []int{200, 500}, *asked)
}

type withDeadline struct{ unwrapper }

func (withDeadline) SetReadDeadline(time.Time) error { return nil }

func TestAfterWriter_HijackThroughOtherWrappers(t *testing.T) {
	hijack := func(w http.ResponseWriter, r *http.Request) {
		_, ok := w.(http.Hijacker)
		require.False(t, ok)
		c := http.NewResponseController(w)
		require.NoError(t, c.SetReadDeadline(time.Time{}), "what the wrapper inside can do is still found")
		if _, _, err := c.Hijack(); err != nil {
			w.WriteHeader(500)
		}
	}
	_, h, asked := failuresOnly(t, hijack)
	for _, c := range []struct {
		can  can
		err  error
		want string
	}{
		{can{hijack: true}, nil, "200 L2 R2"},
		{can{hijack: true}, errors.New("no"), "500 L2 R1"},
		{can{}, nil, "500 L2 R0"},
	} {
		inside, w := writerThat(c.can, c.err)
		h.ServeHTTP(withDeadline{unwrapper{inside}}, guest())
		require.Equal(t, c.want, summary(w))
	}
	require.Equal(t, []int{101, 500, 500}, *asked)
}

func TestAfterWriter_HandlerSetsTheFields(t *testing.T) {
	_, h, _ := failuresOnly(t, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "1", w.Header().Get("X-RateLimit-Remaining"), "set before the handler runs")
		w.Header().Set("X-RateLimit-Remaining", "77")
		w.Header().Set("X-RateLimit-Reset", "88")
	})
	require.Equal(t, "200 L2 R77 RS88", summary(send(h)))

	_, h, _ = failuresOnly(t, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-RateLimit-Reset", "88") })
	require.Equal(t, "200 L2 R2 RS88", summary(send(h)))
}

func TestAfterWriter_Panic(t *testing.T) {
	for _, value := range []any{http.ErrAbortHandler, "other"} {
		b, h, asked := failuresOnly(t, func(w http.ResponseWriter, r *http.Request) { panic(value) })
		require.PanicsWithValue(t, value, func() { send(h) })
		require.PanicsWithValue(t, value, func() { send(h) })
		require.Equal(t, "429 L2 R0 RA60 RS946684860", summary(send(h)), "both have counted")
		require.Empty(t, *asked)
		require.Equal(t, []string{"admitted n", "admitted n", "denied n"}, b.outcomes())
	}
}

func TestAfterWriter_WindowOver(t *testing.T) {
	var b *bench
	b, h, _ := failuresOnly(t, func(w http.ResponseWriter, r *http.Request) { b.clock.Advance(61e9) })
	require.Equal(t, "200 L2 R1", summary(send(h)), "the window ended before its unit could be given back")
	require.Equal(t, "200 L2 R1", summary(send(h)))
}

func TestAfterWriter_Nested(t *testing.T) {
	succeed := func(status int) bool { return status >= 400 }
	for _, c := range []struct {
		name         string
		outer, inner Limits
		want         string
	}{
		{"inner gives back: the tie is lost to the outer one", PerMinute(6), PerMinute(6).After(succeed), "200 L6 R5"},
		{"inner gives back and still has less", PerMinute(9), PerMinute(6).After(succeed), "200 L6 R6"},
		{"outer gives back, inner has less", PerMinute(6).After(succeed), PerMinute(3), "200 L3 R2"},
		{"outer gives back and still has less", PerMinute(3).After(succeed), PerMinute(6), "200 L3 R3"},
		{"both give back", PerMinute(3).After(succeed), PerMinute(3).After(succeed), "200 L3 R3"},
	} {
		for _, families := range []Families{Legacy, Legacy | IETFDraft6} {
			b := newFixed(t, func(cc *FixedWindowConfig) { cc.Families = families })
			require.NoError(t, b.fixed.Named("o", always(c.outer)))
			require.NoError(t, b.fixed.Named("i", always(c.inner)))
			w := send(b.spec("o", "i"))
			require.Equal(t, c.want, summary(w), c.name)
			if families&IETFDraft6 != 0 {
				require.Equal(t, c.want, "200 L"+w.Header().Get("RateLimit-Limit")+" R"+w.Header().Get("RateLimit-Remaining"), c.name)
				require.Equal(t, "60", w.Header().Get("RateLimit-Reset"))
			}
		}
	}
}

func TestAfterWriter_Draft11(t *testing.T) {
	b := newFixed(t, func(c *FixedWindowConfig) { c.Families = IETFDraft11 })
	require.NoError(t, b.fixed.Named("o", always(All(PerMinute(9).After(func(int) bool { return false }), PerHour(90)))))
	require.NoError(t, b.fixed.Named("i", always(PerMinute(6).After(func(int) bool { return false }))))
	w := send(b.spec("o", "i"))
	require.Equal(t, []string{`"o";q=9;w=60, "o-2";q=90;w=3600, "i";q=6;w=60`}, w.Header().Values("RateLimit-Policy"))
	require.Equal(t, []string{`"o";r=9;t=60, "o-2";r=89;t=3600, "i";r=6;t=60`}, w.Header().Values("RateLimit"))
}

// Which item of RateLimit is whose is told by its place, not by its text: limits
// of one name can say the same, or one a part of what the other says.
func TestAfterWriter_Draft11OfEqualNames(t *testing.T) {
	never := func(int) bool { return false }
	long, short := Per(3, 60*time.Second), Per(3, 6*time.Second)
	for _, c := range []struct {
		outer, inner Limits
		handler      http.HandlerFunc
		want         []string
	}{
		{long, short.After(never), nil, []string{`"api";r=2;t=60, "api";r=3;t=6`}},
		{long.After(never), short, nil, []string{`"api";r=3;t=60, "api";r=2;t=6`}},
		{short.After(never), long, nil, []string{`"api";r=3;t=6, "api";r=2;t=60`}},
		{short, long.After(never), nil, []string{`"api";r=2;t=6, "api";r=3;t=60`}},
		{long, long.After(never), nil, []string{`"api";r=2;t=60, "api";r=3;t=60`}},
		{long.After(never), long, nil, []string{`"api";r=3;t=60, "api";r=2;t=60`}},
		{short.After(never), long.After(never), nil, []string{`"api";r=3;t=6, "api";r=3;t=60`}},
		{All(long, short.After(never)), All(short.After(never), long), nil,
			[]string{`"api";r=2;t=60, "api-2";r=3;t=6, "api";r=3;t=6, "api-2";r=2;t=60`}},

		// What the handler sets stands.
		{long, short.After(never), func(w http.ResponseWriter, r *http.Request) { w.Header().Add("RateLimit", `"own";r=1;t=6`) },
			[]string{`"api";r=2;t=60, "api";r=3;t=6`, `"own";r=1;t=6`}},
		{long.After(never), short.After(never), func(w http.ResponseWriter, r *http.Request) { w.Header().Set("RateLimit", `"api";r=2;t=60`) },
			[]string{`"api";r=2;t=60`}},
		{long.After(never), short.After(never), func(w http.ResponseWriter, r *http.Request) { w.Header().Set("RateLimit", `"api";r=2;t=600`) },
			[]string{`"api";r=2;t=600`}},
		{long.After(never), short.After(never), func(w http.ResponseWriter, r *http.Request) { w.Header().Del("RateLimit") }, nil},

		// A denial is alone, and stands although it says what the outer one said.
		{Per(1, time.Minute).After(never), Per(0, time.Minute), nil, []string{`"api";r=0;t=60`}},
	} {
		outer := newFixed(t, func(c *FixedWindowConfig) { c.Families = IETFDraft11 })
		inner := newFixed(t, func(c *FixedWindowConfig) { c.Families = IETFDraft11 })
		require.NoError(t, outer.fixed.Named("api", always(c.outer)))
		require.NoError(t, inner.fixed.Named("api", always(c.inner)))
		if c.handler == nil {
			c.handler = func(http.ResponseWriter, *http.Request) {}
		}
		w := send(outer.fixed.MustMiddleware("api")(inner.fixed.MustMiddleware("api")(c.handler)))
		require.Equal(t, c.want, w.Header().Values("RateLimit"))
	}
}

// What the handler sets or deletes stands, one field at a time.
func TestAfterWriter_HandlerChangesOneField(t *testing.T) {
	limits := PerMinute(2).After(func(int) bool { return false })
	for _, c := range []struct {
		handler func(http.Header)
		want    string
	}{
		{func(http.Header) {}, "2 2 2 2 60"},
		{func(h http.Header) { h.Set("X-RateLimit-Limit", "9") }, "9 2 2 2 60"},
		{func(h http.Header) { h.Del("X-RateLimit-Limit") }, " 2 2 2 60"},
		{func(h http.Header) { h.Del("X-RateLimit-Remaining") }, "2  2 2 60"},
		{func(h http.Header) { h.Set("RateLimit-Limit", "9") }, "2 2 9 2 60"},
		{func(h http.Header) { h.Set("RateLimit-Reset", "9") }, "2 2 2 2 9"},
		{func(h http.Header) { h.Del("RateLimit-Reset") }, "2 2 2 2 "},
		{func(h http.Header) { clear(h) }, "    "},
	} {
		b := newFixed(t, func(c *FixedWindowConfig) { c.Families = Legacy | IETFDraft6 })
		require.NoError(t, b.fixed.Named("n", always(limits)))
		h := send(b.fixed.MustMiddleware("n")(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.handler(w.Header()) }))).Header()
		var got []string
		for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"} {
			got = append(got, h.Get(name))
		}
		require.Equal(t, c.want, strings.Join(got, " "))
	}
}
