// Package redisstore keeps records in Redis (7.0 or newer; tested with 7.0, 8.0 and Valkey 8.1), on one server or in
// a cluster, through rueidis. A client that finds its server through Sentinel should work too, but is not tested.
//
//	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}})
//	store, err := redisstore.New(ctx, client, nil)
//	receiver, err := everonce.NewReceiver(store, everonce.Refuse, nil)
//	res, err := everonce.Do(ctx, receiver, key, work)
//
// # Durability
//
// With an append-only file and "appendfsync always", a crash of Redis or its machine loses no acknowledged write.
// With "everysec" (the default of Redis) a power loss loses the latest one or two seconds. So does a crash of Redis
// alone while the disk is slow, because Redis acknowledges without writing until a sync has ended. With "no", a power
// loss loses about half a minute. Replication is asynchronous, so a failover loses what the new master had not
// received; [Options].Replicas reduces that, but does not prevent it. An operation whose record is lost is new, and
// its next delivery runs it again, under every policy, even Refuse. So keep money in an SQL database, in one
// transaction with its record (store/pgxstore, store/sqlitestore). Use Redis for effects whose rare repetition is
// acceptable, or that the other side deduplicates by the downstream key.
//
// There are no transactions with the application's data: guarded mode (Do) only.
//
// [New] reads the server's settings. It refuses a server that evicts (a maxmemory-policy other than noeviction) or
// has no append-only file, because both lose records in ordinary operation. [Options].Accept names the risks that an
// application accepts, and [Store.Health] repeats them in its notes.
//
// # Time
//
// The clock is the server's TIME, read inside the script. Redis takes it from its machine: make sure that this clock
// is not set back, and that the clocks of a cluster agree. A failover to a machine whose clock is behind prolongs
// leases and retentions by the difference; the tokens of an existing record still increase. A result that is more
// than a second from its end is replayed without reading the time: the store uses a time of the server that is at
// most a minute old.
//
// The server removes results and records at their end, so there is nothing to purge and no janitor to start. Under
// Refuse and Reconcile a claimed or abandoned record does not expire before it is settled.
//
// # Calls
//
// Each state change is one script and one round trip; calls of many goroutines share round trips. Scripts are sent by
// their hash, and once by their text to a server that does not have them. A record, its result and its steps are in
// one slot of a cluster. A reply of a cluster, a failover or a starting server (MOVED, ASK, TRYAGAIN, CLUSTERDOWN,
// READONLY, LOADING) is an error of the store, never "absent".
//
// A result that the server has evicted counts as elided. A record whose steps were evicted is not continued
// ([driver.ErrCorruptRecord]), because the steps would run again: it can be read, and settled (everonce keys settle).
//
// The end of an attempt publishes a message that wakes waiting duplicates, if there are any. The store receives these
// messages by one subscription, to its prefix and "*", which starts with the first waiter and ends with the client.
// Without the permission to subscribe, waiters poll.
//
// [Store.List], [Store.Health] and [Store.DeleteScope] scan all keys of the server. There is no index, because it
// would slow down every write. They are for tools.
package redisstore
