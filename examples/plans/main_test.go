package main

func Example() {
	main()
	// Output:
	// GET /items from 192.0.2.1: 200, 3 of 4 left
	// GET /report from 192.0.2.2: 200, 0 of 4 left
	// GET /items from 192.0.2.2: 429, 0 of 4 left
	// GET /report from 192.0.2.2: 200, 97 of 100 left
	// GET /report from 192.0.2.2: 200
	// GET /items from 192.0.2.2: 401
	// GET /items from 192.0.2.2: 200, 1 of 2 left
	// GET /items from 192.0.2.2: 200, 0 of 2 left
	// GET /items from 192.0.2.2: 429, 0 of 2 left
}
