package main

func Example() {
	main()
	// Output:
	// two clients of one proxy:
	// GET / from 10.0.0.1: 200, 1 of 2 left
	// GET / from 10.0.0.1: 200, 1 of 2 left
	// the first one makes up addresses, to which the proxy appends the real one:
	// GET / from 10.0.0.1: 200, 0 of 2 left
	// GET / from 10.0.0.1: 429, 0 of 2 left
	// somebody gets past the proxy and makes up one, too:
	// GET / from 203.0.113.9: 200, 1 of 2 left
}
