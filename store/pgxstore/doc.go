// Package pgxstore keeps records in PostgreSQL (12 or newer, tested with 15 and 17), through pgx or through
// database/sql.
//
//	pool, err := pgxpool.New(ctx, url)
//	store, err := pgxstore.New(pool, nil)
//	err = store.Migrate(ctx)                              // once; safe from several processes
//	receiver, err := everonce.NewTxReceiver(store, nil)
//	res, err := everonce.Transact(ctx, receiver, key, func(ctx context.Context, tx pgx.Tx) (Receipt, error) { … })
//
// # Guarantees
//
// In transactional mode (Transact, DoTx, StepTx) the effect and its record commit together: exactly once, as long as
// the database keeps what it committed. A failover to an asynchronous standby loses commits, and the guarantee with
// them; so does fsync = off, which Health reports. A transaction in which the store writes commits with
// synchronous_commit on, or remote_apply, whatever the session says, unless Options.AsyncCommit is set. In guarded
// mode (Do) the guarantees in the documentation of package everonce hold.
//
// # Waiting
//
// No claim waits in the database for another transaction of the same key. It tries an advisory lock on the key, and a
// duplicate returns at once as in progress. The lock belongs to the transaction (pg_try_advisory_xact_lock), so it
// works through a pooler in transaction mode. Stores on the same tables must spell their Schema and TablePrefix
// alike, or they try different locks: a duplicate may then wait for the first one's commit, but nothing else breaks.
// Conversely, stores on tables of the same name in several schemas of one database, selected by search_path alone,
// try the same locks: a key is reported as in progress while another schema's transaction holds an equal one. Set
// Schema there.
//
// Set Schema too if the work changes the search_path, for a tenant, say: the record is written after the work, into
// the tables that the search_path then finds. It is also written with the role that the work leaves: work that sets a
// role must reset it, or that role needs the rights of a service. Without them nothing is committed.
//
// # Round trips
//
// With pgx, a claim is sent together with BEGIN and a completion with COMMIT. Once a connection has prepared its
// statements:
//
//	guarded: claim of a new key, replay, renewal, step, completion, release      1 each
//	guarded: claim of a released or abandoned key                                2
//	Transact, claim first: new key                                               2 and the work's
//	Transact, claim first: replay                                                2 (with database/sql 3)
//	Transact, optimistic: new key                                                2 and the work's
//	Transact, optimistic: replay                                                 1
//
// Without a claim, BEGIN is sent together with the work's first statement: pgx's tracers see the two as a batch. It
// is sent separately if that statement has no arguments, or has options.
//
// database/sql cannot send two statements at once, so BEGIN and COMMIT cost one more each.
//
// # Poolers
//
// Every mode of pgx works ([pgx.QueryExecMode]), and so does PgBouncer in transaction mode (tested with 1.18 and
// 1.24). With a pooler in transaction mode without prepared statements (PgBouncer before 1.21, or with
// max_prepared_statements 0), set DefaultQueryExecMode to QueryExecModeExec or QueryExecModeCacheDescribe.
// QueryExecModeSimpleProtocol works too, but there pgx reports a lost answer as if nothing had been sent. This
// package does not rely on that; database/sql does, and sends a statement outside a transaction again.
//
// In QueryExecModeExec and QueryExecModeSimpleProtocol values arrive as text, and pgx reads bytes in one form only:
// leave the database's bytea_output at hex, its default. With escape, the connection is refused at its first use.
//
// A pooler in transaction mode lends a connection with what another client has SET. The store relies on no such
// setting: the reference of the stores lists them.
//
// # The end of a transaction
//
// Work must not end the transaction that it was given: that is not supported, and its effects may commit without the
// record. Commit and Rollback of its pgx.Tx fail. Commit and Rollback of an *sql.Tx are not prevented, nor is the text
// of a statement.
//
// # Isolation
//
// At read committed, the default, everything above holds. At repeatable read and serializable, two transactions of
// one key at the same time may end in a serialization failure instead of "in progress". Transact then runs the whole
// transaction again; DoTx returns the error, because only the caller can run it again. All that the store does outside
// of transactions with work runs at read committed, whatever the connection's default is: still in one round trip
// through pgx, and in three through database/sql.
//
// # Timeouts
//
// After Options.TxTimeout a transaction that everonce began is ended by closing its connection, and the server rolls
// it back. With database/sql a statement that is still running then is ended by its own context: pass it the context
// that the work was given. If the server ends a transaction earlier, by idle_in_transaction_session_timeout or
// transaction_timeout, the transaction fails and the work does not run again.
//
// Work that leaves rows open fails, and commits nothing. With database/sql, rows left open under a context that the
// work cancels break the connection. This looks like a broken network, so the transaction runs again, up to
// Options.TxRetries times.
package pgxstore
