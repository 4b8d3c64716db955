package limiter

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLimitedError_Is(t *testing.T) {
	var err error = fmt.Errorf("reading page 7: %w", &LimitedError{RetryAfter: 1500 * time.Millisecond})
	require.ErrorIs(t, err, ErrLimited)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	for _, other := range []error{ErrConfig, ErrCostExceedsLimit, ErrFull, ErrClosed, context.Canceled} {
		require.NotErrorIs(t, err, other)
	}
	var limited *LimitedError
	require.True(t, errors.As(err, &limited))
	require.Equal(t, 1500*time.Millisecond, limited.RetryAfter)
}

func TestLimitedError_Error(t *testing.T) {
	require.EqualError(t, &LimitedError{RetryAfter: 1500 * time.Millisecond}, "ringfence: limited, retry after 1.5s")
	require.EqualError(t, &LimitedError{RetryAfter: Never}, "ringfence: limited, and no wait would help")
}
