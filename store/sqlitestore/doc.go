// Package sqlitestore keeps records in a SQLite file: the embedded store, in pure Go, without a server.
//
//	store, err := sqlitestore.Open(ctx, "app.db", nil)
//
// # Durability and speed
//
// The file is in WAL mode with synchronous=FULL: a write that returned nil survives a crash of the process and, if
// the disk keeps what it has synced, a power loss. SQLite has one writer at a time. Concurrent writes are grouped
// into one commit, and none is acknowledged before that commit is on disk. Before the next commit the store waits for
// callers that write again: up to 20 µs for each further write, and 500 µs in all. Reads, including replays, do not
// wait for the writer.
//
// Before each commit the store checks (by one stat) that the file has not been removed or replaced. If it has, the
// store refuses all further writes: open it anew. The write-ahead log (-wal) is a part of the file: keep the two
// together.
//
// The clock is this machine's: all processes that share the file share its clock. SQLite's write-ahead log does not
// work on a network file system; Open refuses such a file if it can detect it.
//
// # Transactions
//
// The store is a [driver.TxStore] of *sql.Tx. [Store.DB] is the database for the application's own tables; Transact
// passes its transactions to the work, and DoTx takes yours:
//
//	tx, err := store.DB().BeginTx(ctx, nil) // begins IMMEDIATE, and waits for its turn
//
// A transaction of another handle on the same file works too, if it begins IMMEDIATE ("_txlock=immediate" in its
// name): a transaction that reads first and writes later can fail with SQLITE_BUSY_SNAPSHOT, and must then be run
// again from the start. A transaction on another file returns [driver.ErrOtherStore].
//
// A transaction that writes blocks every other writer, including the renewals of leases. So a transaction that
// everonce begins is limited to a third of the shortest lease in use (10 s by default, and at least 100 ms). It is
// then rolled back and returns [everonce.ErrTxTooLong]. Keep your own transactions as short. Work that writes through
// [Store.DB], and not through the transaction it was given, waits for that very transaction, up to
// Options.BusyTimeout, and again at each retry. Within one process a duplicate never waits for the transaction that
// has its key: it returns at once as in progress. Between processes it waits up to Options.BusyTimeout.
//
// SQLite itself can end a transaction, after an interrupted write or on a full disk, and would then commit each further
// statement separately. Connections of [Store.DB] detect that, and refuse everything until the rollback. They do the
// same after a ROLLBACK in the text of a statement. A COMMIT there, in work to which everonce has lent its transaction,
// rolls back.
package sqlitestore
