// Command plans limits an API by plan: each API key has the limit of its plan, and
// costly calls take more of it. Calls without a key are limited by address.
//
//	go run ./examples/plans
package main
