// Package sqlqueue is a queue in a table of a SQL database, beside a store's: the part that outbox, inbox and saga have
// in common. A row is claimed with a lease, by several processes at once and by each row one, and ends as done, as
// tried again later, or as set aside for an operator.
//
// A row that is claimed is not due until its lease ends: due_at is both. A claim gives its rows a random token, and
// every later write of the claimer is on condition of it. So a process that was paused past its lease changes nothing
// of what another one has claimed since.
//
// A claim finds its rows by state, and never by a position: a row whose transaction stays open for long, behind which
// others were committed, is not passed over.
//
// Rows with the same order key, in the same group, are claimed in the order in which they were inserted: a row is the
// head of its key if no row before it is neither done nor set aside for good. Only heads are claimed, and after a head,
// by the same claimer, the rows that follow it without a gap. So claims of several processes need no common lock.
package sqlqueue
