package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	httppprof "net/http/pprof"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

type config struct {
	workload   string
	impl       string
	clock      string
	duration   time.Duration
	goroutines int
	out        string
	http       string
}

// run returns the exit status: 0, 1 if something failed, 2 if the flags are bad.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		err = c.validate()
	}
	if err != nil {
		fmt.Fprintln(stderr, "pprof:", err)
		return 2
	}
	if err := c.run(ctx, stdout); err != nil {
		fmt.Fprintln(stderr, "pprof:", err)
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (config, error) {
	c := config{duration: 5 * time.Second}
	fs := flag.NewFlagSet("pprof", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	set := func(name, usage, want string, parse func(text string) error) {
		fs.Func(name, usage, func(text string) error {
			if parse(text) != nil {
				return errors.New("want " + want)
			}
			return nil
		})
	}
	fs.StringVar(&c.workload, "workload", "hot-key", "one of "+strings.Join(workloadNames(), ", "))
	fs.StringVar(&c.impl, "impl", "ringfence", "who decides: ringfence or mutex")
	fs.StringVar(&c.clock, "clock", "system", "the clock: system or coarse, or step for rollover")
	set("duration", "how long to run (default 5s)", "a duration above 0, such as 5s", func(text string) (err error) {
		c.duration, err = time.ParseDuration(text)
		return err
	})
	set("goroutines", "how many goroutines ask (default what the workload says, or GOMAXPROCS)", "a number of goroutines, such as 8", func(text string) (err error) {
		c.goroutines, err = strconv.Atoi(text)
		return err
	})
	fs.StringVar(&c.out, "out", "out", "directory for the profiles")
	fs.StringVar(&c.http, "http", "", "address to serve net/http/pprof at while running (default none)")
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fs.SetOutput(stderr)
		fs.Usage()
	}
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return c, err
}

func (c config) validate() error {
	var errs []error
	if _, err := c.find(); err != nil {
		errs = append(errs, err)
	}
	if c.duration <= 0 {
		errs = append(errs, fmt.Errorf("-duration is %v, must be positive", c.duration))
	}
	if c.goroutines < 0 {
		errs = append(errs, fmt.Errorf("-goroutines is %d, must not be negative", c.goroutines))
	}
	if c.out == "" {
		errs = append(errs, errors.New("-out is empty, must be a directory"))
	}
	if c.http != "" {
		if _, _, err := net.SplitHostPort(c.http); err != nil {
			errs = append(errs, fmt.Errorf("-http is %q, must be host:port or :port", c.http))
		}
	}
	return errors.Join(errs...)
}

func (c config) run(ctx context.Context, stdout io.Writer) error {
	l, err := newLoad(c)
	if err != nil {
		return err
	}
	defer l.close()
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	stopHTTP, err := c.serve(stdout)
	if err != nil {
		return err
	}
	defer stopHTTP()
	r, err := profile(ctx, c, l)
	if err != nil {
		return err
	}
	r.print(stdout)
	return printTop(ctx, filepath.Join(c.out, "cpu.prof"), stdout)
}

// serve serves the endpoints of net/http/pprof, if it is asked to.
func (c config) serve(stdout io.Writer) (stop func(), err error) {
	if c.http == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", c.http)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", httppprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", httppprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", httppprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", httppprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", httppprof.Trace)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(listener)
	fmt.Fprintf(stdout, "serving http://%s/debug/pprof/\n", listener.Addr())
	return func() { server.Close() }, nil
}

// A worker is one goroutine that asks.
type worker struct {
	decide    func() bool
	decisions uint64
	admitted  uint64
}

// burst makes some decisions. A wait is one of a decision if its stack goes
// through here.
//
//go:noinline
func (w *worker) burst() {
	for range 1000 {
		w.decisions++
		if w.decide() {
			w.admitted++
		}
	}
}

// work lets all goroutines ask until the context is done, then looks, and stops
// them.
func work(ctx context.Context, c config, l *load, look func() error) ([]*worker, error) {
	var stop atomic.Bool
	var group errgroup.Group
	workers := make([]*worker, l.goroutines)
	labels := pprof.Labels("workload", c.workload, "implementation", c.impl)
	for i := range workers {
		w := &worker{decide: l.worker(i)}
		workers[i] = w
		group.Go(func() error {
			pprof.Do(context.Background(), labels, func(context.Context) {
				for !stop.Load() {
					w.burst()
				}
			})
			return nil
		})
	}
	<-ctx.Done()
	err := look()
	stop.Store(true)
	return workers, errors.Join(err, group.Wait())
}

// A result is what a run has shown.
type result struct {
	config
	goroutines int
	elapsed    time.Duration
	decisions  uint64
	admitted   uint64
	mutex      waits
	block      waits
}

func (r result) print(w io.Writer) {
	fmt.Fprintf(w, "workload %s, implementation %s, clock %s, %d goroutines, GOMAXPROCS %d\n", r.workload, r.impl, r.clock, r.goroutines, runtime.GOMAXPROCS(0))
	rate := float64(r.decisions) / r.elapsed.Seconds()
	fmt.Fprintf(w, "%.0f ops/s (%.1f ns each), %.2f %% admitted, %v with profiling on\n",
		rate, 1e9/rate, 100*float64(r.admitted)/float64(r.decisions), r.elapsed.Round(time.Millisecond))
	for _, kind := range []struct {
		name  string
		waits waits
	}{{"mutex", r.mutex}, {"block", r.block}} {
		fmt.Fprintf(w, "%s wait in decisions: %v; elsewhere: %v; for the runtime's own locks: %v\n", kind.name,
			kind.waits.decisions, kind.waits.elsewhere, kind.waits.runtime)
	}
	fmt.Fprintf(w, "profiles in %s\n", r.out)
}

// printTop prints the functions that took the most time. Only go tool pprof can
// read a CPU profile; where there is no go command, it says so.
func printTop(ctx context.Context, file string, w io.Writer) error {
	tool, err := exec.LookPath("go")
	if err != nil {
		fmt.Fprintln(w, "top functions: not shown, there is no go command to run go tool pprof with")
		return nil
	}
	// A run that was interrupted is shown too.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), tool, "tool", "pprof", "-top", "-nodecount", "15", file)
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go tool pprof -top %s: %w", file, err)
	}
	_, err = fmt.Fprintf(w, "top functions:\n%s", out)
	return err
}
