//go:build !race

package limiter

// raceEnabled tells stress tests to run fewer rounds.
const raceEnabled = false
