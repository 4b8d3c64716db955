//go:build !race

package atomicring

// raceEnabled says that the race detector is on and everything is slower.
const raceEnabled = false
