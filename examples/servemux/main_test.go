package main

func Example() {
	main()
	// Output:
	// GET /users/1 from 192.0.2.1: 200, 1 of 2 left
	// GET /users/2 from 192.0.2.1: 200, 0 of 2 left
	// GET /users/3 from 192.0.2.1: 429, 0 of 2 left
	// GET /search from 192.0.2.1: 200, 1 of 2 left
	// GET /users/1 from 192.0.2.2: 200, 1 of 2 left
}
