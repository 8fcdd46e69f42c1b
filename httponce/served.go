package httponce

import (
	"time"

	"github.com/everonce/everonce"
)

// Served describes how a request with a key was answered, or refused without one, for metrics and access logs. It
// never contains the key.
type Served struct {
	Method string
	// Route is the route's name in the scope: a pattern or a path. Clients choose paths, of any length and in any
	// number, so a path is no label for a metric.
	Route string
	// KeyHash is [everonce.RecordID.Short]; empty if the request was refused before its key was used.
	KeyHash string
	// Outcome is the engine's; zero if it was not asked. It is InProgress too if the answer was still-running.
	Outcome everonce.Outcome
	// Status is the status that was sent; 0 if it is not known: after a hijack or a panic, or if the request passed
	// unprotected.
	Status int
	// Problem is the name of the problem that was sent by this package or by a proxy inside it; otherwise empty, also
	// for a problem of the handler's.
	Problem string
	// Panicked means that the handler panicked, exited its goroutine, or returned without an answer after the end of its
	// context, and that net/http closed the connection. Outcome is zero: the policy for unknown outcomes applies.
	Panicked bool
	// FailedOpen means that the store was down, and that the handler ran unprotected. Outcome is zero.
	FailedOpen bool
	// Duration is the time from the request's headers to the end of the answer; Waited is the part of it that was
	// spent waiting for another attempt.
	Duration, Waited time.Duration
}

// How names what became of the request, for labels and logs: the outcome's name; or, without one, "failed_open",
// "aborted" (it panicked) or "refused".
func (s *Served) How() string {
	switch {
	case s.FailedOpen:
		return "failed_open"
	case s.Panicked:
		return "aborted"
	case s.Outcome == 0:
		return "refused"
	}
	return s.Outcome.String()
}
