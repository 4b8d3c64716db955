// Command chain attaches limiters in the way of chi and similar routers, whose Use
// takes functions that wrap a handler: a wide throttle for everything, and a
// narrow one for a part of it.
//
//	go run ./examples/chain
package main
