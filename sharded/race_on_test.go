//go:build race

package sharded

// raceEnabled tells stress tests to run fewer rounds.
const raceEnabled = true
