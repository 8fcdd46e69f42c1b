package consume

import (
	"context"
	"errors"
)

// Offsets keeps how far a consumer has come in a log, in the database of its effects. An adapter implements it.
type Offsets[Tx any] interface {
	// Note is called in each transaction that handles messages, behind the handler, with those messages. An error rolls the
	// transaction back. It is not the messages' fault: unless it wraps [ErrGone], they are kept, and handled again after a
	// pause ([Hold]).
	Note(ctx context.Context, tx Tx, ms []*Message) error
}

// noteError is an error of Note.
type noteError struct{ error }

func (e noteError) Unwrap() error { return e.error }

// keeps reports whether an error is one of Note, for which messages are kept.
func keeps(err error) bool {
	_, ok := errors.AsType[noteError](err)
	return ok && !errors.Is(err, ErrGone)
}

// noting is the Note of Offsets, whose errors can be told from those of the handler.
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
