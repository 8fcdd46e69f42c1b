// Package inbox takes messages in before it works on them: a message is a row, inserted once, and is then acknowledged;
// workers handle it afterwards, at their own pace, in a transaction that also holds its effects.
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
// It is for work that takes longer than a broker waits, for bursts, and for messages that must be seen, retried and set
// aside without the broker. A consumer whose handler is fast needs none: package consume handles a message where it comes.
//
// # Guarantees
//
// A message takes effect once: its effects, the record that it was handled, and what becomes of its row are one commit
// (transactional mode: exactly once, as long as the database keeps what it committed). A handler that fails is rolled
// back, and the same commit counts the try and says when the next one is. One that dies with its process costs a try, and
// not the message; after its budget it is set aside. Events that the handler publishes through package outbox are of that commit too.
//
// A message that comes again is recognised by its row, and, after that was removed, by the record of the receiver's store,
// for [Options.Lifetime].
//
// Messages with the same order key are handled one after the other, in the order in which they were taken in, if
// [Options.OrderKey] is set.
package inbox
