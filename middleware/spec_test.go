package middleware

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestThrottle_Parse(t *testing.T) {
	for spec, want := range map[string]throttle{
		"":                    {60, 60, false, time.Minute, ""},
		"5":                   {5, 5, false, time.Minute, ""},
		"0":                   {0, 0, false, time.Minute, ""},
		"007,01.50":           {7, 7, false, 90 * time.Second, ""},
		"60|120":              {60, 120, true, time.Minute, ""},
		"60|60,1":             {60, 60, true, time.Minute, ""},
		"1,0.5,a|b c":         {1, 1, false, 30 * time.Second, "a|b c"},
		"1,0.000016666667":    {1, 1, false, 1000 * time.Microsecond, ""},
		"1,5256000":           {1, 1, false, maxThrottle, ""},
		"2147483647,0.1":      {math.MaxInt32, math.MaxInt32, false, 6 * time.Second, ""},
		"1,0.1,0":             {1, 1, false, 6 * time.Second, "0"},
		"1,1." + zeros(500):   {1, 1, false, time.Minute, ""},
		zeros(500) + "1,1,öß": {1, 1, false, time.Minute, "öß"},
	} {
		got, err := parseThrottle(spec)
		require.NoError(t, err, spec)
		require.Equal(t, want, got, spec)
	}
	for _, spec := range []string{
		",", "1,", ",1", "1,,a", "1,1,", "1,1,a,", "a", "-1", "+1", " 1", "1 ", "1,1 ", "1, 1", "1_0", "0x10", "1e2", "1.0", "١",
		"|", "1|", "|1", "1|x", "1|2|3", "1|-2", "1,-1", "1,+1", "1,0", "1,0.0", "1,.5", "1,5.", "1,1.5.5", "1,1e1", "1,NaN", "1,Inf",
		"1,1h", "1,0x1p-2", "1,0.0000166", "1,5256001", "1,99999999999999999999", "2147483648", "9223372036854775807,1", "1\n", "1,1\x00",
	} {
		_, err := parseThrottle(spec)
		require.ErrorContains(t, err, fmt.Sprintf("%q", spec), spec)
	}
}

func TestThrottle_Messages(t *testing.T) {
	const form, between = "want a decimal number such as 1 or 0.5", "want 0.000016667 (a millisecond) to 5256000 (ten years)"
	for spec, want := range map[string]string{
		"60,":        `minutes is "", ` + form,
		"60,x":       `minutes is "x", ` + form,
		"60,.5":      `minutes is ".5", ` + form,
		"60,-1":      `minutes is "-1", ` + form,
		"60,0":       "minutes is 0, " + between,
		"60,0.00001": "minutes is 0.00001, " + between,
		"60,5256001": "minutes is 5256001, " + between,
	} {
		_, err := parseThrottle(spec)
		require.EqualError(t, err, fmt.Sprintf("throttle %q: %s", spec, want))
	}
	for _, spec := range []string{"1,0.000016667", "1,5256000"} {
		_, err := parseThrottle(spec)
		require.NoError(t, err, "what the message offers")
	}
}

func zeros(n int) string { return strings.Repeat("0", n) }

func FuzzThrottle(f *testing.F) {
	for _, spec := range []string{"", "60,1", "60|120,0.5,a", "1,5256000", ",,,", "-1,1", "1,1e5"} {
		f.Add(spec)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		got, err := parseThrottle(spec)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, got.guest, 0)
		require.GreaterOrEqual(t, got.user, 0)
		require.LessOrEqual(t, max(got.guest, got.user), maxMax)
		require.GreaterOrEqual(t, got.window, minWindow)
		require.LessOrEqual(t, got.window, maxThrottle)
		require.LessOrEqual(t, strings.Count(spec, ","), 2)
		require.Equal(t, got.split, strings.Contains(strings.Split(spec, ",")[0], "|"))
	})
}
