// Package natsonce runs a [consume.Consumer] on a durable pull consumer of NATS JetStream: however often the server
// delivers a message, it takes effect once.
//
//	c, err := natsonce.Dial(ctx, url, natsonce.Queue{Stream: "ORDERS"}, handler, nil)
//	…
//	err = c.Run(ctx) // until ctx ends; then it drains
//
// A [Publisher] publishes the events of an outbox.
//
// # What is acknowledged, and when
//
// A message is acknowledged after its record, or its transaction, is durable, and the server confirms the
// acknowledgement. From its receipt until then, natsonce sends heartbeats at a third of AckWait. A message that is
// retried stays in the stream, and is delivered again after its delay (NAK with delay). A dead letter is copied to
// another stream first, and acknowledged once its copy is stored.
//
// A late acknowledgement, after the message went to another consumer, acknowledges that delivery. That is harmless,
// because the message is done by then. An acknowledgement that the server does not confirm within 5 s, as after a
// crash that set its consumer back, is given up: the message comes again, and is replayed.
//
// # What is counted
//
// JetStream counts deliveries of every kind: retries, deliveries while another consumer had the key, and deliveries
// that ended with their process. [consume.RetryPolicy.Limit] is about retries only, so natsonce counts those itself,
// in a key-value bucket that all consumers of the durable share. A count is written before the message is given back,
// and kept for a week.
//
// # Streams
//
// The stream must exist: natsonce does not know its subjects, limits and replicas. Beside it natsonce uses the durable
// consumer, a stream of dead letters, and the bucket of counts. [Queue] says what is declared.
//
// A new durable consumer begins at the first message of the stream. If it is deleted while a process runs, the next
// one begins where everything was acknowledged a few seconds before; if none runs, at the first message again. Handled
// messages are then recognised for as long as their consumer's Lifetime lasts, so keep the stream's max_age within
// that.
package natsonce
