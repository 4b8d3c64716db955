package middleware

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	minWindow = time.Millisecond
	// maxThrottle is the longest window of an inline throttle: ten years.
	maxThrottle = 10 * 365 * 24 * time.Hour
)

// throttle is an inline throttle: the text that a route is limited by.
type throttle struct {
	guest, user int // equal unless split
	split       bool
	window      time.Duration
	prefix      string
}

// parseThrottle reads [max[,minutes[,prefix]]]. The empty text is 60,1. max is a
// number, or two with a bar between them: the first for guests, the second for
// users. minutes may have a fraction. Nothing is trimmed and nothing is guessed.
func parseThrottle(spec string) (throttle, error) {
	t := throttle{guest: 60, user: 60, window: time.Minute}
	if spec == "" {
		return t, nil
	}
	parts := strings.Split(spec, ",")
	if len(parts) > 3 {
		return t, fmt.Errorf("throttle %q has %d parameters, want at most 3: max,minutes,prefix", spec, len(parts))
	}

	guest, user, split := strings.Cut(parts[0], "|")
	t.split = split
	var err error
	if t.guest, err = parseMax(guest); err != nil {
		return t, fmt.Errorf("throttle %q: %w", spec, err)
	}
	t.user = t.guest
	if split {
		if t.user, err = parseMax(user); err != nil {
			return t, fmt.Errorf("throttle %q: %w", spec, err)
		}
	}
	if len(parts) > 1 {
		if t.window, err = parseMinutes(parts[1]); err != nil {
			return t, fmt.Errorf("throttle %q: %w", spec, err)
		}
	}
	if len(parts) > 2 {
		if t.prefix = parts[2]; t.prefix == "" {
			return t, fmt.Errorf("throttle %q: the prefix is empty", spec)
		}
	}
	return t, nil
}

// parseMax reads a number of requests.
func parseMax(s string) (int, error) {
	if !digits(s) {
		return 0, fmt.Errorf("max is %q, want digits, and no limiter has that name", s)
	}
	n, err := strconv.Atoi(s)
	if err != nil || n > maxMax {
		return 0, fmt.Errorf("max is %s, want at most %d", s, maxMax)
	}
	return n, nil
}

// parseMinutes reads a decimal number of minutes, exactly.
func parseMinutes(s string) (time.Duration, error) {
	whole, fraction, point := strings.Cut(s, ".")
	if !digits(whole) || point && !digits(fraction) {
		return 0, fmt.Errorf("minutes is %q, want a decimal number such as 1 or 0.5", s)
	}
	window, err := time.ParseDuration(s + "m")
	if err != nil || window < minWindow || window > maxThrottle {
		return 0, fmt.Errorf("minutes is %s, want 0.000016667 (a millisecond) to 5256000 (ten years)", s)
	}
	return window, nil
}

// digits reports whether s is one or more ASCII digits.
func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
