package benchmarks

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWorkloads_Distinct(t *testing.T) {
	names, descriptions := map[string]bool{}, map[string]bool{}
	for _, w := range Workloads() {
		require.False(t, names[w.Name], w.Name)
		require.False(t, descriptions[w.String()], w.String())
		names[w.Name], descriptions[w.String()] = true, true
		require.NotZero(t, w.Limit, w.Name)
		require.NotZero(t, w.Window, w.Name)
		found, ok := Find(w.Name)
		require.True(t, ok)
		require.Equal(t, w, found)
	}
	_, ok := Find("nothing")
	require.False(t, ok)
}

func stream(t *testing.T, w Workload) *Stream {
	s, err := NewStream(w, 1)
	require.NoError(t, err)
	return s
}

func TestStream_Keys(t *testing.T) {
	for _, w := range []Workload{
		{Name: "hot", Dist: Hot, Keys: 1},
		{Name: "uniform", Dist: Uniform, Keys: 1000},
		{Name: "zipf", Dist: Zipf, Keys: 1000},
		{Name: "turn", Dist: Turn, Keys: 1000},
	} {
		s := stream(t, w)
		require.Len(t, s.Key(0), KeyLen)
		require.Equal(t, s.text, stream(t, w).text, "the same seed draws the same keys")
	}
	_, err := NewStream(Workload{Name: "thin", Dist: Zipf, Keys: 100 * draws}, 1)
	require.ErrorContains(t, err, "workload thin: the stream has")

	zipf := stream(t, Workload{Dist: Zipf, Keys: manyKeys})
	first := 0
	for i := range zipf.Len() {
		if zipf.Key(i) == string(appendKey(nil, 0)) {
			first++
		}
	}
	require.InDelta(t, 0.12, float64(first)/float64(zipf.Len()), 0.03, "share of the hottest key")
}

type fixed bool

func (f fixed) Allow(string) bool { return bool(f) }
func (f fixed) Close()            {}

func TestPrepare_WrongShare(t *testing.T) {
	w := Workload{Name: "w", Keys: 10, Dist: Uniform, Deny: "none", Slots: 10}
	s := stream(t, w)
	impl := Implementation{Name: "fixed", Keyed: func(Setup) (Limiter, error) { return fixed(false), nil }}
	_, err := Prepare(impl, w, SystemClock, s)
	require.EqualError(t, err, "benchmarks: workload w: fixed admitted 0 of 2000, want a share of 1")
	w.Deny = "all"
	_, err = Prepare(impl, w, SystemClock, s)
	require.NoError(t, err)
}

func TestCursor_Starts(t *testing.T) {
	w := Workload{Keys: 100, Dist: Turn, Deny: "none"}
	s := stream(t, w)
	for i, want := range []int{0, 25, 50, 75} {
		require.Equal(t, want*KeyLen, NewCursor(w, s, fixed(true), i, 4).at)
	}
	require.Zero(t, NewCursor(w, s, fixed(true), 4, 4).at)
}

// TestOurs_Workloads runs each of our own implementations through each workload
// that it can run.
func TestOurs_Workloads(t *testing.T) {
	for _, w := range Workloads() {
		w.Keys = min(w.Keys, 2000)
		s := stream(t, w)
		for _, clock := range append(w.Clocks, NoClock) {
			for _, impl := range Ours() {
				if !impl.Runs(w, clock) {
					continue
				}
				l, err := Prepare(impl, w, clock, s)
				require.NoError(t, err, "%s, %s", impl.Name, clock)
				l.Close()
			}
		}
	}
}

func TestRecord_Worst(t *testing.T) {
	const w = 10
	for name, c := range map[string]struct {
		calls []Span
		want  int
	}{
		"none":                         {nil, 0},
		"one":                          {[]Span{{0, 1}}, 1},
		"a window apart":               {[]Span{{0, 0}, {10, 10}}, 1},
		"just within":                  {[]Span{{0, 0}, {9, 9}}, 2},
		"ended too late":               {[]Span{{0, 0}, {9, 10}}, 1},
		"began too early":              {[]Span{{0, 9}, {5, 12}, {6, 14}}, 2},
		"spans the window":             {[]Span{{0, 30}, {10, 11}, {12, 13}}, 2},
		"began together":               {[]Span{{3, 4}, {3, 5}, {3, 20}}, 2},
		"a later window holds more":    {[]Span{{0, 0}, {20, 20}, {21, 21}, {22, 22}}, 3},
		"not sorted, the same instant": {[]Span{{5, 5}, {1, 1}, {5, 5}}, 3},
	} {
		r := Record{Admitted: c.calls}
		require.Equal(t, c.want, r.Worst(w), name)
	}
}

func TestRecord_WorstBruteForce(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 0))
	for range 300 {
		var r Record
		for range rnd.IntN(30) {
			begin := time.Duration(rnd.IntN(60))
			r.Admitted = append(r.Admitted, Span{begin, begin + time.Duration(rnd.IntN(15))})
		}
		want := 0
		for from := range time.Duration(60) {
			n := 0
			for _, s := range r.Admitted {
				if s.Begin >= from && s.End < from+10 {
					n++
				}
			}
			want = max(want, n)
		}
		require.Equal(t, want, r.Worst(10), "%v", r.Admitted)
	}
}

func TestRecord_Ideal(t *testing.T) {
	r := Record{
		Admitted: []Span{{0, 1}, {12, 13}},
		Denied:   []time.Duration{1, 2, 9, 10, 11},
	}
	// 0 and 1 fill the limit; 10 and 11 are a window later; 12 is not.
	require.Equal(t, 4, r.Ideal(2, 10))
	require.Equal(t, 7, r.Ideal(7, 10))
	apart := Record{Denied: []time.Duration{0, 10}}
	require.Equal(t, 2, apart.Ideal(1, 10), "half-open: a window later, the first one has left")
	require.Equal(t, 1, apart.Ideal(1, 11))
}

func TestHistogram_Quantiles(t *testing.T) {
	var h, other Histogram
	for i := 1; i <= 500; i++ {
		h.Add(time.Duration(i))
		other.Add(time.Duration(500 + i))
	}
	h.Merge(&other)
	require.EqualValues(t, 1000, h.Quantile(1))
	for _, q := range []float64{0.5, 0.9, 0.99} {
		require.InEpsilon(t, 1000*q, float64(h.Quantile(q)), 1.0/histogramParts, "quantile %v", q)
		require.GreaterOrEqual(t, float64(h.Quantile(q)), 1000*q)
	}
	for d := time.Duration(1); d < 1<<58; d = d*5/4 + 1 {
		b := bucketOf(d)
		require.LessOrEqual(t, d, upper(b))
		require.Greater(t, d, upper(b-1))
	}
}
