// Package rabbitonce runs a [consume.Consumer] on a RabbitMQ queue: however often the broker delivers a message, it
// takes effect once.
//
//	c, err := rabbitonce.Dial(ctx, url, rabbitonce.Queue{Name: "orders"}, handler, nil)
//	…
//	err = c.Run(ctx) // until ctx ends; then it drains
//
// A [Publisher] publishes the events of an outbox.
//
// # What is acknowledged, and when
//
// A message is acknowledged after its record, or its transaction, is durable. To retry or dead-letter a message, the
// package first publishes a copy, with a publisher confirm and the mandatory flag, and acknowledges the original once
// the copy is confirmed and not returned. A failure in between leaves two copies, which have one key and take effect
// once. AMQP does not confirm acknowledgements: if one is lost, the message is redelivered, and replayed.
//
// # Queues
//
// Beside the queue "orders" there is one quorum queue for each delay, "orders.retry.1s" and so on, from which the
// broker moves messages back with at-least-once dead-lettering, and "orders.dead" for the dead letters. (In a single
// queue with a TTL for each message, a short delay would wait behind a longer one.) They need RabbitMQ 3.10 or newer.
// [Queue] says what is declared.
//
// # What it survives
//
// It survives the loss of a channel or a connection, a restart of the broker, a deleted queue, a blocked connection
// (copies are published on a separate connection), a cancelled consumer, and an acknowledgement timeout; with
// [Options].URLs also an expired password and the loss of one of several nodes. [Consumer.Run] reconnects. It sends an
// acknowledgement only on the channel that delivered the message.
package rabbitonce
