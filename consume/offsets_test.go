package consume_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/everonce/everonce/consume"
)

// notes are the messages of each transaction that came as far as its offsets.
type notes struct {
	of   [][]string
	fail error
}

func (n *notes) Note(_ context.Context, tx *ledgerTx, ms []*consume.Message) error {
	var ids []string
	for _, m := range ms {
		if tx.rows[m.ID] == 0 {
			return errors.New("it was not handled")
		}
		ids = append(ids, m.ID)
	}
	n.of = append(n.of, ids)
	return n.fail
}

// Offsets are noted after the handlers, for the messages of the transaction and no others. If they cannot be, it rolls
// back.
func TestOffsetsAreNotedInTheTransaction(t *testing.T) {
	t.Parallel()
	n, l := &notes{}, newLedger()
	c := booking(t, l, func(s *txSpec) {
		add := s.Handle
		s.Offsets = n
		s.Handle = func(ctx context.Context, tx *ledgerTx, m *consume.Message, o order) error {
			if m.ID == "bad" {
				return errors.New("it fails")
			}
			return add(ctx, tx, m, o)
		}
	})
	c.HandleBatch(t.Context(), messages("1", "2", "bad", "3"))
	c.Handle(t.Context(), messages("4")[0])
	c.Handle(t.Context(), messages("4")[0]) // a replay runs no transaction
	if want := [][]string{{"1", "2"}, {"3"}, {"4"}}; !slices.EqualFunc(n.of, want, slices.Equal) {
		t.Errorf("noted %v, want %v", n.of, want)
	}
	for want, fail := range map[string]error{
		"hold, hold, hold":    errors.New("the table is away"), // which is not the messages' fault
		"retry, retry, retry": fmt.Errorf("fenced: %w", consume.ErrGone),
	} {
		n.fail = fail
		v := c.Handle(t.Context(), messages("5")[0])
		vs := c.HandleBatch(t.Context(), messages("6", "7"))
		if got := dispositions(append(vs, v)); got != want || l.row("5")+l.row("6")+l.row("7") != 0 {
			t.Errorf("%v: %s, want %s; rows %v", fail, got, want, l.rows)
		}
	}
}
