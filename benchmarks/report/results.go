package main

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// A sample is one line of benchmark output.
type sample struct {
	round  int
	bench  string            // "Decision"
	params map[string]string // "impl" → "ringfence"
	procs  int
	values map[string]float64 // "ns/op" → 23.4
}

type results []sample

// parse reads the output of one round and skips what is not a result.
func parse(round int, text string) results {
	var all results
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 4 || len(f)%2 != 0 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		s := sample{round: round, params: map[string]string{}, procs: 1, values: map[string]float64{}}
		name := strings.TrimPrefix(f[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i > strings.LastIndexByte(name, '/') {
			if n, err := strconv.Atoi(name[i+1:]); err == nil {
				s.procs, name = n, name[:i]
			}
		}
		parts := strings.Split(name, "/")
		s.bench = parts[0]
		for _, p := range parts[1:] {
			k, v, _ := strings.Cut(p, "=")
			s.params[k] = v
		}
		ok := true
		for i := 2; i < len(f); i += 2 {
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				ok = false
				break
			}
			s.values[f[i+1]] = v
		}
		if ok {
			all = append(all, s)
		}
	}
	return all
}

// A query picks samples: those of one benchmark, with one GOMAXPROCS (0: any),
// whose parameters are as given.
type query struct {
	bench  string
	procs  int
	params map[string]string
}

// with returns the query with one more parameter.
func (q query) with(key, value string) query {
	params := map[string]string{key: value}
	for k, v := range q.params {
		if k != key {
			params[k] = v
		}
	}
	q.params = params
	return q
}

func (q query) matches(s sample) bool {
	if s.bench != q.bench || q.procs != 0 && s.procs != q.procs {
		return false
	}
	for k, v := range q.params {
		if s.params[k] != v {
			return false
		}
	}
	return true
}

// values returns what the samples of a query show for unit, by round.
func (r results) values(q query, unit string) map[int]float64 {
	found := map[int]float64{}
	for _, s := range r {
		if v, ok := s.values[unit]; ok && q.matches(s) {
			found[s.round] = v
		}
	}
	return found
}

// median returns the median over the rounds, NaN where there is none.
func (r results) median(q query, unit string) float64 {
	found := r.values(q, unit)
	list := make([]float64, 0, len(found))
	for _, v := range found {
		list = append(list, v)
	}
	return median(list)
}

// largest returns the largest value of the rounds, NaN where there is none.
func (r results) largest(q query, unit string) float64 {
	most := math.NaN()
	for _, v := range r.values(q, unit) {
		if math.IsNaN(most) || v > most {
			most = v
		}
	}
	return most
}

// ratio returns the median over the rounds of a's value divided by b's.
func (r results) ratio(a, b query, unit string) float64 {
	of := r.values(b, unit)
	var list []float64
	for round, v := range r.values(a, unit) {
		if w, ok := of[round]; ok {
			list = append(list, v/w)
		}
	}
	return median(list)
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return math.NaN()
	}
	slices.Sort(list)
	half := len(list) / 2
	if len(list)%2 == 1 {
		return list[half]
	}
	return (list[half-1] + list[half]) / 2
}

// names returns the values that a parameter takes in a benchmark, in the order
// in which they appear.
func (r results) names(bench, param string) []string {
	var list []string
	for _, s := range r {
		if v, ok := s.params[param]; ok && s.bench == bench && !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}
