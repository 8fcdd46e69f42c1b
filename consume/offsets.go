package consume

import (
	"context"
	"errors"
)

// Offsets stores the offsets of a consumer in the database of its effects. Adapters implement it.
type Offsets[Tx any] interface {
	// Note is called after the handler in each transaction that handles messages, with those messages. An error rolls the
	// transaction back. It does not count as a failure of the messages: unless it wraps [ErrGone], they are handled again
	// after a pause ([Hold]).
	Note(ctx context.Context, tx Tx, ms []*Message) error
}

// noteError is an error of Note.
type noteError struct{ error }

func (e noteError) Unwrap() error { return e.error }

// keeps reports whether err comes from Note and the messages are to be held.
func keeps(err error) bool {
	_, ok := errors.AsType[noteError](err)
	return ok && !errors.Is(err, ErrGone)
}

// noting returns o.Note with its errors wrapped, to distinguish them from the handler's.
func noting[Tx any](o Offsets[Tx]) func(context.Context, Tx, []*Message) error {
	return func(ctx context.Context, tx Tx, ms []*Message) error {
		err := o.Note(ctx, tx, ms)
		if err != nil {
			err = noteError{err}
		}
		return err
	}
}

// noNote is the Note of a consumer without Offsets.
func noNote[Tx any](context.Context, Tx, []*Message) error { return nil }
