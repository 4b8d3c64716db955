// Package verify holds the checks of ringfence that need more than the standard
// tools: models of the algorithms for the model checker spin, linearizability
// and property tests, and mutants, which show that the tests can fail. See
// README.md for what was checked and what was not.
package verify
