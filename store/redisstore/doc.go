// Package redisstore keeps everonce's records in Redis (7.0 or newer; not tested with Valkey), on one server or in a
// cluster, through rueidis. A client that finds its server through Sentinel should do as well; that is not tested either.
//
//	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}})
//	store, err := redisstore.New(ctx, client, nil)
//	receiver, err := everonce.NewReceiver(store, everonce.Refuse, nil)
//	res, err := everonce.Do(ctx, receiver, key, work)
//
// # What is lost when what crashes
//
// With an append-only file and appendfsync always nothing that was acknowledged is lost when Redis crashes, or its machine.
// With everysec (Redis' default) a loss of power loses the latest second or two, and so does a crash of Redis alone while
// the disk is slow: until a sync has ended it acknowledges without writing. With no, a loss of power loses half a minute
// or so. A failover loses what the new master had not received, for replication is asynchronous;
// [Options].Replicas narrows that and does not end it. An operation whose record is lost is a new one, and its next
// delivery runs it again: under every policy, Refuse too. So money belongs in an SQL database, in one transaction
// with its record (store/pgxstore, store/sqlitestore). Redis is for effects whose rare repetition somebody can
// live with, or that the other side deduplicates by the downstream key.
//
// There are no transactions with the application's data: guarded mode (Do) only.
//
// [New] asks the server for its settings. It refuses one that evicts (a maxmemory-policy other than noeviction) or has
// no append-only file, because both lose records while all is well; [Options].Accept names what an application
// accepts, and [Store.Health] repeats it in its notes.
//
// # Time
//
// The server's TIME, inside of the script, is the clock. Redis takes it from its machine: keep that one's clock from
// being set back, and the clocks of a cluster together. A failover to a machine whose clock is behind prolongs leases
// and retentions by as much; tokens of a record that is there grow all the same. A result that is more than a second from
// its end is replayed without a look at the clock: by what the server has told of it, a minute ago at most.
//
// Results and records end by the server's own hand, so there is nothing to purge and no janitor to start. Under Refuse
// and Reconcile a claimed or abandoned record has no end until somebody settles it.
//
// # Calls
//
// Each transition is one script, and one round trip; calls of many goroutines share round trips. Scripts are sent by
// their hash, and once by their text to a server that does not know them. A record, its result and its steps are
// in one slot of a cluster. What a cluster, a failover or a start answers in place of an answer (MOVED, ASK, TRYAGAIN,
// CLUSTERDOWN, READONLY, LOADING) is an error of the store, never "absent".
//
// A result that the server has given away counts as one that was not kept. With a record whose steps it has given away nobody goes on
// ([everonce.ErrCorruptRecord]), for they would be done again: it can be looked at, and settled (everonce keys settle).
//
// A duplicate that waits is woken by a message that the end of the attempt publishes, and only where somebody waits. A
// user without the permission for channels can do without: waiters ask again by themselves.
//
// [Store.List], [Store.Health] and [Store.DeleteScope] look at every key of the server: there is no index, which every
// write would have to pay for. They are for tools.
package redisstore
