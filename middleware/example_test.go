package middleware_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/ringfence-go/ringfence/middleware"
)

// page is a handler that has nothing to do with limits.
var page = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {})

// visit sends a request to h and prints the answer.
func visit(h http.Handler, path string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	fmt.Println(path, w.Code, w.Header().Get("X-RateLimit-Remaining"), "left")
}

func ExampleNew() {
	m, err := middleware.New(middleware.Config{
		Policies: []middleware.Policy{
			{Name: "minute", Limit: 2, Window: time.Minute, Key: middleware.ByIP},
			{Name: "day", Limit: 100, Window: 24 * time.Hour, Slots: 24, Key: middleware.ByIP},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	h := m.Handler(page)
	visit(h, "/")
	visit(h, "/")
	visit(h, "/")
	// Output:
	// / 200 1 left
	// / 200 0 left
	// / 429 0 left
}

func ExampleFixedWindowLimiter_Middleware() {
	f, err := middleware.NewFixedWindowLimiter(middleware.FixedWindowConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()

	mux := http.NewServeMux()
	mux.Handle("/search", f.MustMiddleware("60,1,search")(page)) // 60 in a minute
	mux.Handle("/export", f.MustMiddleware("1,60,export")(page)) // 1 in an hour
	visit(mux, "/search")
	visit(mux, "/export")
	visit(mux, "/export")

	_, err = f.Middleware("60,never")
	fmt.Println(err)
	// Output:
	// /search 200 59 left
	// /export 200 0 left
	// /export 429 0 left
	// ringfence: invalid configuration: throttle "60,never": minutes is "never", want a decimal number such as 1 or 0.5
}

func ExampleFixedWindowLimiter_Named() {
	f, err := middleware.NewFixedWindowLimiter(middleware.FixedWindowConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()

	err = f.Named("downloads", func(r *http.Request) middleware.Limits {
		if r.URL.Path == "/free" {
			return middleware.NoLimits()
		}
		return middleware.All(
			middleware.PerHour(1000),                   // of all clients together
			middleware.PerMinute(2).By(f.ClientKey(r)), // of each
		)
	})
	if err != nil {
		log.Fatal(err)
	}

	h := f.MustMiddleware("downloads")(page)
	visit(h, "/book")
	visit(h, "/book")
	visit(h, "/book")
	visit(h, "/free")
	// Output:
	// /book 200 1 left
	// /book 200 0 left
	// /book 429 0 left
	// /free 200  left
}

func ExampleClientIP() {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Forwarded-For", "198.51.100.66, 203.0.113.7")

	r.RemoteAddr = "10.0.0.1:40000" // a proxy, which has added 203.0.113.7
	fmt.Println(middleware.ClientIP(r, proxies))
	r.RemoteAddr = "192.0.2.10:40000" // anybody
	fmt.Println(middleware.ClientIP(r, proxies))
	// Output:
	// 203.0.113.7
	// 192.0.2.10
}
