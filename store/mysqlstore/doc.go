// Package mysqlstore keeps records in MariaDB (10.6 or newer, tested with 10.11 and 11.8) or MySQL (8.0 or newer,
// tested with 8.0, 8.4 and 9.7), through database/sql and the driver of github.com/go-sql-driver/mysql.
//
//	config, err := mysqlstore.ParseURL("mysql://user:password@host:3306/shop")
//	connector, err := mysql.NewConnector(config)
//	db := sql.OpenDB(connector)
//	store, err := mysqlstore.New(db, nil)
//	err = store.Migrate(ctx)                              // once; safe from several processes
//	receiver, err := everonce.NewTxReceiver(store, nil)
//	res, err := everonce.Transact(ctx, receiver, key, func(ctx context.Context, tx *sql.Tx) (Receipt, error) { … })
//
// # Guarantees
//
// In transactional mode (Transact, DoTx, StepTx) the effect and its record commit together: exactly once, as long as
// the database keeps what it committed, and the effect is on tables of InnoDB. A failover to a replica that lacks
// commits loses them, and the guarantee with them; so does innodb_flush_log_at_trx_commit other than 1. Health reports
// these settings. In guarded mode (Do) the guarantees in the documentation of package everonce hold.
//
// # Waiting
//
// On MariaDB no claim waits in the server for another transaction of the same key: a duplicate returns as in progress.
// If an existing record is locked, the claim looks again for up to 0.2 s, because a purge or a deletion may hold it for
// a moment. One that holds it for longer, with a large batch or on a slow server, has the claim return as in progress
// too: try again.
//
// MySQL has no such statement. There a duplicate of an open transaction's key waits for innodb_lock_wait_timeout, 50
// seconds by default. Set it to 1, the least, in the data source name:
//
//	mysql://user:password@host:3306/shop?innodb_lock_wait_timeout=1
//
// Nor does MySQL lock its own rows as sparingly as MariaDB. Where it splits a page of the table beside a key of a
// transaction at repeatable read, new keys next to that one wait for the transaction too, and are in progress until it
// ends. A transaction that is to stay open for long had better be at read committed ([Options].Isolation, or your own
// for DoTx).
//
// The setting innodb_rollback_on_timeout must be off, its default.
//
// # Keys
//
// All texts are stored as bytes (VARBINARY), so keys that differ in case, in accents or in trailing blanks are
// different keys, whatever the collation of database and connection.
//
// # Deadlocks
//
// MariaDB and MySQL roll back a whole transaction to end a deadlock (error 1213), and each later statement on the same
// *sql.Tx commits alone. Transact runs the whole transaction again. DoTx returns the error, because only the caller
// can. Work that swallows the error fails all the same: its record is not written outside of a transaction. Nothing
// protects statements that the work itself sends after the error: return it.
//
// # Isolation
//
// Everything holds at repeatable read, the default of both servers, and at read committed and serializable. A claim
// reads the latest record, not the record in the transaction's snapshot. MariaDB 11.6.2 and newer refuse by default to
// lock or change a row that is newer than the transaction's snapshot, and roll back (error 1020;
// innodb_snapshot_isolation). everonce's own statements switch that off, each for itself. Your statements do not, nor
// does [InsertOnce]: treat the error as a deadlock, or add innodb_snapshot_isolation=0 to the data source name. Purge
// and deletion run at read committed, so that they lock no gaps. That needs binlog_format to be ROW or MIXED, its
// default.
//
// # Settings of sessions
//
// A statement fails on a connection whose settings would lose what it writes or change its meaning, such as
// autocommit=0, completion_type=CHAIN or READ UNCOMMITTED. It asks for them itself, so that it does not matter when
// they were set. The error names the setting; the reference of the stores lists them. Do not begin a transaction for
// DoTx at sql.LevelReadUncommitted: the store cannot see that, and may replay what is undone later.
//
// # The caller's transaction
//
// DoTx takes transactions of the *sql.DB that was given to New. Another's is everonce.ErrOtherStore, once the store has
// been used outside of the caller's transactions: Migrate is enough.
//
// A DoTx that finds another attempt keeps its record locked until the caller's transaction ends, unless it was the
// first in it: roll back, because an attempt of the guarded mode cannot end before.
//
// # Round trips
//
// Once a connection has prepared its statements:
//
//	guarded: claim of a new key, renewal, completion, release                    1 each
//	guarded: replay                                                              2
//	guarded: beginning of a step, and its end                                    5 and 6
//	Transact, claim first: new key                                               4 and the work's
//	Transact, claim first: replay                                                4
//	Transact, optimistic: new key                                                4 and the work's
//	Transact, optimistic: replay                                                 1
//
// On MySQL a claim in a transaction, the writing of its record, and each write of a step take one more, to learn
// whether the transaction is still one.
//
// # The end of a transaction
//
// Work must not end the transaction that it was given, not by a statement that commits implicitly either, such as
// CREATE TABLE: that is not supported. On both servers the record is then not written, and the call fails, but what the
// work has committed remains. After Options.TxTimeout a transaction is rolled back; pass statements the context that
// the work was given. If the connection is cut, the server may need some time to notice: set readTimeout and
// writeTimeout in the data source name, longer than your longest statement.
//
// everonce's statements change LAST_INSERT_ID() of the connection: take the number of an inserted row from the
// sql.Result, as usual.
package mysqlstore
