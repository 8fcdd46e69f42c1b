package sketches

import (
	"context"
	"errors"

	"github.com/everonce/everonce"
)

// Inbox takes messages in durably, acknowledges them, and works on them at its own pace.
type Inbox[Tx any] struct {
	DB    SQL[Tx]
	Recv  *everonce.TxReceiver[Tx]
	Scope everonce.Scope
	// Work handles one message in the transaction that also holds its record and its inbox row.
	Work func(ctx context.Context, tx Tx, m Message) error
}

// Receive stores a delivery; the broker may be answered when it returns nil. A duplicate changes
// nothing: the row is unique by scope and message ID.
func (in Inbox[Tx]) Receive(ctx context.Context, m Message) error {
	return in.Recv.InTx(ctx, func(ctx context.Context, tx Tx) error {
		_, err := in.DB.Exec(ctx, tx, `INSERT INTO inbox (scope, id, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, string(in.Scope), m.ID, m.Body)
		return err
	})
}

// Next works on one message: the row's lock, the record, the effects and the row's end are one
// transaction. It reports whether there was one.
func (in Inbox[Tx]) Next(ctx context.Context) (bool, error) {
	var found bool
	var failed error
	err := in.Recv.InTx(ctx, func(ctx context.Context, tx Tx) error {
		var m Message
		found, failed = false, nil
		err := in.DB.Query(ctx, tx, func(scan func(...any) error) error {
			found = true
			return scan(&m.ID, &m.Body)
		}, `SELECT id, body FROM inbox WHERE scope = ? AND state = 'new' AND due_at <= clock_timestamp() ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED`, string(in.Scope))
		if err != nil || !found {
			return err
		}
		res, err := everonce.DoTx(ctx, tx, in.Recv, everonce.Key{Scope: in.Scope, ID: m.ID}, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, in.Work(ctx, tx, m)
		})
		state, tries := "done", 0
		switch {
		case errors.Is(err, everonce.ErrTxDoomed), res.Outcome == everonce.StoreFailed:
			return err // InTx runs the whole of it again, where that helps
		case res.Outcome == everonce.Rejected:
			state = "dead"
		case err != nil && res.Outcome != everonce.Expired && res.Outcome != everonce.Elided:
			// Its savepoint was rolled back; the row's retry count commits.
			state, tries, failed = "new", 1, err
		}
		_, err = in.DB.Exec(ctx, tx, `UPDATE inbox SET state = ?, tries = tries + ?, due_at = clock_timestamp() + tries * interval '1 second' WHERE scope = ? AND id = ?`,
			state, tries, string(in.Scope), m.ID)
		return err
	})
	return found, errors.Join(err, failed)
}

// Message is one delivery. The key is chosen from ID, headers and body, never from the delivery.
type Message struct {
	ID   string
	Body []byte
}
