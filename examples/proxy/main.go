package main

import (
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/ringfence-go/ringfence/examples/internal/demo"
	"github.com/ringfence-go/ringfence/middleware"
)

func main() {
	limit, err := middleware.New(middleware.Config{
		Options: middleware.Options{
			// The network that the proxies are in. For a unix socket there is
			// TrustUnixSocket, for proxies at unknown addresses Hops.
			Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		},
		Policies: []middleware.Policy{{Name: "client", Limit: 2, Window: time.Minute, Key: middleware.ByIP}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer limit.Close()
	h := limit.Handler(demo.Hello)

	fmt.Println("two clients of one proxy:")
	demo.Get(h, "10.0.0.1", "/", "X-Forwarded-For", "192.0.2.1")
	demo.Get(h, "10.0.0.1", "/", "X-Forwarded-For", "192.0.2.2")
	fmt.Println("the first one makes up addresses, to which the proxy appends the real one:")
	demo.Get(h, "10.0.0.1", "/", "X-Forwarded-For", "198.51.100.1, 192.0.2.1")
	demo.Get(h, "10.0.0.1", "/", "X-Forwarded-For", "198.51.100.2, 192.0.2.1")
	fmt.Println("somebody gets past the proxy and makes up one, too:")
	demo.Get(h, "203.0.113.9", "/", "X-Forwarded-For", "192.0.2.2")
}
