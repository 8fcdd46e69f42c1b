// Package sqlsession keeps client sessions in a SQL database, beside the store of a receiver: a request's effect and
// its record are one commit.
//
// The rules are package session's. A [Store] applies a [session.Command] in one transaction: it locks the session's
// row, decides, calls the work with the transaction, writes the session and the result of the number, and commits. Any
// number of processes may do so on one database. No state is kept in memory only: there is no snapshot, and nothing to
// restore.
//
// # What it promises
//
// The only mode is transactional: as long as its session lives, a request takes effect once, for the writes of its work
// in the transaction. After an error of the work, or a crash before the commit, nothing is written, and the number is
// unused. If the commit's answer is lost ([everonce.ErrOutcomeUnknown]), send the same command again: it is replayed if
// it was committed, and executed if not. Effects of the work outside of the transaction may happen again.
//
// A request of a session that has ended is refused, and never executed. Time is the store's clock: the server's for
// PostgreSQL and MariaDB, and the process's for SQLite. No client's clock is used.
//
// # What it costs
//
// A request reads in one round trip, writes in a second one, and commits. The first command of a session that a Store
// sees costs one read more, which compares the secret: only a session's own client can lock it. Requests of many
// sessions can share that, and the commit: see Options.Batch. The requests of one session run one after the other,
// because each locks the session's row; requests of different sessions do not conflict. Registrations, and ends of
// sessions, wait for each other's lock of one row of the table session_state, from their write to their commit: it has
// the highest ID, so that IDs are never used again, and the number of sessions, which is compared with MaxSessions. The
// sessions of a principal are counted by an index.
package sqlsession
