// Command server is a small web server with limits to try out with curl:
//
//	go run ./examples/server
//
// In another terminal, ask it four times:
//
//	curl -i http://127.0.0.1:8080/
//
// The first three answers have the status 200 and count down:
//
//	HTTP/1.1 200 OK
//	Ratelimit: "page";r=2;t=11
//	Ratelimit-Policy: "page";q=3;w=10
//	X-Ratelimit-Limit: 3
//	X-Ratelimit-Remaining: 2
//
// The fourth is denied, and says when to come back, at most 11 seconds later (the
// window of 10 seconds, and one tick of a tenth of that):
//
//	HTTP/1.1 429 Too Many Requests
//	Cache-Control: no-store
//	Content-Type: text/plain; charset=utf-8
//	Ratelimit: "page";r=0;t=9
//	Ratelimit-Policy: "page";q=3;w=10
//	Retry-After: 9
//	X-Ratelimit-Limit: 3
//	X-Ratelimit-Remaining: 0
//	X-Ratelimit-Reset: 1767225609
//
//	Too Many Attempts.
//
// Ask for JSON with
//
//	curl -i -H 'Accept: application/json' http://127.0.0.1:8080/
//
// and try an inline throttle, which allows two requests in the six seconds that
// begin with the first, with
//
//	curl -i http://127.0.0.1:8080/throttled
//
// The server listens on the loopback interface only. Another address is set by
// -addr, and ^C ends it.
package main
