// Command proxy limits clients that come through a trusted reverse proxy, by the
// address that the proxy reports. What a client writes into the header itself
// changes nothing.
//
//	go run ./examples/proxy
package main
