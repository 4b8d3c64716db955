package middleware

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// benchWriter is a ResponseWriter that costs next to nothing. Its header map is
// used again, as net/http makes one for each response, which is not ours.
type benchWriter struct {
	header http.Header
	status int
}

func (w *benchWriter) Header() http.Header         { return w.header }
func (w *benchWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *benchWriter) WriteHeader(status int)      { w.status = status }

// outcomeOf are the limits that admit or deny every request of a benchmark.
var outcomeOf = map[string]int{"admitted": 1<<31 - 1, "denied": 0}

// nothing is the handler inside, and the baseline.
var nothing = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusOK) })

// benchmark measures requests of one guest, after it has seen that they are
// answered as they should be.
func benchmark(b *testing.B, h http.Handler, want int) {
	w := &benchWriter{header: make(http.Header)}
	r := guest()
	h.ServeHTTP(w, r)
	require.Equal(b, want, w.status)
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, r)
	}
}

func statusOf(outcome string) int {
	if outcome == "denied" {
		return http.StatusTooManyRequests
	}
	return http.StatusOK
}

func BenchmarkNothing(b *testing.B) { benchmark(b, nothing, http.StatusOK) }

func BenchmarkFixedWindow(b *testing.B) {
	for _, outcome := range []string{"admitted", "denied"} {
		for _, limits := range []int{0, 1, 3} { // 0: an inline throttle
			b.Run(fmt.Sprintf("outcome=%s/limits=%d", outcome, limits), func(b *testing.B) {
				f, err := NewFixedWindowLimiter(FixedWindowConfig{})
				require.NoError(b, err)
				defer f.Close()
				n := outcomeOf[outcome]
				spec := fmt.Sprintf("%d,1", n)
				if limits > 0 {
					spec = "named"
					require.NoError(b, f.Named(spec, func(r *http.Request) Limits {
						key := f.ClientKey(r)
						switch limits {
						case 1:
							return PerMinute(n).By(key)
						default:
							return All(PerMinute(n).By(key), PerHour(n).By(key), PerDay(n).By(key))
						}
					}))
				}
				benchmark(b, f.MustMiddleware(spec)(nothing), statusOf(outcome))
			})
		}
	}
}

func BenchmarkRolling(b *testing.B) {
	for _, outcome := range []string{"admitted", "denied"} {
		for _, policies := range []int{1, 3} {
			b.Run(fmt.Sprintf("outcome=%s/policies=%d", outcome, policies), func(b *testing.B) {
				var config Config
				for i := range policies {
					config.Policies = append(config.Policies, Policy{
						Name: fmt.Sprint(i), Limit: uint64(outcomeOf[outcome]), Window: time.Hour, Key: ByIP,
					})
				}
				m, err := New(config)
				require.NoError(b, err)
				defer m.Close()
				benchmark(b, m.Handler(nothing), statusOf(outcome))
			})
		}
	}
}
