package main

func Example() {
	main()
	// Output:
	// one account from many addresses:
	// POST /login from 192.0.2.1: 401, 2 of 3 left
	// POST /login from 192.0.2.2: 401, 1 of 3 left
	// POST /login from 192.0.2.3: 200, 1 of 3 left
	// POST /login from 192.0.2.4: 401, 0 of 3 left
	// POST /login from 192.0.2.5: 429, 0 of 3 left
	// many accounts from one address:
	// POST /login from 192.0.2.9: 401, 2 of 3 left
	// POST /login from 192.0.2.9: 401, 2 of 4 left
	// POST /login from 192.0.2.9: 401, 1 of 4 left
	// POST /login from 192.0.2.9: 401, 0 of 4 left
	// POST /login from 192.0.2.9: 429, 0 of 4 left
}
