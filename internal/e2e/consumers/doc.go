// Package consumers holds a message consumer, in each of its modes and on every store, to the practice list of
// oncetest and to a broker that delivers at least once and no better. It has no code of its own.
package consumers
