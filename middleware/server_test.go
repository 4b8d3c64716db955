package middleware

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// These tests run on a real server on the loopback interface, over HTTP/1.1 and
// HTTP/2, through a limiter that passes the ResponseWriter on and through one that
// wraps it.

// patience is how long a test waits for what should come at once.
const patience = 20 * time.Second

// serve runs f against a server, for each protocol and kind of limiter. A handler
// is reached through a limit of 5 a minute, which with After counts failures only.
func serve(t *testing.T, handler http.HandlerFunc, f func(t *testing.T, server *httptest.Server, after bool)) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/after=%v", proto, after), func(t *testing.T) {
				b := newFixed(t)
				limits := PerMinute(5)
				if after {
					limits = limits.After(func(status int) bool { return status >= 400 })
				}
				require.NoError(t, b.fixed.Named("n", always(limits)))
				server := httptest.NewUnstartedServer(b.fixed.MustMiddleware("n")(handler))
				server.EnableHTTP2 = proto == "HTTP/2.0"
				if server.EnableHTTP2 {
					server.StartTLS()
				} else {
					server.Start()
				}
				defer server.Close()
				f(t, server, after)
			})
		}
	}
}

// get asks the server for /, and requires the protocol that the test is about.
func get(t *testing.T, server *httptest.Server) *http.Response {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	response, err := server.Client().Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { response.Body.Close() })
	require.Equal(t, server.EnableHTTP2, response.ProtoMajor == 2)
	return response
}

func TestCase36_ServerSentEvents(t *testing.T) {
	arrived := make(chan bool)
	serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, ok := w.(http.Flusher)
		fmt.Fprintf(w, "data: %v\n\n", ok)
		http.NewResponseController(w).Flush()
		select {
		case <-arrived:
		case <-r.Context().Done(): // the test has failed
		}
		fmt.Fprint(w, "data: last\n\n")
	}, func(t *testing.T, server *httptest.Server, after bool) {
		response := get(t, server)
		events := bufio.NewReader(response.Body)
		event, err := events.ReadString('\n')
		arrived <- true // the handler still runs
		require.NoError(t, err)
		require.Equal(t, "data: true\n", event)
		require.Equal(t, remainingAfter200(after), response.Header.Get("X-RateLimit-Remaining"))
		rest, err := io.ReadAll(events)
		require.NoError(t, err)
		require.Equal(t, "\ndata: last\n\n", string(rest))
	})
}

// remainingAfter200 is the rest of the limit in serve after the first success.
func remainingAfter200(after bool) string {
	if after {
		return "5"
	}
	return "4"
}

func TestCase36_Websocket(t *testing.T) {
	serve(t, func(w http.ResponseWriter, r *http.Request) {
		if _, ok := w.(http.Hijacker); r.ProtoMajor == 2 || !ok {
			fmt.Fprintf(w, "hijacker: %v", ok)
			return
		}
		echo(t, w, r)
	}, func(t *testing.T, server *httptest.Server, after bool) {
		if server.EnableHTTP2 {
			body, err := io.ReadAll(get(t, server).Body)
			require.NoError(t, err)
			require.Equal(t, "hijacker: false", string(body), "as without the middleware")
			return
		}
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
		in := bufio.NewReader(conn)
		response, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusSwitchingProtocols, response.StatusCode)
		require.Equal(t, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", response.Header.Get("Sec-WebSocket-Accept"))
		for _, text := range []string{"first", "second"} {
			_, err = conn.Write(append([]byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0}, text...)) // masked by zeros
			require.NoError(t, err)
			frame := make([]byte, 2+len(text))
			_, err = io.ReadFull(in, frame)
			require.NoError(t, err)
			require.Equal(t, text, string(frame[2:]))
		}
		want := "3" // the handshake has counted, its messages have not, and this request does
		if after {
			want = "5"
		}
		require.Equal(t, want, get(t, server).Header.Get("X-RateLimit-Remaining"))
	})
}

// echo is the server of a websocket that repeats short unfragmented messages.
func echo(t *testing.T, w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "websocket" {
		w.WriteHeader(http.StatusOK)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	rw.Flush()
	for {
		var head [6]byte
		if _, err := io.ReadFull(rw, head[:]); err != nil {
			return // the client has gone
		}
		text := make([]byte, head[1]&0x7f)
		if _, err := io.ReadFull(rw, text); err != nil {
			return
		}
		mask := binary.BigEndian.Uint32(head[2:])
		for i := range text {
			text[i] ^= byte(mask >> (24 - 8*(i%4)))
		}
		rw.Write(append([]byte{0x81, byte(len(text))}, text...))
		rw.Flush()
	}
}

func TestCase36_Files(t *testing.T) {
	body := strings.Repeat("0123456789", 10_000)
	serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, ok := w.(io.ReaderFrom)
		w.Header().Set("Reader-From", fmt.Sprint(ok))
		http.ServeContent(w, r, "digits.txt", time.Time{}, strings.NewReader(body))
	}, func(t *testing.T, server *httptest.Server, after bool) {
		response := get(t, server)
		require.Equal(t, fmt.Sprint(!server.EnableHTTP2), response.Header.Get("Reader-From"), "as without the middleware")
		require.Equal(t, remainingAfter200(after), response.Header.Get("X-RateLimit-Remaining"))
		got, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Equal(t, body, string(got))
	})
}

func TestCase36_DenialOverTheWire(t *testing.T) {
	serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}, func(t *testing.T, server *httptest.Server, after bool) {
		for i := range 5 {
			response := get(t, server)
			require.Equal(t, 401, response.StatusCode)
			require.Equal(t, fmt.Sprint(4-i), response.Header.Get("X-RateLimit-Remaining"))
		}
		response := get(t, server)
		require.Equal(t, 429, response.StatusCode)
		require.Equal(t, "60", response.Header.Get("Retry-After"))
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Equal(t, "Too Many Attempts.", string(body))
	})
}

func TestCase36_WriterIsPassedOn(t *testing.T) {
	var writer http.ResponseWriter
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { writer = w })
	m, err := New(Config{Policies: []Policy{{Name: "n", Limit: 1, Window: time.Minute, Key: ByIP}}})
	require.NoError(t, err)
	defer m.Close()
	for _, h := range []http.Handler{m.Handler(inner), newFixed(t).fixed.MustMiddleware("1,1")(inner)} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, guest())
		require.Same(t, w, writer)
	}
}

// abilities names the interfaces of w that handlers look for.
func abilities(w http.ResponseWriter) (names []string) {
	if _, ok := w.(http.Flusher); ok {
		names = append(names, "Flush")
	}
	if _, ok := w.(http.Hijacker); ok {
		names = append(names, "Hijack")
	}
	if _, ok := w.(io.ReaderFrom); ok {
		names = append(names, "ReadFrom")
	}
	if _, ok := w.(io.StringWriter); ok {
		names = append(names, "WriteString")
	}
	return names
}

func TestField58_AbilitiesOfTheWriter(t *testing.T) {
	serve(t, func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		fmt.Fprintln(w, abilities(w), c.Flush(), c.SetWriteDeadline(time.Time{}), c.EnableFullDuplex())
	}, func(t *testing.T, server *httptest.Server, after bool) {
		body, err := io.ReadAll(get(t, server).Body)
		require.NoError(t, err)
		want := "[Flush Hijack ReadFrom WriteString] <nil> <nil> <nil>\n" // of net/http itself
		if server.EnableHTTP2 {
			want = "[Flush WriteString] <nil> <nil> <nil>\n"
		}
		require.Equal(t, want, string(body))
	})
}
