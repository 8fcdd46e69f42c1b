package httponce

import (
	"time"

	"github.com/everonce/everonce"
)

// Served tells how a request with a key was answered, or refused without one, for metrics and access logs. It holds
// no key.
type Served struct {
	Method string
	// Route is the route's name in the scope: a pattern or a path. The client can choose paths, of any length and in
	// any number, so a path is no label for a metric.
	Route string
	// KeyHash is [everonce.RecordID.Short]; empty if the request was refused before its key counted.
	KeyHash string
	// Outcome is the core's; zero if the core was not asked. It is InProgress too if the client was told
	// still-running.
	Outcome everonce.Outcome
	// Status is what was sent; 0 if the connection was taken over, if the handler panicked, or if the request was let
	// through unprotected, because then nobody looked.
	Status int
	// Problem is the name of the problem that was the answer, from this package or from a [Proxy] behind it;
	// otherwise empty. What a handler writes is its own, whatever its Content-Type says.
	Problem string
	// Panicked says that the handler panicked, exited its goroutine, or returned after the end of its context without
	// an answer, and that net/http ended the connection. Outcome is zero: the policy for the unknown counts.
	Panicked bool
	// FailedOpen says that the store was down, and that the handler ran unprotected. Outcome is zero.
	FailedOpen bool
	// Duration is the time from the request's headers to the end of the answer; Waited is the part of it that was
	// spent waiting for another attempt.
	Duration, Waited time.Duration
}
