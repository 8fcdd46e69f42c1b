// Package oncetest tests that an idempotent receiver is one: for the tests of applications that use
// everonce, and of any that claim as much.
package oncetest
