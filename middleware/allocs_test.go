//go:build !race

// The race detector allocates on its own account.

package middleware

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A request with one limit allocates its key, and a part of a piece of memory now
// and then.
func TestCosts_Allocations(t *testing.T) {
	for outcome, limit := range map[string]int{"admitted": maxMax, "denied": 0} {
		f, err := NewFixedWindowLimiter(FixedWindowConfig{})
		require.NoError(t, err)
		defer f.Close()
		require.NoError(t, f.Named("n", func(r *http.Request) Limits {
			key := f.ClientKey(r)
			return All(PerMinute(limit).By(key), PerHour(limit).By(key))
		}))
		m, err := New(Config{Policies: []Policy{{Name: "n", Limit: uint64(limit), Window: time.Hour, Key: ByIP}}})
		require.NoError(t, err)
		defer m.Close()

		for name, c := range map[string]struct {
			h    http.Handler
			most float64
		}{
			"inline":    {f.MustMiddleware("2147483647,1")(nothing), 2},
			"two named": {f.MustMiddleware("n")(nothing), 5},
			"rolling":   {m.Handler(nothing), 2},
		} {
			w, r := &benchWriter{header: make(http.Header)}, guest()
			allocs := testing.AllocsPerRun(1000, func() {
				clear(w.header)
				c.h.ServeHTTP(w, r)
			})
			require.LessOrEqual(t, allocs, c.most, "%s, %s", name, outcome)
		}
	}
}
