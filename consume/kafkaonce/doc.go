// Package kafkaonce runs a [consume.Consumer] on a Kafka topic: however often the broker delivers a message, it takes
// effect once.
//
//	c, err := kafkaonce.Dial(ctx, "kafka://localhost:9092", kafkaonce.Topic{Name: "orders"}, handler, nil)
//	…
//	err = c.Run(ctx) // until ctx ends; then it drains
//
// A [Publisher] publishes the events of an outbox.
//
// # What is committed, and when
//
// A message is finished after its record, or its transaction, is durable. The offset that a partition commits is the
// offset of its first unfinished message, even if later messages are finished. An offset is committed at intervals,
// when a partition is revoked, and at the end. After a crash, messages that were finished since the last commit are
// delivered again, and replayed.
//
// When a partition is revoked, its handlers may finish within [consume.Workers.DrainTimeout]; then it commits, and lets
// go. When a partition is lost, the contexts of its handlers end at once with a cause that wraps [consume.ErrGone], and
// nothing is committed. No offset is committed for a partition that this consumer does not have.
//
// With [Offsets] the offset is written in each transaction of a handler too, and the consumer begins there. A
// [Transform] consumes from Kafka and produces to Kafka in Kafka's transactions.
//
// # Topics
//
// Kafka cannot delay a message. Beside the topic "orders" there is one topic for each delay, "orders.retry.1s" and so
// on, which the same group consumes, each message when it is due. Dead letters go to "orders.dead", a compacted topic,
// from which a tombstone removes a replayed or discarded dead letter. To retry or dead-letter a message, the package
// produces a copy, and finishes the original once all in-sync replicas have the copy. A failure in between leaves two
// copies, which have one key and take effect once. [Topic] says what is created.
//
// Several consumers of one topic share its retry topics, and each group handles its own retries only. A replayed dead
// letter comes to all of them; to those that handled the message it is a duplicate.
//
// A message that is delivered again after its Lifetime ([consume.Spec]) runs again, for example when an offset is set
// back: retention.ms and segment.ms of the topic together should not exceed it. Set Window to that sum to have it
// checked.
//
// # Order
//
// Messages of a partition with the same record key are handled one after the other, others at a time:
// [consume.Workers] apply to each partition. A retried message follows those that arrived in the meantime.
package kafkaonce
