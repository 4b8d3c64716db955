package main

import (
	"log"
	"net/http"
	"time"

	"github.com/ringfence-go/ringfence/examples/internal/demo"
	"github.com/ringfence-go/ringfence/middleware"
)

func main() {
	limit, err := middleware.New(middleware.Config{
		Policies: []middleware.Policy{{
			Name:   "route",
			Limit:  2,
			Window: time.Minute,
			Key:    middleware.Join(middleware.ByIP, middleware.ByPattern),
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer limit.Close()

	// The limiter is inside of the mux, around each handler, so that it can tell
	// the patterns apart.
	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", limit.Handler(demo.Hello))
	mux.Handle("GET /search", limit.Handler(demo.Hello))

	demo.Get(mux, "192.0.2.1", "/users/1")
	demo.Get(mux, "192.0.2.1", "/users/2") // the same pattern
	demo.Get(mux, "192.0.2.1", "/users/3")
	demo.Get(mux, "192.0.2.1", "/search")  // another one
	demo.Get(mux, "192.0.2.2", "/users/1") // another client
}
