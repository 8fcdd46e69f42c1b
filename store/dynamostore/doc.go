// Package dynamostore keeps records in DynamoDB, through the AWS SDK for Go.
//
// DynamoDB acknowledges a write when it is in several availability zones of its region: records survive the loss of a
// process and of a zone. Everything is read consistently. Do not use a replica of a global table in another region: two
// regions do not see each other's claims in time.
//
// # Time
//
// DynamoDB has no clock that a write could be compared with, so leases and lifetimes are measured by the clocks of the
// processes. Every lease is held for [Options].ClockSkew longer than its owner was granted. If two clocks differ by
// more than that, the one that is ahead may take over an operation whose attempt still runs; then both may have their
// effect elsewhere, and the token decides whose result is recorded. [New] refuses to begin with a clock that is further
// than that from the server's, as far as the server tells, to two seconds, and [Store.Health] reports it.
//
// # Cost
//
// The claim of a new key, and a replay, are one conditional write each: the refusal brings the item. A further attempt
// is two. Complete, Release and Renew are one, SaveStep is a read and a write. So a guarded Do with a new key is two
// writes. A record is one item; DynamoDB charges each write for the whole item, and a refused one too, so a replay of a
// large result costs as much as writing it.
//
// Listing within a scope, and deleting it, queries sixteen partitions. Listing without one, Health and Purge read the
// whole table, and are charged for it.
//
// # Expiry
//
// The table's TTL removes completed and released records, and abandoned ones of a receiver that runs work again, an
// hour after the end of their lifetime or later, free of charge. The store compares the times itself and never returns
// anything that is over, even if it is not removed yet. Claims whose process died, and results whose retention is over
// before their record is, are left to [Store.Purge].
//
// # Transactions
//
// [TxStore] commits records together with the application's items.
package dynamostore
