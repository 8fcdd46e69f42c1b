// Package mongostore keeps records in MongoDB, through the official driver.
//
// Acknowledged writes are in the journals of a majority of the replica set's members: they survive a crash of a
// process, the loss of a minority of the members, and an election. On a single server they are in that server's
// journal only, and are lost with its disk; [Store.Health] reports this.
//
// Leases and lifetimes are compared on the server's clock. Its unit is the millisecond: durations are rounded up to
// it. In a sharded cluster these are the clocks of shards and routers, which must differ by less than the shortest
// lease.
//
// # Cost
//
// The claim of a new key is one call: an upsert with a filter that no document satisfies, so that a known key fails
// with the duplicate-key error of the index of _id. A known key costs one more read, and a further attempt one more
// conditional write. Complete, Release and Renew are one conditional update each, SaveStep a read and a conditional
// write. So a guarded Do with a new key is two calls.
//
// # Expiry
//
// The records are the documents of one collection, which [New] creates with its indexes; one more document holds the
// store's settings. A TTL index removes completed and released records, and abandoned ones of a receiver that runs
// work again, after the end of their lifetime: at the next of an hour, a day, 2, 14, 90 and 365 days after their last
// write. Records with a longer lifetime, and claims whose process died, are left to [Store.Purge], which removes
// records at the end of their lifetime, and results at the end of their retention. The store compares the times
// itself and never returns anything that is over, even if it is not removed yet.
//
// # Transactions and inserts
//
// [TxStore] commits records together with the application's documents, on servers with transactions. [Inserter] needs
// no records: it inserts each event once, by the event's own unique index.
package mongostore
