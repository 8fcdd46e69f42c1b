// Package rabbitonce runs a [consume.Consumer] on a RabbitMQ queue: however often the broker delivers a message, it
// takes effect once.
//
//	c, err := rabbitonce.Dial(url, rabbitonce.Queue{Name: "orders"}, handler, nil)
//	…
//	err = c.Run(ctx) // until ctx ends; then it drains
//
// # What is acknowledged, and when
//
// A message is acknowledged after its record, or its transaction, is durable: never before. One that is to come again
// later, or that becomes a dead letter, is first published as a copy, with a publisher confirm and with the flag
// mandatory; the original is acknowledged when that copy was confirmed and was not returned. What breaks in
// between leaves two copies of one message, which the key makes one. AMQP answers no acknowledgement: one that was
// lost is a message that is delivered again, and replayed.
//
// # Queues
//
// Beside the queue there are, by the names "orders.retry.1s" and so on, one quorum queue for each delay (a message's own
// TTL would block at the head of a queue behind a longer one), from which the broker moves messages back with
// at-least-once dead-lettering; and "orders.dead", the dead letters. They need RabbitMQ 3.10 or newer. [Queue] says
// what is declared.
//
// # What it survives
//
// The loss of a channel or a connection, a restart of the broker, a queue that was deleted, a blocked connection (copies
// are published by another one than acknowledgements), a consumer that is cancelled by the broker, an
// acknowledgement that took longer than the broker allows: it connects again, by itself, for as long as [Consumer.Run]
// runs, and an acknowledgement never goes to another channel than its message came by.
package rabbitonce
