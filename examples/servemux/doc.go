// Command servemux limits the routes of a plain [net/http.ServeMux]: each client
// gets a limit of its own on each route, over a rolling window.
//
//	go run ./examples/servemux
package main
