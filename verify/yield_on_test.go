//go:build yieldhook

package verify

// yields: callers lose the processor between a load and its CAS.
const yields = true
