//go:build yieldhook

package atomicring

import (
	"math/rand/v2"
	"runtime"
)

// yield widens the gap between a load and its CAS, so that tests meet races
// that are rare otherwise: in one of four calls it lets others run. It is a
// variable for the tests that decide themselves who runs next.
var yield = func() {
	if rand.Uint32()&3 == 0 {
		runtime.Gosched()
	}
}
