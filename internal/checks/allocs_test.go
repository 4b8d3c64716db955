//go:build !race

// The race detector allocates on its own account.

package checks

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringfence-go/ringfence/atomicring"
)

// No decision allocates.
func TestCosts_NoAllocation(t *testing.T) {
	layout, err := atomicring.NewLayout(10, 1<<20)
	require.NoError(t, err)
	ring := layout.NewRing()
	epoch := uint64(0)

	for name, decide := range map[string]func(){
		"Ring.Admit, admitted":   func() { ring.Admit(&layout, epoch, 1, 1<<20) },
		"Ring.Admit, denied":     func() { ring.Admit(&layout, epoch, 1, 0) },
		"Ring.Admit, next epoch": func() { epoch++; ring.Admit(&layout, epoch, 1, 1<<20) },
		"Ring.Peek":              func() { ring.Peek(&layout, epoch, 1, 1<<20) },
		"Ring.Refund":            func() { ring.Refund(&layout, epoch, 1) },
		"Ring.RetryAfter":        func() { ring.RetryAfter(&layout, epoch, 1, 1) },
	} {
		require.Zero(t, testing.AllocsPerRun(100, decide), name)
	}
}
