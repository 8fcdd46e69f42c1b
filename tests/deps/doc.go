// Package deps holds the house to its plan: which package may import which, what users' programs
// link, what a module may require, and how files are named and how long they may be. It is all tests.
package deps
