package demo

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
)

// Hello is a handler that has nothing to do with limits.
var Hello = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })

// Get sends a GET request from an address, and prints the answer.
func Get(h http.Handler, from, path string, header ...string) {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	send(h, r, from)
}

// Post sends a form from an address, and prints the answer.
func Post(h http.Handler, from, path, form string) {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	send(h, r, from)
}

func send(h http.Handler, r *http.Request, from string) {
	r.RemoteAddr = from + ":50000"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	line := fmt.Sprintf("%s %s from %s: %d", r.Method, r.URL.Path, from, w.Code)
	if limit := w.Header().Get("X-RateLimit-Limit"); limit != "" {
		line += fmt.Sprintf(", %s of %s left", w.Header().Get("X-RateLimit-Remaining"), limit)
	}
	fmt.Println(line)
}
