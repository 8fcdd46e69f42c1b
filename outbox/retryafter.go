package outbox

import (
	"errors"
	"time"
)

// RetryAfter returns err with the least time after which the event may be tried again, as a destination asks for it.
// The relay waits longer if its own backoff is longer. The result still wraps err, so [ErrUnavailable] and
// [everonce.Permanent] keep their meaning.
func RetryAfter(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	return &delayed{err, after}
}

type delayed struct {
	error
	after time.Duration
}

func (d *delayed) Unwrap() error { return d.error }

// askedFor returns the time that [RetryAfter] has added to an error, or 0.
func askedFor(err error) time.Duration {
	if d, ok := errors.AsType[*delayed](err); ok {
		return d.after
	}
	return 0
}
