package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/ringfence-go/ringfence/limiter"
	"github.com/ringfence-go/ringfence/middleware"
)

// site is the handler of the server, and how to end what it has started.
type site struct {
	http.ServeMux
	rolling *middleware.Middleware
	fixed   *middleware.FixedWindowLimiter
}

// newSite returns the handler. A nil clock is that of the system.
func newSite(clock limiter.Clock) (*site, error) {
	options := middleware.Options{
		Families: middleware.Legacy | middleware.IETFDraft11,
		Clock:    clock,
		Observer: func(e middleware.Event) {
			slog.Info(e.Outcome.String(), "path", e.Request.URL.Path, "policy", e.Policy, "remaining", e.Decision.Remaining)
		},
	}
	rolling, err := middleware.New(middleware.Config{
		Options:  options,
		Policies: []middleware.Policy{{Name: "page", Limit: 3, Window: 10 * time.Second, Key: middleware.ByIP}},
	})
	if err != nil {
		return nil, err
	}
	fixed, err := middleware.NewFixedWindowLimiter(middleware.FixedWindowConfig{Options: options})
	if err != nil {
		return nil, errors.Join(err, rolling.Close())
	}
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "It is", time.Now().Format(time.TimeOnly))
	})
	throttle, err := fixed.Middleware("2,0.1") // 0.1 minutes, 6 seconds
	if err != nil {
		return nil, errors.Join(err, rolling.Close(), fixed.Close())
	}
	s := &site{rolling: rolling, fixed: fixed}
	s.Handle("/", rolling.Handler(page))
	s.Handle("/throttled", throttle(page))
	return s, nil
}

// Close ends what the limiters have started.
func (s *site) Close() error { return errors.Join(s.rolling.Close(), s.fixed.Close()) }

func run(ctx context.Context, addr string) error {
	s, err := newSite(nil)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		stopped <- server.Shutdown(context.WithoutCancel(ctx))
	}()
	log.Printf("curl -i http://%s/", l.Addr())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(err, s.Close())
	}
	return errors.Join(<-stopped, s.Close())
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "server: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *addr); err != nil {
		log.Print(err)
		os.Exit(1)
	}
}
