// Package consumers tests a message consumer, in each of its modes and on every store, with the practice list of
// oncetest and with a broker that delivers at least once and no better. It has only tests.
package consumers
