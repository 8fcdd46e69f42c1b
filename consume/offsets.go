package consume

import "context"

// Offsets keeps how far a consumer has come in a log, in the database of its effects. An adapter implements it.
type Offsets[Tx any] interface {
	// Note is called in each transaction that handles messages, behind the handler, with those messages. An error rolls the
	// transaction back, like one of the handler.
	Note(ctx context.Context, tx Tx, ms []*Message) error
}

// noNote is the Note of a consumer without Offsets.
func noNote[Tx any](context.Context, Tx, []*Message) error { return nil }
