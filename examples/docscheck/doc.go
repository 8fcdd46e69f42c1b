// Package docscheck holds the README and docs to the code: every block of Go is compiled, every output is
// compared by a test, every option, outcome, error and field stands in its table, every test that is named exists, and
// every link leads somewhere. It is all tests.
package docscheck
