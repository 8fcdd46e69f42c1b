// Package sqlitestore keeps records in a SQLite file: the embedded store, in pure Go, without a server.
//
//	store, err := sqlitestore.Open(ctx, "app.db", nil)
//
// # Durability and speed
//
// The file is in WAL mode with synchronous=FULL: a write that returned nil survives a crash of the process and,
// if the disk keeps what it has synced, a loss of power. SQLite has one writer at a time. Writes that
// come together are grouped into one commit, and none is acknowledged before that commit is on the
// disk. If they come less than 150 µs apart and the processors are busy, a commit is delayed by 250 µs, so that
// more of them can share it. Reads, replays among them, do not wait for the writer.
//
// Before each commit the store checks (by one stat) that the file has not been removed or replaced. If it has, nothing more is
// written to it, and the store has to be opened anew. The write-ahead log (-wal) is a part of the file: keep the two together.
//
// The clock is this machine's: all processes that share the file share its clock. SQLite's write-ahead log does not
// work on a network file system; such a file is refused if it can be told.
//
// # Transactions
//
// The store is an everonce.TxStore of *sql.Tx. [Store.DB] is the database for the application's own
// tables; Transact hands its transactions to the work, and DoTx takes yours:
//
//	tx, err := store.DB().BeginTx(ctx, nil) // begins IMMEDIATE, and waits for its turn
//
// A transaction of another handle on the same file works too, if it begins IMMEDIATE ("_txlock=immediate" in
// its name): a transaction that reads first and writes later can fail with SQLITE_BUSY_SNAPSHOT, and the only remedy
// is to run it again from the start. A transaction on another file is refused with driver.ErrOtherStore.
//
// A transaction that writes shuts out every other writer, including the renewals of leases. So one that
// everonce begins is limited to a third of the shortest lease in use (10 s by default, and at least 100 ms), and
// then rolled back: everonce.ErrTxTooLong. Keep your own as short. Work that writes through [Store.DB], and not through the
// transaction it was given, waits for that very transaction, up to Options.BusyTimeout and once more at each retry.
// Within one process a duplicate never waits for the transaction that has its key: it is told at once that it is in
// progress. Between processes it waits up to Options.BusyTimeout.
//
// SQLite can end a transaction by itself, after an interrupted write or on a full disk, and would then commit
// each further statement by itself. Connections of [Store.DB] notice that, and refuse everything until the
// rollback. They do the same after a ROLLBACK in the text of a statement; and a COMMIT there, in work to which everonce
// has lent its transaction, rolls back.
package sqlitestore
