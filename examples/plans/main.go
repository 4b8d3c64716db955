package main

import (
	"context"
	"log"
	"net/http"
	"time"

	"github.com/ringfence-go/ringfence/examples/internal/demo"
	"github.com/ringfence-go/ringfence/limiter"
	"github.com/ringfence-go/ringfence/middleware"
)

// account is who an API key belongs to.
type account struct {
	id   string
	plan string
}

var accounts = map[string]account{
	"key-ann": {"ann", "free"},
	"key-bob": {"bob", "paid"},
	"key-ops": {"ops", "staff"},
}

// limits are the units per minute of each plan. Who has no key has no plan.
var limits = map[string]uint64{"": 2, "free": 4, "paid": 100, "staff": limiter.Unlimited}

type accountKey struct{}

// authenticate finds out who calls, and refuses keys that it does not know. It is
// outside of the limiter, so that nobody gets a new limit by making up a key.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if key := r.Header.Get("X-Api-Key"); key != "" {
			a, ok := accounts[key]
			if !ok {
				http.Error(w, "unknown API key", http.StatusUnauthorized)
				return
			}
			r = r.WithContext(context.WithValue(r.Context(), accountKey{}, a))
		}
		next.ServeHTTP(w, r)
	})
}

// caller returns who sent the request, the zero account if that is not known.
func caller(r *http.Request) account {
	a, _ := r.Context().Value(accountKey{}).(account)
	return a
}

func main() {
	limit, err := middleware.New(middleware.Config{
		Policies: []middleware.Policy{{
			Name:      "plan",
			Window:    time.Minute,
			LimitFunc: func(r *http.Request) uint64 { return limits[caller(r).plan] },
			Key: func(r middleware.Request) string {
				if id := caller(r.Request).id; id != "" {
					return "u:" + id
				}
				return r.ClientKey()
			},
			Cost: func(r *http.Request) uint64 {
				if r.URL.Path == "/report" {
					return 3
				}
				return 1
			},
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer limit.Close()
	api := authenticate(limit.Handler(demo.Hello))

	demo.Get(api, "192.0.2.1", "/items", "X-Api-Key", "key-ann")
	demo.Get(api, "192.0.2.2", "/report", "X-Api-Key", "key-ann") // by key, from anywhere
	demo.Get(api, "192.0.2.2", "/items", "X-Api-Key", "key-ann")
	demo.Get(api, "192.0.2.2", "/report", "X-Api-Key", "key-bob")
	demo.Get(api, "192.0.2.2", "/report", "X-Api-Key", "key-ops") // not limited
	demo.Get(api, "192.0.2.2", "/items", "X-Api-Key", "made up")
	demo.Get(api, "192.0.2.2", "/items") // by address
	demo.Get(api, "192.0.2.2", "/items")
	demo.Get(api, "192.0.2.2", "/items")
}
