package main

import (
	"log"
	"net/http"

	"github.com/ringfence-go/ringfence/examples/internal/demo"
	"github.com/ringfence-go/ringfence/middleware"
)

// router stands for that of chi, gorilla/mux and others: it has a Use.
type router struct {
	http.ServeMux
	wrappers []func(http.Handler) http.Handler
}

// Use adds a middleware around all handlers that are added later.
func (r *router) Use(wrappers ...func(http.Handler) http.Handler) {
	r.wrappers = append(r.wrappers, wrappers...)
}

// Get adds a handler, inside of the middlewares, the first outermost.
func (r *router) Get(path string, h http.Handler) {
	for i := len(r.wrappers) - 1; i >= 0; i-- {
		h = r.wrappers[i](h)
	}
	r.Handle("GET "+path, h)
}

func main() {
	limits, err := middleware.NewFixedWindowLimiter(middleware.FixedWindowConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()

	// The prefixes keep the two counters apart.
	var r router
	r.Use(limits.MustMiddleware("60,1,all"))
	r.Get("/", demo.Hello)
	r.Use(limits.MustMiddleware("2,1,export"))
	r.Get("/export", demo.Hello)

	demo.Get(&r, "192.0.2.1", "/")
	demo.Get(&r, "192.0.2.1", "/export")
	demo.Get(&r, "192.0.2.1", "/export")
	demo.Get(&r, "192.0.2.1", "/export")
	demo.Get(&r, "192.0.2.1", "/") // 60, less 5
}
