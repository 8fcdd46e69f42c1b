// Package replication wakes the relay of an outbox in PostgreSQL by logical replication: the server reports each commit
// that inserted an event, and no publishing transaction takes the lock of NOTIFY.
//
// # Guarantees
//
// The table is the truth: a relay claims rows by their state, under a lease. Messages from the slot only make the relay
// look; their content is neither used nor remembered. So whatever happens to the slot, to its connection or to the
// report of a commit, no event is skipped, lost or published twice because of it; at worst the next poll finds it (Poll
// of outbox.RelayOptions). Polling, LISTEN and replication may therefore be exchanged while events are published, and
// be used together.
//
// The report of a commit may arrive before the commit is visible, above all if it waits for a synchronous standby. The
// relay looks again at once, then after pauses that double.
package replication
