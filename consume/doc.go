// Package consume implements an idempotent consumer: however often a broker delivers a message, it takes effect once.
// The package is independent of the broker; an adapter such as consume/rabbitonce moves the messages.
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
// that the message was handled commit together (transactional mode), and the message is acknowledged afterwards.
// [New] is for handlers whose effects are elsewhere (guarded mode): the receiver's policy decides about unknown
// outcomes. [NewNatural] is for handlers whose effect is already idempotent (natural mode): it keeps no record.
//
// # Dispositions
//
// A message that was handled, by this delivery or an earlier one, is acknowledged. A rejected message becomes a dead
// letter, at every delivery. A failed message is retried up to a limit. A message that another delivery is handling,
// or whose attempt lost its lease, is delivered again without counting towards that limit. A message whose outcome is
// unknown becomes a dead letter, until it is settled; with [everonce.Reconcile] it is retried first. [Disposition]
// lists all cases.
//
// A message that has no key, is too large, or cannot be decoded becomes a dead letter with the reason. So no message is
// lost, and a bad message does not block those behind it.
package consume
