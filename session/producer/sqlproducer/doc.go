// Package sqlproducer keeps a log of streams in a SQL database, beside the store of a receiver, with the sequences of its
// producers: a batch and what is known of its producer are one commit.
//
// The rules are those of package producer. [Store.InitProducer] grants an ID and an epoch; [Store.Append] appends a batch, or
// acknowledges it again; [Store.Read] reads the stream by position.
//
// # What it promises
//
// In transactional mode, which is the only one here: a producer's batch is in its stream exactly once, whatever crashes and however
// often it is sent under its epoch, until the producer is removed ([Store.Purge]); afterwards it is refused. Under a later epoch it
// is another batch: a run that begins with a grant to its name looks first, with [Store.Read], at what the earlier one has left.
// Where the commit's answer is lost ([everonce.ErrOutcomeUnknown]), the same batch again is a duplicate if it was committed, and
// appended if not. Once [Store.InitProducer] has returned for a name, nothing of an earlier run is appended any more.
//
// The positions of a stream are dense, and become visible in their order: who has read up to a position has missed nothing before it.
//
// # What it costs
//
// An append reads in one round trip, writes in a second one, and commits. The appends to one stream take turns for its row, from
// their reading to their commit; those to different streams meet only where one is a producer's first in its stream. Grants take
// turns for one row of the table producer_state.
package sqlproducer
