// Package sqlsession keeps client sessions in a SQL database, beside the store of a receiver: a request's effect and what is
// kept of it are one commit.
//
// The rules are those of package session. A [Store] applies a [session.Command] in one transaction: it locks the session's row,
// decides, calls the work with the transaction, writes the session and the answer of the number, and commits. Any number of
// processes may do so on one database. There is no memory to lose: no snapshot, and nothing to restore.
//
// # What it promises
//
// In transactional mode, which is the only one here: as long as its session lives, a request has one effect, of what its work
// writes in the transaction. An error of the work, and a crash before the commit, leave nothing, and the number is as it was.
// Where the commit's answer is lost ([everonce.ErrOutcomeUnknown]), the same command again is replayed if it was committed, and
// executed if not. What the work does outside of the transaction may happen again.
//
// A request of a session that has ended is refused, and never executed. Time is the store's clock: that of the server, for
// PostgreSQL and MariaDB, and of the process for SQLite. No client's clock counts.
//
// # What it costs
//
// A request reads in one round trip, writes in a second one, and commits. The first command of a session that a Store sees costs one
// read more, which compares the secret: a session is locked for its own client only. Requests of many sessions can share that, and the commit:
// see Options.Batch. The requests of one session run one after the other, since each has the session's row; those of different
// sessions do not meet. Registrations, and sessions that end, take turns for one row of the table session_state, from their
// writing to their commit: it has the highest ID, so that IDs are never used again, and the number of sessions, which is compared
// with MaxSessions. The sessions of a principal are counted by an index.
package sqlsession
