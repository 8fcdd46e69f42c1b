// Package mongostore keeps everonce's records in MongoDB, through the official driver.
//
// What it has acknowledged is on a majority of the replica set's members, in their journals: it survives the crash of a process, the
// loss of a minority of the members, and an election. Where the server is a single one, that is its own journal, and what the disk
// loses is lost: [Store.Health] says so.
//
// Leases and lifetimes are compared on the server's clock, whose unit here is the millisecond: durations are rounded up to one. In a sharded
// cluster those are the clocks of shards and routers, which must agree better than the shortest lease.
//
// # What it costs
//
// The claim of a new key is one call, an upsert on a filter that no document satisfies, so that a known key is answered with the duplicate-key
// error of the index of _id. A known key costs one read more, and a further attempt one conditional write more. Complete, Release and
// Renew are one conditional update each, SaveStep a read and a conditional write. So a guarded Do with a new key is two operations.
//
// # Records and their end
//
// The records are the documents of one collection, which [New] makes with its indexes; a document of another kind holds what is
// there once. Completed and released records, and abandoned ones of a receiver that runs work again, are also under a TTL index, which removes them
// once their lifetime is over: at the next of an hour, a day, 2, 14, 90 and 365 days after their last write. A longer lifetime, and a claim whose process died, is left to
// [Store.Purge], which removes what is over at its time, and results at the end of their retention. Nothing that is over is answered, removed or not:
// the store compares the times itself.
//
// # Two more receivers
//
// [TxStore] commits records together with the application's own documents, in a transaction, where the server has those.
// [Inserter] needs no record at all: an event is inserted under its own unique index, once.
package mongostore
