// Package rabbitonce runs a [consume.Consumer] on a RabbitMQ queue: however often the broker delivers a message, it
// takes effect once.
//
//	c, err := rabbitonce.Dial(ctx, url, rabbitonce.Queue{Name: "orders"}, handler, nil)
//	…
//	err = c.Run(ctx) // until ctx ends; then it drains
//
// # What is acknowledged, and when
//
// A message is acknowledged after its record, or its transaction, is durable, and never before. One that is to come again
// later, or that becomes a dead letter, is first published as a copy, with a publisher confirm and with the flag
// mandatory; the original is acknowledged once that copy has been confirmed and not returned. A failure in
// between leaves two copies of one message, which have one key and take effect once. AMQP does not confirm
// acknowledgements: if one is lost, the message is delivered again, and replayed.
//
// # Queues
//
// Beside the queue "orders" there is one quorum queue for each delay, "orders.retry.1s" and so on, from which the broker
// moves messages back with at-least-once dead-lettering, and "orders.dead" for the dead letters. (In a single queue with a TTL
// for each message, a short delay would wait behind a longer one.) They need RabbitMQ 3.10 or newer. [Queue] says
// what is declared.
//
// # What it survives
//
// The loss of a channel or a connection, a restart of the broker, a queue that was deleted, a blocked connection (copies
// are published on another connection than acknowledgements), a consumer that the broker cancels, an
// acknowledgement that took longer than the broker allows; with [Options].URLs, a password that has ended, and the loss of
// one of several nodes. For as long as [Consumer.Run] runs, it reconnects by itself,
// and an acknowledgement is only ever sent on the channel that its message came by.
package rabbitonce
