package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/everonce/everonce/saga"
)

// mistake is one that the services are built with. None is the right way.
type mistake string

// noBarrier: participants execute every call, however often and in whatever order it arrives.
const noBarrier mistake = "no-barrier"

// Set implements [flag.Value].
func (m *mistake) Set(text string) error {
	if mistake(text) != noBarrier {
		return fmt.Errorf("it is %s", noBarrier)
	}
	*m = noBarrier
	return nil
}

// String implements [flag.Value].
func (m *mistake) String() string { return string(*m) }

// doAnyway is the participant without a barrier.
func (p *participant) doAnyway(ctx context.Context, b saga.Branch, o *Order) (receipt string, err error) {
	err = p.database.receiver.InTx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		if b.Compensating {
			return p.undo(ctx, tx, o)
		}
		receipt, err = p.act(ctx, tx, o)
		return err
	})
	return receipt, err
}
