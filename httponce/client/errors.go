package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Requests that a [Transport] rejects.
var (
	// ErrInvalidKey means that the key cannot be sent in a header.
	ErrInvalidKey = errors.New("client: invalid idempotency key")
	// ErrBodyNotRepeatable means that the request's body can be read only once, so it could not be sent again. Set
	// [http.Request.GetBody] (http.NewRequest does, for bodies in memory) or Options.BufferRequest.
	ErrBodyNotRepeatable = errors.New("client: the request's body cannot be sent twice (set GetBody or Options.BufferRequest)")
	// ErrRedirectedElsewhere means that a server redirected an operation to another origin, where its key is not sent:
	// see Options.FollowTo. The other server was not asked.
	ErrRedirectedElsewhere = errors.New("client: operation redirected to another origin (see Options.FollowTo)")
)

// RetryError is the error of a request that was sent, or was about to be, and has no answer. The effect may have
// happened: ask again with the same key.
//
// It unwraps to the last attempt's error: to [context.Canceled] or [context.DeadlineExceeded] if the request's
// context ended, and to the latter if a limit of the transport was reached. Its text never contains the key.
type RetryError struct {
	// Attempts is the number of attempts.
	Attempts int
	// Elapsed is the time since the first attempt.
	Elapsed time.Duration
	// Err is the error that ended the last attempt, or the wait for the next.
	Err error
}

func (e *RetryError) Error() string {
	times := "1 attempt"
	if e.Attempts != 1 {
		times = fmt.Sprintf("%d attempts", e.Attempts)
	}
	return fmt.Sprintf("client: no answer after %s in %v: %v", times, e.Elapsed.Round(time.Millisecond), e.Err)
}

func (e *RetryError) Unwrap() error { return e.Err }

// Timeout reports whether the last attempt ran out of time, for [net/url.Error.Timeout].
func (e *RetryError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// limitError is the error of an attempt that reached a limit of the transport.
type limitError struct {
	limit string
	after time.Duration
}

func (e *limitError) Error() string {
	return fmt.Sprintf("no answer within %s (%v)", e.limit, e.after)
}

func (e *limitError) Timeout() bool { return true }

func (e *limitError) Unwrap() error { return context.DeadlineExceeded }
