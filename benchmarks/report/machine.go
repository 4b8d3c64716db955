package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// A machine is where and what was measured.
type machine struct {
	Date      string
	Commit    string
	CPU       string
	Cores     int
	System    string
	Go        string
	Load      string // of the last minute, before the first round
	Command   string
	Rounds    int
	Benchtime string
}

func describe() (machine, error) {
	m := machine{
		Date:   time.Now().UTC().Format(time.DateOnly),
		CPU:    runtime.GOARCH,
		Cores:  runtime.NumCPU(),
		System: runtime.GOOS + "/" + runtime.GOARCH,
		Go:     runtime.Version(),
		Load:   "unknown",
	}
	out, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return m, fmt.Errorf("git rev-parse: %w", err)
	}
	m.Commit = strings.TrimSpace(string(out))
	if err := exec.Command("git", "diff", "--quiet", "HEAD", "--", "*.go").Run(); err != nil {
		m.Commit += " and uncommitted changes"
	}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(model)
				break
			}
		}
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System += " " + strings.TrimSpace(string(release))
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(load), " ")
	}
	return m, nil
}

// fields pairs the names in machine.txt with what they describe.
func (m *machine) fields() []field {
	return []field{
		{"date", &m.Date}, {"commit", &m.Commit}, {"cpu", &m.CPU}, {"cores", &m.Cores}, {"system", &m.System},
		{"go", &m.Go}, {"load", &m.Load}, {"command", &m.Command}, {"rounds", &m.Rounds}, {"benchtime", &m.Benchtime},
	}
}

type field struct {
	name  string
	value any // *string or *int
}

func (m machine) String() string {
	var b strings.Builder
	for _, f := range m.fields() {
		switch v := f.value.(type) {
		case *string:
			fmt.Fprintf(&b, "%s: %s\n", f.name, *v)
		case *int:
			fmt.Fprintf(&b, "%s: %d\n", f.name, *v)
		}
	}
	return b.String()
}

func parseMachine(text string) (machine, error) {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		values[name] = strings.TrimSpace(value)
	}
	var m machine
	var errs []error
	for _, f := range m.fields() {
		switch v := f.value.(type) {
		case *string:
			*v = values[f.name]
		case *int:
			var err error
			if *v, err = strconv.Atoi(values[f.name]); err != nil {
				errs = append(errs, fmt.Errorf("machine.txt: %s is %q, want a number", f.name, values[f.name]))
			}
		}
	}
	return m, errors.Join(errs...)
}
