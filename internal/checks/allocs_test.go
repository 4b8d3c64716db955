//go:build !race

// The race detector allocates on its own account.

package checks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringfence-go/ringfence/atomicring"
	"github.com/ringfence-go/ringfence/limiter"
)

func noAllocation(t *testing.T, decisions map[string]func()) {
	t.Helper()
	for name, decide := range decisions {
		require.Zero(t, testing.AllocsPerRun(100, decide), name)
	}
}

func TestCosts_NoAllocation_Atomicring(t *testing.T) {
	const limit = 1 << 20
	layout, err := atomicring.NewLayout(10, limit)
	require.NoError(t, err)
	ring, striped := layout.NewRing(), atomicring.NewStriped(layout, false)
	var cell atomicring.Cell
	epoch := uint64(0)

	noAllocation(t, map[string]func(){
		"Ring.Admit, admitted":      func() { ring.Admit(&layout, epoch, 1, limit) },
		"Ring.Admit, denied":        func() { ring.Admit(&layout, epoch, 1, 0) },
		"Ring.Admit, next epoch":    func() { epoch++; ring.Admit(&layout, epoch, 1, limit) },
		"Ring.Peek":                 func() { ring.Peek(&layout, epoch, 1, limit) },
		"Ring.Refund":               func() { ring.Refund(&layout, epoch, 1) },
		"Ring.RetryAfter":           func() { ring.RetryAfter(&layout, epoch, 1, 1) },
		"Striped.Admit, admitted":   func() { striped.Admit(epoch, 1, limit) },
		"Striped.Admit, denied":     func() { striped.Admit(epoch, 1, 0) },
		"Striped.Admit, next epoch": func() { epoch++; striped.Admit(epoch, 1, limit) },
		"Cell.Admit":                func() { cell.Admit(0, 1, 1, 1) },
	})
}

func TestCosts_NoAllocation_Limiter(t *testing.T) {
	coarse, err := limiter.NewCoarseClock(3 * time.Millisecond)
	require.NoError(t, err)
	defer coarse.Close()
	for _, clock := range []limiter.Clock{limiter.SystemClock{}, limiter.NewManualClock(), coarse} {
		config := limiter.Config{Limit: 1000, Window: time.Hour, Clock: clock, CountDenied: true}
		one, err := limiter.New(config)
		require.NoError(t, err)
		defer one.Close()
		keyed, err := limiter.NewKeyed[string](limiter.KeyedConfig{Config: config})
		require.NoError(t, err)
		defer keyed.Close()
		store, err := limiter.NewMemoryStore(limiter.MemoryStoreConfig{Clock: clock})
		require.NoError(t, err)
		defer store.Close()

		keyed.Allow("key")
		store.Attempt("key", 1, time.Hour)
		noAllocation(t, map[string]func(){
			"Limiter.Allow":            func() { one.Allow() },
			"Limiter.Attempt":          func() { one.Attempt(1) },
			"Limiter.Attempt, denied":  func() { one.Attempt(1001) },
			"Limiter.Peek":             func() { one.Peek(1) },
			"Keyed.Allow":              func() { keyed.Allow("key") },
			"Keyed.Attempt":            func() { keyed.Attempt("key", 1) },
			"Keyed.Attempt, denied":    func() { keyed.Attempt("key", 999) },
			"Keyed.Peek, absent key":   func() { keyed.Peek("absent", 1) },
			"MemoryStore.Attempt":      func() { store.Attempt("key", 1000, time.Hour) },
			"MemoryStore.Attempt, no":  func() { store.Attempt("key", 1, time.Hour) },
			"AttemptAll, on a limiter": func() { limiter.AttemptAll(one.Item(1)) },
		})
	}
}
