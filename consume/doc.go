// Package consume is the idempotent consumer: however often a broker delivers a message, it takes effect once. It
// knows no broker; an adapter such as consume/rabbitonce moves the messages.
//
//	c, err := consume.NewTx(receiver, consume.TxSpec[Order, pgx.Tx]{
//		Consumer: "billing",
//		Key:      consume.ProducerID(),
//		Handle: func(ctx context.Context, tx pgx.Tx, m *consume.Message, o Order) error {
//			_, err := tx.Exec(ctx, `INSERT INTO invoice (order_id, cents) VALUES ($1, $2)`, o.ID, o.Cents)
//			return err
//		},
//	})
//
// [NewTx] is for handlers whose effects are in the database of the receiver's store: the effect and the record
// that the message was handled commit together (transactional mode), and only then is the message acknowledged.
// [New] is for handlers whose effects are elsewhere (guarded mode): if nobody knows the outcome of a message, the
// receiver's policy decides. [NewNatural] is for handlers whose effect is idempotent by itself (natural mode): no
// record is kept.
//
// # What becomes of a message
//
// A message that was handled, now or at an earlier delivery, is acknowledged. One that was refused for good goes to
// the dead letters, at every delivery. One that failed is retried later, up to a limit. One that another
// delivery is handling, or whose attempt lost its lease, comes again too, without counting towards that limit. One whose
// outcome is unknown goes to the dead letters until somebody settles it; where another delivery asks about it, as under
// [everonce.Reconcile], it is retried first. [Disposition] lists all cases.
//
// A message that has no key, is too large, or cannot be decoded goes to the dead letters with the reason. So nothing is
// lost, and a bad message does not block those behind it.
package consume
