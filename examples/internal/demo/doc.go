// Package demo sends requests to the handlers of the examples and prints what
// comes back, so that each example can be run without a network.
package demo
