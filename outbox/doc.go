// Package outbox publishes events that belong to a transaction: an event is a row that commits together with its
// effect, or not at all, and a [Relay] publishes it afterwards.
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
// An event is published if and only if its transaction committed, at least once: if a relay dies between publishing and
// marking, the events are published again, with the same [Event.ID]. So a receiver of events must recognise them by
// their ID; package consume does. The effect of an event is then exactly once if it is in the receiver's database
// (transactional mode).
//
// Events with the same topic and key are published in the order in which they were inserted. Transactions that publish
// with the same key must exclude each other, for example by locking the same row first; otherwise the order between
// them is undefined. Events with other keys do not wait.
//
// # Tables
//
// The table is in the store's schema, with the store's prefix. Call [Outbox.Migrate] once before the first use, or run
// the text of [Outbox.Schema] with a migration tool.
package outbox
