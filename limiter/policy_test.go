package limiter

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A badResolution is a clock that claims a resolution.
type badResolution struct {
	*ManualClock
	resolution time.Duration
}

func (c badResolution) Resolution() time.Duration { return c.resolution }

// TestNew_Errors: an error names every field that is wrong, with its value, each
// on a line of its own.
func TestNew_Errors(t *testing.T) {
	ok := Config{Limit: 1, Window: time.Second}
	for name, c := range map[string]struct {
		change func(c *Config)
		want   []string // patterns, one for each fault
	}{
		"no window":           {func(c *Config) { c.Window = 0 }, []string{"Window is 0s"}},
		"negative window":     {func(c *Config) { c.Window = -time.Second }, []string{"Window is -1s"}},
		"least window":        {func(c *Config) { c.Window = math.MinInt64 }, []string{"Window is -2562047h47m16.854775808s"}},
		"short window":        {func(c *Config) { c.Window = 10*time.Microsecond - 1 }, []string{"Window is 9.999µs, .* at least 10µs"}},
		"negative slots":      {func(c *Config) { c.Slots = -1 }, []string{"Slots is -1"}},
		"too many slots":      {func(c *Config) { c.Slots = MaxSlots + 1 }, []string{"Slots is 65537"}},
		"least slots":         {func(c *Config) { c.Slots = math.MinInt }, []string{"Slots is -"}},
		"limit of -1":         {func(c *Config) { c.Limit = math.MaxUint64 }, []string{"Limit is 18446744073709551615 \\(-1 as a uint64\\), want at most Unlimited"}},
		"limit of -2":         {func(c *Config) { c.Limit = math.MaxUint64 - 1 }, []string{"Limit is 18446744073709551614"}},
		"limit of MinInt64":   {func(c *Config) { c.Limit = 1 << 63 }, []string{"Limit is 9223372036854775808"}},
		"limit of MaxInt64":   {func(c *Config) { c.Limit = math.MaxInt64 }, []string{"Limit is 9223372036854775807"}},
		"above Unlimited":     {func(c *Config) { c.Limit = Unlimited + 1 }, []string{"Limit is 4611686018427387905"}},
		"below Unlimited":     {func(c *Config) { c.Limit = Unlimited - 1 }, []string{"Limit is 4611686018427387903, .* at most 536870911 .* 100ms"}},
		"one too many":        {func(c *Config) { c.Limit = 1 << 29 }, []string{"Limit is 536870912, .* at most 536870911 .* 100ms"}},
		"coarse clock":        {func(c *Config) { c.Clock = badResolution{nil, 100*time.Millisecond + 1} }, []string{"Clock has a resolution of 100.000001ms, want 0 to 100ms"}},
		"negative resolution": {func(c *Config) { c.Clock = badResolution{nil, -1} }, []string{"Clock has a resolution of -1ns"}},
		"nil clock":           {func(c *Config) { c.Clock = (*ManualClock)(nil) }, []string{"Clock is a nil \\*limiter.ManualClock"}},
		"zero clock":          {func(c *Config) { c.Clock = new(CoarseClock) }, []string{"Clock is a CoarseClock that NewCoarseClock did not make"}},
		"two faults":          {func(c *Config) { c.Limit, c.Slots = 1<<62-1, -7 }, []string{"Limit is 4611686018427387903", "Slots is -7"}},
		"all faults": {func(c *Config) { c.Limit, c.Window, c.Slots = math.MaxUint64, -1, 1<<20 }, []string{
			"Limit is 18446744073709551615", "Window is -1ns", "Slots is 1048576",
		}},
		"limit of 0 is none":  {func(c *Config) { c.Limit = 0 }, nil},
		"unlimited is none":   {func(c *Config) { c.Limit = Unlimited }, nil},
		"most":                {func(c *Config) { c.Limit = 1<<29 - 1 }, nil},
		"most slots":          {func(c *Config) { c.Slots = MaxSlots }, nil},
		"shortest window":     {func(c *Config) { c.Window = 10 * time.Microsecond }, nil},
		"longest window":      {func(c *Config) { c.Window = math.MaxInt64 }, nil},
		"resolution of 1tick": {func(c *Config) { c.Clock = badResolution{NewManualClock(), 100 * time.Millisecond} }, nil},
	} {
		config := ok
		c.change(&config)
		l, err := New(config)
		k, keyedErr := NewKeyed[int](KeyedConfig{Config: config, SweepEvery: NoSweep})
		if c.want == nil {
			require.NoError(t, err, name)
			require.NoError(t, keyedErr, name)
			require.NoError(t, l.Close())
			require.NoError(t, k.Close())
			continue
		}
		require.Nil(t, l, name)
		require.Nil(t, k, name)
		for _, err := range []error{err, keyedErr} {
			require.ErrorIs(t, err, ErrConfig, name)
			require.Len(t, strings.Split(err.Error(), "\n"), len(c.want), "%s: %v", name, err)
			for _, want := range c.want {
				require.Regexp(t, want, err.Error(), name)
			}
		}
	}
	_, err := NewKeyed[int](KeyedConfig{Config: Config{Window: -1}, MaxKeys: -2, OnFull: 9})
	require.Equal(t, 1, strings.Count(err.Error(), ErrConfig.Error()), "%v", err)
	require.Len(t, strings.Split(err.Error(), "\n"), 3, "%v", err)
}
