// Package outbox publishes events that belong to a transaction: an event is a row that commits with the effect it tells
// of, or not at all, and a [Relay] publishes it afterwards.
//
//	box, err := outbox.New(receiver, nil)
//	…
//	res, err := everonce.Transact(ctx, receiver, key, func(ctx context.Context, tx pgx.Tx) (string, error) {
//		…
//		return id, box.Publish(ctx, tx, outbox.Event{Topic: "orders", Key: id, Type: "order.placed", Payload: body})
//	})
//
//	relay, err := box.Relay(publisher, nil)
//	…
//	err = relay.Run(ctx)
//
// # Guarantees
//
// An event is published if and only if its transaction committed, at least once: a relay that dies between publishing
// and marking publishes again what was in its hands, with the same [Event.ID]. So whoever receives events must recognise
// them by that ID, for which package consume is made. Then the effect of an event is exactly once if it is in the
// receiver's database (transactional mode).
//
// Events with the same topic and key are published in the order in which they were inserted. Transactions that publish
// with the same key must exclude each other, as they do if they lock the same row first; otherwise the order between
// them is undefined. Other keys do not wait.
//
// # Tables
//
// The table stands beside the store's, with the same prefix and in the same schema. Call [Outbox.Migrate] once before the
// first use, or run the text of [Outbox.Schema] with a migration tool.
package outbox
