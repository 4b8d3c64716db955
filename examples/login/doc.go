// Command login protects a login: an address may fail with many accounts, and an
// account from many addresses, only so often. Logins that succeed cost nothing.
//
//	go run ./examples/login
package main
