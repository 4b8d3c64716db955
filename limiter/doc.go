// Package limiter limits how many units of work pass per window of time, for one limit or for one limit per key.
package limiter
