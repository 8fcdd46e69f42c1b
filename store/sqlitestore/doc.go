// Package sqlitestore keeps records in a SQLite file: the embedded store, in pure Go, without a server.
//
//	store, err := sqlitestore.Open("app.db", nil)
//
// # Durability and speed
//
// The file is in WAL mode with synchronous=FULL: a write that returned nil survives a crash of the process and,
// if the disk keeps what it has synced, a loss of power. SQLite lets one writer at a time; writes that
// come together are grouped into one commit, and none is acknowledged before that commit is on the
// disk. Where they come at less than 150 µs from each other and the processors are busy, a commit is put off by 250 µs, for
// more to share it. Reads, replays among them, do not wait for the writer.
//
// A file that is removed or replaced while it is open is noticed before each commit (one stat): nothing is written
// to it any more, and the store has to be opened anew. Its write-ahead log (-wal) is a part of it: leave the two together.
//
// Time is this machine's: all processes that share the file share its clock. A file on a network file
// system is not supported by SQLite's write-ahead log, and is refused where that shows.
//
// # Transactions
//
// The store is an everonce.TxStore of *sql.Tx. [Store.DB] is the database for the application's own
// tables; Transact hands its transactions to the work, and DoTx takes yours:
//
//	tx, err := store.DB().BeginTx(ctx, nil) // begins IMMEDIATE, and waits for its turn
//
// A transaction of another handle on the same file works too, if it begins IMMEDIATE ("_txlock=immediate" in
// its name): a transaction that reads first and writes later can fail with SQLITE_BUSY_SNAPSHOT, and only
// running it again from the start helps. One of another file is refused with everonce.ErrOtherStore.
//
// A transaction that writes shuts out every other writer, the renewals of leases too. So one that
// everonce begins is limited to a third of the shortest lease in use (10 s by default, and 100 ms at the least), and
// then rolled back: everonce.ErrTxTooLong. Keep your own as short. Work that writes through [Store.DB], and not through the
// transaction it was given, waits for that very transaction, up to Options.BusyTimeout and once more at each retry. Inside of one process a duplicate never waits for
// the transaction that has its key; it is told at once that it is in progress. Between processes it waits up to
// Options.BusyTimeout.
//
// SQLite can end a transaction by itself, after an interrupted write or a full disk, and would then commit
// each further statement alone. Connections of [Store.DB] notice that, and refuse everything until the
// rollback.
package sqlitestore
