// Package inbox stores messages before they are handled. A message is inserted once as a row, and is then acknowledged.
// Workers handle it later, at their own pace, in a transaction that also holds its effects.
//
//	in, err := inbox.New(receiver, "billing", nil)
//	…
//	consumer, err := in.Consumer() // feed it by a broker's adapter, such as consume/rabbitonce
//	…
//	worker, err := in.Worker(inbox.Handler[pgx.Tx]{
//		Types:  []string{"order.placed"},
//		Handle: func(ctx context.Context, tx pgx.Tx, m *consume.Message) error { … },
//	})
//	…
//	err = worker.Run(ctx)
//
// Use it for work that takes longer than a broker waits, for bursts, and for messages that operators must be able to
// list, retry and set aside without the broker. A consumer whose handler is fast does not need an inbox: package
// consume handles a message on delivery.
//
// # Guarantees
//
// A message takes effect once: its effects, the record that it was handled, and the new state of its row are one commit
// (transactional mode: exactly once, as long as the database keeps what it committed). The effects of a handler that
// fails are rolled back, and the same commit counts the try and schedules the next one. A try whose process dies is
// counted as well, and the message is tried again; a message that has no tries left is set aside. Events that the
// handler publishes through package outbox are part of the same commit.
//
// A message that arrives again is recognised by its row and, after the row was removed, by the record in the receiver's
// store, for [Options.Lifetime].
//
// If [Options.OrderKey] is set, messages with the same order key are handled one after the other, in the order in which
// they were received.
package inbox
