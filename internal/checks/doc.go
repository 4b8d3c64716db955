// Package checks holds the tests of the repository itself: its modules and
// layers, its sources, its documents, and the promises about the compiled
// code that the packages' own tests do not make. It has no code to import.
package checks
