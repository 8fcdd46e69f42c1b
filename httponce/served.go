package httponce

import (
	"time"

	"github.com/everonce/everonce"
)

// Served tells how a request with a key was answered, or was refused without one: for metrics and access logs. It holds
// no key.
type Served struct {
	Method string
	// Route is the route's name in the scope: a pattern, or a path. A path is the client's to choose, of any length and in
	// any number: it is no label for a metric.
	Route string
	// KeyHash is [everonce.RecordID.Short]; empty where the request was refused before its key counted.
	KeyHash string
	// Outcome is the core's; zero where the core was not asked. InProgress too where the client was told still-running.
	Outcome everonce.Outcome
	// Status is what was sent; 0 where the connection was taken over, where the handler panicked, and where the request was
	// let through unprotected: then nobody looked.
	Status int
	// Problem is the name of the problem that was the answer, this package's own or that of a [Proxy] behind it; else empty.
	// What a handler writes is its own, whatever its Content-Type says.
	Problem string
	// Panicked: the handler panicked, exited its goroutine, or returned without an answer behind the end of its context, and net/http ended the
	// connection. Outcome is zero: the
	// policy for the unknown counts.
	Panicked bool
	// FailedOpen: the store was down, and the handler ran unprotected. Outcome is zero.
	FailedOpen bool
	// Duration is from the request's headers to the end of the answer; Waited how much of it was
	// spent waiting for another attempt.
	Duration, Waited time.Duration
}
