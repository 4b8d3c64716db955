package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, errUsage) {
			os.Exit(2)
		}
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage")

type config struct {
	time   time.Duration
	rounds int
	procs  string
	short  bool
	out    string
	from   string
}

func run(args []string, stdout, stderr io.Writer) error {
	var c config
	fs := flag.NewFlagSet("report", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.DurationVar(&c.time, "time", 20*time.Minute, "time to spend, about")
	fs.IntVar(&c.rounds, "rounds", 5, "rounds, of which medians are taken; at least 5")
	fs.StringVar(&c.procs, "cpu", "1,2,4", "values of GOMAXPROCS")
	fs.BoolVar(&c.short, "short", false, "small key sets, to see that everything runs; the numbers mean nothing")
	fs.StringVar(&c.out, "out", "", "directory for the results (default benchmarks/results/DATE-COMMIT)")
	fs.StringVar(&c.from, "from", "", "directory of results to write summary and charts for again, running nothing")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return errUsage
	}
	if err := c.validate(fs.Args()); err != nil {
		fmt.Fprintln(stderr, "report:", err)
		return errUsage
	}
	if c.from == "" {
		dir, err := measure(c, stdout)
		if err != nil {
			return err
		}
		c.from = dir
	}
	return write(c.from, stdout)
}

func (c config) validate(rest []string) error {
	var errs []error
	if len(rest) > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q", rest[0]))
	}
	if c.time <= 0 {
		errs = append(errs, fmt.Errorf("-time is %v, must be positive", c.time))
	}
	if c.rounds < 5 {
		errs = append(errs, fmt.Errorf("-rounds is %d, must be at least 5", c.rounds))
	}
	for _, p := range strings.Split(c.procs, ",") {
		if n, err := strconv.Atoi(p); err != nil || n < 1 {
			errs = append(errs, fmt.Errorf("-cpu is %q, must be positive numbers with commas in between", c.procs))
			break
		}
	}
	return errors.Join(errs...)
}

// A part of a round: benchmarks of one package. What a benchmark does on its own
// (memory, accuracy) takes one iteration; the others take the time that is left
// for them.
type part struct {
	folder  string
	pattern string
	cpu     string
	once    bool
}

func parts(procs string) []part {
	cores := strconv.Itoa(runtime.NumCPU())
	peers := filepath.Join("benchmarks", "peers")
	return []part{
		{peers, "^Benchmark(Decision|HTTP)$", procs, false},
		{peers, "^BenchmarkLatency$", cores, false},
		{peers, "^Benchmark(Memory|Accuracy)$", cores, true},
		{"limiter", "^Benchmark(Limiter|Keyed)$", "1", false},
		{"atomicring", "^BenchmarkRing$", "1", false},
	}
}

// binary is the compiled test of the part's package in dir.
func (p part) binary(dir string) string { return filepath.Join(dir, filepath.Base(p.folder)+".test") }

// build compiles it.
func (p part) build(dir string) error {
	out, err := exec.Command("go", "-C", p.folder, "test", "-c", "-o", p.binary(dir), ".").CombinedOutput()
	if err != nil {
		return fmt.Errorf("building %s: %w\n%s", p.folder, err, out)
	}
	return nil
}

// run runs the part and returns what it printed.
func (p part) run(dir, benchtime, cpu string, short bool) ([]byte, error) {
	cmd := exec.Command(p.binary(dir), "-test.run", "^$", "-test.bench", p.pattern, "-test.benchtime", benchtime, "-test.cpu", cpu,
		"-test.timeout", "0", "-test.short="+strconv.FormatBool(short))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", p.pattern, err, out)
	}
	return out, nil
}

// measure runs the rounds and returns the directory with their output.
func measure(c config, stdout io.Writer) (string, error) {
	start := time.Now()
	m, err := describe()
	if err != nil {
		return "", err
	}
	if c.out == "" {
		c.out = filepath.Join("benchmarks", "results", start.Format(time.DateOnly)+"-"+m.Commit[:min(9, len(m.Commit))])
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return "", err
	}
	temp, err := os.MkdirTemp("", "report")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	parts := parts(c.procs)
	built := map[string]bool{}
	for _, p := range parts {
		if built[p.folder] {
			continue
		}
		built[p.folder] = true
		if err := p.build(temp); err != nil {
			return "", err
		}
	}

	// One pass with a single iteration each tells how many benchmarks there are
	// and how long everything takes that is not timed.
	fmt.Fprintln(stdout, "looking at what there is to run …")
	lines := 0
	began := time.Now()
	for _, p := range parts {
		out, err := p.run(temp, "1x", "1", c.short)
		if err != nil {
			return "", err
		}
		if !p.once {
			lines += len(strings.Split(p.cpu, ",")) * len(parse(0, string(out)))
		}
	}
	overhead := time.Since(began)
	benchtime := perBenchmark(c.time-time.Since(start), overhead, c.rounds, lines)
	m.Command = fmt.Sprintf("go run ./benchmarks/report -time %v -rounds %d -cpu %s", c.time, c.rounds, c.procs)
	if c.short {
		m.Command += " -short"
	}
	m.Benchtime = benchtime.String()
	m.Rounds = c.rounds
	if err := os.WriteFile(filepath.Join(c.out, "machine.txt"), []byte(m.String()), 0o644); err != nil {
		return "", err
	}
	for round := 1; round <= c.rounds; round++ {
		fmt.Fprintf(stdout, "round %d of %d, %d measurements of %v\n", round, c.rounds, lines, benchtime)
		var raw []byte
		for _, p := range parts {
			duration := benchtime.String()
			if p.once {
				duration = "1x"
			}
			out, err := p.run(temp, duration, p.cpu, c.short)
			if err != nil {
				return "", err
			}
			raw = append(raw, out...)
		}
		name := filepath.Join(c.out, fmt.Sprintf("round-%d.txt", round))
		if err := os.WriteFile(name, raw, 0o644); err != nil {
			return "", err
		}
	}
	return c.out, nil
}

// shortest is the least time that one benchmark is given. With less, the ones
// with a contended lock would be timed over a few turns of the scheduler only.
const shortest = 50 * time.Millisecond

// perBenchmark divides the time that is left. The testing package runs a
// benchmark with growing iteration counts until one run is long enough, which
// takes about as long again as that run.
func perBenchmark(left, overhead time.Duration, rounds, lines int) time.Duration {
	d := (left - time.Duration(rounds)*overhead) / time.Duration(2*rounds*max(lines, 1))
	return max(d.Truncate(10*time.Millisecond), shortest)
}

// write makes the summary and the charts from the raw output in dir.
func write(dir string, stdout io.Writer) error {
	machine, err := os.ReadFile(filepath.Join(dir, "machine.txt"))
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "round-*.txt"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s has no round-*.txt", dir)
	}
	var all results
	for i, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		all = append(all, parse(i, string(raw))...)
	}
	m, err := parseMachine(string(machine))
	if err != nil {
		return err
	}
	for name, text := range render(m, all) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
		fmt.Fprintln(stdout, "wrote", path)
	}
	return nil
}
