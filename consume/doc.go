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
// that the message was handled commit together (transactional mode), and the message is acknowledged after that.
// [New] is for handlers whose effects are elsewhere (guarded mode): what happens to a message whose outcome nobody
// knows is the receiver's policy. [NewNatural] is for handlers whose effect is idempotent by itself (natural mode): no
// record is kept.
//
// # What becomes of a message
//
// A message that was handled, now or at an earlier delivery, is acknowledged. One that was refused for good goes to
// the dead letters, at every delivery. One that failed comes again, later, up to a limit. One that another
// delivery is handling, or whose attempt lost its lease, comes again without counting. One whose outcome
// is unknown goes to the dead letters until somebody settles it: [Disposition] lists all.
//
// A message without a key, too large, or not to be decoded goes to the dead letters with the reason: nothing is
// lost, and nothing that is wrong blocks what is behind it.
package consume
