// Package redisstore keeps everonce's records in Redis (7.0 or newer; tested with 7.0, 8.0 and Valkey 8.1), on one
// server or in a cluster, through rueidis. A client that finds its server through Sentinel should work too, but is not tested.
//
//	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}})
//	store, err := redisstore.New(ctx, client, nil)
//	receiver, err := everonce.NewReceiver(store, everonce.Refuse, nil)
//	res, err := everonce.Do(ctx, receiver, key, work)
//
// # What is lost when what crashes
//
// With an append-only file and "appendfsync always", nothing that was acknowledged is lost when Redis or its machine crashes.
// With "everysec" (the default of Redis) a loss of power loses the latest second or two, and so does a crash of Redis alone while
// the disk is slow, because until a sync has ended it acknowledges without writing. With "no", a loss of power loses half a minute
// or so. A failover loses what the new master had not received, for replication is asynchronous;
// [Options].Replicas reduces that, but does not end it. An operation whose record is lost is a new one, and its next
// delivery runs it again, under every policy, even Refuse. So money belongs in an SQL database, in one transaction
// with its record (store/pgxstore, store/sqlitestore). Redis is for effects whose rare repetition is
// acceptable, or that the other side deduplicates by the downstream key.
//
// There are no transactions with the application's data: guarded mode (Do) only.
//
// [New] asks the server for its settings. It refuses a server that evicts (a maxmemory-policy other than noeviction) or has
// no append-only file, because both lose records in ordinary operation. [Options].Accept names the risks that an application
// accepts, and [Store.Health] repeats them in its notes.
//
// # Time
//
// The clock is the server's TIME, read inside the script. Redis takes it from its machine: make sure that this clock is not
// set back, and that the clocks of a cluster agree. A failover to a machine whose clock is behind prolongs leases
// and retentions by as much; the tokens of an existing record still grow. A result that is more than a second from
// its end is replayed without asking for the time, by what the server said a minute ago at most.
//
// The server itself ends results and records, so there is nothing to purge and no janitor to start. Under Refuse
// and Reconcile a claimed or abandoned record has no end until somebody settles it.
//
// # Calls
//
// Each transition is one script and one round trip; calls of many goroutines share round trips. Scripts are sent by
// their hash, and once by their text to a server that does not know them. A record, its result and its steps are
// in one slot of a cluster. If a cluster, a failover or a start replies with something other than an answer (MOVED, ASK, TRYAGAIN,
// CLUSTERDOWN, READONLY, LOADING), that is an error of the store, never "absent".
//
// A result that the server has dropped counts as one that was not kept. A record whose steps it has dropped is not continued
// ([driver.ErrCorruptRecord]), because they would be done again: it can be looked at, and settled (everonce keys settle).
//
// A duplicate that waits is woken by a message that the end of the attempt publishes, but only if somebody waits. The store hears
// all of them by one subscription, to its prefix and "*", which begins with the first who waits and ends with the client. A
// user without permission for that can do without: waiters then ask again by themselves.
//
// [Store.List], [Store.Health] and [Store.DeleteScope] look at every key of the server, because there is no index: every
// write would have to pay for it. They are for tools.
package redisstore
