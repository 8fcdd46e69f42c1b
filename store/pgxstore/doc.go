// Package pgxstore keeps everonce's records in PostgreSQL (12 or newer, tested with 15 and 17), through pgx or
// through database/sql.
//
//	pool, err := pgxpool.New(ctx, url)
//	store, err := pgxstore.New(pool, nil)
//	err = store.Migrate(ctx)                              // once; safe from several processes
//	receiver, err := everonce.NewTxReceiver(store, nil)
//	res, err := everonce.Transact(ctx, receiver, key, func(ctx context.Context, tx pgx.Tx) (Receipt, error) { … })
//
// # What is promised
//
// In transactional mode (Transact, DoTx, StepTx) the effect and its record commit together: exactly once,
// as long as the database keeps what it committed. A failover to an asynchronous standby loses commits,
// and this promise with them; so do fsync = off and, for a moment, synchronous_commit = off. Health
// tells which of these is set. In guarded mode (Do) the promises are those of package everonce.
//
// # Waiting
//
// No claim ever waits in the database for another transaction of the same key: it tries an advisory lock on the key,
// and a duplicate is told at once that the first one is running. The lock belongs to the
// transaction (pg_try_advisory_xact_lock), so it works through a pooler in transaction mode. Stores on the same
// tables must spell their Schema and TablePrefix alike, or they try different locks; nothing breaks then,
// but a duplicate may wait for the first one's commit. Conversely, stores on tables of the same name in several
// schemas of one database, told apart by search_path alone, try the same locks: a key is reported as in progress
// while another schema's transaction holds an equal one. Set Schema there.
//
// Set it as well where the work changes the search_path, for a tenant, say: the record is written behind the work, into the tables that are
// found then. And it is written with the rights that the work leaves behind: work that sets a role sets it back, or gives that role the
// rights of a service. Without them nothing is committed.
//
// # Round trips
//
// With pgx, a claim rides on BEGIN and a completion on COMMIT. Once a connection has prepared its
// statements:
//
//	guarded: claim of a new key, replay, renewal, step, completion, release      1 each
//	guarded: claim of a released or abandoned key                                2
//	Transact, claim first: new key                                               2 and the work's
//	Transact, claim first: replay                                                2 (with database/sql 3)
//	Transact, optimistic: new key                                                2 and the work's
//	Transact, optimistic: replay                                                 1
//
// Without a claim, BEGIN rides on the work's first statement: pgx's tracers see the two as a batch. It is
// sent by itself if that statement has no arguments, or has options of its own.
//
// database/sql cannot send two statements at once, so BEGIN and COMMIT cost one more each.
//
// # Poolers
//
// Every mode of pgx works ([pgx.QueryExecMode]), and so does PgBouncer in transaction mode (tested with 1.18 and 1.24).
// With a pooler in transaction mode that knows no prepared statements (PgBouncer before 1.21, or with max_prepared_statements 0),
// set DefaultQueryExecMode to QueryExecModeExec or QueryExecModeCacheDescribe. QueryExecModeSimpleProtocol works too, but there pgx reports a lost
// answer as if nothing had been sent. This package does not believe it; database/sql does, and sends
// a statement that is outside a transaction once more.
//
// In QueryExecModeExec and QueryExecModeSimpleProtocol values come back as text, and pgx reads bytes in one form alone: leave
// the database's bytea_output at hex, its default. Where it is escape, a record that is there is an error.
//
// # The end of a transaction
//
// Work must not end the transaction that it is lent: that is not supported, and its effects may commit without the record.
// Commit and Rollback of the pgx.Tx that it gets are refused; those of an *sql.Tx, and the text of a statement, are not.
//
// # Isolation
//
// At read committed, the default, everything above holds as it stands. At repeatable read and
// serializable, two transactions of one key at the same time may end in a serialization failure instead
// of "in progress": Transact then runs the whole transaction again, and DoTx returns the error, because only the
// caller can run it again. Where serializable is the database's own default, what only reads is read at read committed, in a transaction
// of its own: two round trips more.
//
// # Timeouts
//
// A transaction that everonce begins is ended after Options.TxTimeout by closing its connection, and the
// server rolls it back. With database/sql a statement that is still running then is ended by its own
// context: pass it the one that the work was given. Where the server ends one earlier, by idle_in_transaction_session_timeout or
// transaction_timeout, it has failed, and the work is not run again.
//
// Work that leaves rows open has failed, and commits nothing. With database/sql, rows that it leaves open under a context
// that it cancels itself take the connection with them. That cannot be told from a broken network, so the transaction is
// run again, Options.TxRetries times.
package pgxstore
