package main

func Example() {
	main()
	// Output:
	// GET / from 192.0.2.1: 200, 59 of 60 left
	// GET /export from 192.0.2.1: 200, 1 of 2 left
	// GET /export from 192.0.2.1: 200, 0 of 2 left
	// GET /export from 192.0.2.1: 429, 0 of 2 left
	// GET / from 192.0.2.1: 200, 55 of 60 left
}
