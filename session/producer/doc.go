// Package producer is the broker's half of Kafka's idempotent producer, for a log, an ingest endpoint or a broker that
// you write: a batch that is sent again is acknowledged again, and appended once.
//
// A producer is granted an ID and an epoch, and numbers its records in each stream 0, 1, 2, … A batch has the number of
// its first record. The receiver keeps, for each producer and stream, the next number and the last few batches:
//
//   - the next batch is appended;
//   - one of the last batches is acknowledged again, with its position;
//   - any other batch is refused: a gap ([ErrOutOfOrder]), an older batch ([ErrTooOld]), an earlier run ([ErrFenced]),
//     a producer whose state is gone ([ErrForgotten]).
//
// The package is pure: it has no clock and does no I/O. A [State] is one producer in one stream; a [Table] holds all of
// them in memory, for a host that keeps them in its log; package sqlproducer keeps log and states in a SQL database.
//
// # What it promises
//
// A record that is sent under one epoch is in the stream once, and in the order in which its producer sent it, if the
// host makes the batch and the state durable in one step: a record of a log file, or a commit. A new epoch begins at 0,
// without the records of earlier epochs: a record that is sent again under it is appended again. So a producer that
// must survive a restart keeps its ID, its epoch and the numbers of its unacknowledged batches, and asks for no grant;
// or it first reads the stream. Producers that are forgotten are refused, so no record is appended again, however late
// a copy arrives, up to 2³⁰ records of its epoch in the stream: after 2³¹ the numbers begin again.
//
// # Where it differs from Kafka
//
// A forgotten producer's batch is refused; Kafka then accepts any sequence number. A grant fences earlier runs in every
// stream at once, and not from the first batch on. Content is compared, if [Batch].Sum is used. A batch below the
// window has a separate error.
package producer
