// Package mongostore keeps everonce's records in MongoDB, through the official driver.
//
// What it has acknowledged is in the journals of a majority of the replica set's members: it survives the crash of a process, the
// loss of a minority of the members, and an election. On a single server it is in that server's own journal, and what its disk
// loses is lost; [Store.Health] says so.
//
// Leases and lifetimes are compared on the server's clock, whose unit here is the millisecond: durations are rounded up to it. In a sharded
// cluster those are the clocks of shards and routers, which must differ by less than the shortest lease.
//
// # What it costs
//
// The claim of a new key is one call, an upsert on a filter that no document satisfies, so that a known key is answered with the duplicate-key
// error of the index of _id. A known key costs one read more, and a further attempt one conditional write more. Complete, Release and
// Renew are one conditional update each, SaveStep a read and a conditional write. So a guarded Do with a new key is two operations.
//
// # Records and their end
//
// The records are the documents of one collection, which [New] creates with its indexes; one more document holds what exists only
// once. Completed and released records, and abandoned ones of a receiver that runs work again, are also under a TTL index, which removes them
// once their lifetime is over: at the next of an hour, a day, 2, 14, 90 and 365 days after their last write. Records with a longer lifetime, and claims whose process died, are left to
// [Store.Purge], which removes records at the end of their lifetime, and results at the end of their retention. Nothing that is over is ever
// returned, removed or not: the store compares the times itself.
//
// # Two more receivers
//
// [TxStore] commits records together with the application's own documents, in a transaction, where the server has those.
// [Inserter] needs no record at all: an event is inserted under its own unique index, once.
package mongostore
