// Package replication wakes the relay of an outbox in PostgreSQL by logical replication: the server sends word of each
// commit that inserted an event, and no transaction that publishes takes the lock of NOTIFY.
//
// # Guarantees
//
// The table is the truth: a relay claims rows by their state, under a lease. What comes through the slot is only a reason
// to look, and nothing that it says is used or remembered. So whatever happens to the slot, to its connection or to word
// of a commit, no event is skipped, lost or published twice because of it; at worst it is found by the next poll
// (Poll of outbox.RelayOptions). Polling, LISTEN and replication may therefore be exchanged while events are published,
// and used beside each other.
//
// Word of a commit may come before the commit is visible, above all where it waits for a synchronous standby. The relay
// looks again at once, then after pauses that double.
package replication
