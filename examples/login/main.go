package main

import (
	"fmt"
	"log"
	"net/http"
	"strings"

	"github.com/ringfence-go/ringfence/examples/internal/demo"
	"github.com/ringfence-go/ringfence/middleware"
)

// maxForm is the largest form that is read, in bytes. The limiter reads it before
// it knows whether it lets the request pass.
const maxForm = 4096

func login(w http.ResponseWriter, r *http.Request) {
	if r.PostFormValue("password") != "correct horse" {
		http.Error(w, "wrong name or password", http.StatusUnauthorized)
		return
	}
	fmt.Fprintln(w, "welcome")
}

func main() {
	limits, err := middleware.NewFixedWindowLimiter(middleware.FixedWindowConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()

	failed := func(status int) bool { return status >= 400 }
	err = limits.Named("login", func(r *http.Request) middleware.Limits {
		account := strings.ToLower(r.PostFormValue("account"))
		return middleware.All(
			middleware.PerMinute(4).By(limits.ClientKey(r)),
			middleware.PerHour(3).By(account),
		).After(failed)
	})
	if err != nil {
		log.Fatal(err)
	}
	h := http.MaxBytesHandler(limits.MustMiddleware("login")(http.HandlerFunc(login)), maxForm)

	try := func(from, account, password string) {
		demo.Post(h, from, "/login", "account="+account+"&password="+password)
	}
	fmt.Println("one account from many addresses:")
	try("192.0.2.1", "ann", "1234")
	try("192.0.2.2", "Ann", "12345")
	try("192.0.2.3", "ann", "correct+horse") // costs nothing
	try("192.0.2.4", "ann", "secret")
	try("192.0.2.5", "ann", "password")
	fmt.Println("many accounts from one address:")
	for _, account := range []string{"bob", "cid", "dan", "eve", "fay"} {
		try("192.0.2.9", account, "1234")
	}
}
