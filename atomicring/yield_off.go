//go:build !yieldhook

package atomicring

// yield is where a goroutine can lose the processor between a load and what
// rests on it. It does nothing, and costs nothing, unless the package is
// built with the tag yieldhook.
func yield() {}
