//go:build !yieldhook

package verify

const yields = false
