// Package sqlproducer keeps a log of streams in a SQL database, beside the store of a receiver, with the sequences of
// its producers: a batch and its producer's state are one commit.
//
// The rules are package producer's. [Store.InitProducer] grants an ID and an epoch; [Store.Append] appends a batch, or
// acknowledges it again; [Store.Read] reads the stream by position.
//
// # What it promises
//
// The only mode is transactional: a producer's batch is in its stream exactly once, whatever crashes and however often
// it is sent under its epoch, until the producer is removed ([Store.Purge]); afterwards it is refused. Under a later
// epoch it is another batch: a run that begins with a grant to its name first reads, with [Store.Read], which batches
// the earlier run has appended. If the commit's answer is lost ([everonce.ErrOutcomeUnknown]), send the same batch
// again: it is a duplicate if it was committed, and is appended if not. Once [Store.InitProducer] has returned for a
// name, no batch of an earlier run is appended any more.
//
// The positions of a stream are dense, and become visible in order: a reader that has read up to a position has missed
// no record before it.
//
// # What it costs
//
// An append reads in one round trip, writes in a second one, and commits. The appends to one stream wait for each
// other's lock of its row, from their read to their commit; appends to different streams conflict only if one is a
// producer's first in its stream. Grants wait for each other's lock of one row of the table producer_state.
package sqlproducer
