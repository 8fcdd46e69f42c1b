package raftonce

import (
	"io"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/everonce/everonce/session"
)

// NewEntry is an entry as a leader with that Config appends it, in the term 0.
func NewEntry(config session.Config, stamp int64, c *session.Command) ([]byte, error) {
	m, err := session.New(config)
	if err != nil {
		return nil, err
	}
	return newEntry(head{stamp: stamp, config: sumOf(m.Config())}, c)
}

// RestoreWithoutSessions is Restore with a fault: the sessions are outside of the snapshot, and remain unchanged.
func (f *FSM) RestoreWithoutSessions(from io.ReadCloser) error {
	if _, err := io.CopyN(io.Discard, from, int64(len(magic))); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, &pieceReader{from: from}); err != nil {
		return err
	}
	return f.inner.Restore(from)
}

// Believe has the client take a node for the leader.
func (c *Client) Believe(leader string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.node, c.next = leader, 0
}

// SmallJournal is the size up to which a journal is not folded.
var SmallJournal = &smallJournal

// Begun has a state machine on disk take entries as if it was resumed.
func (f *DiskFSM) Begun() *DiskFSM {
	f.handed, f.resumed = f.applied, true
	return f
}

// Table is the sessions alone.
func (f *DiskFSM) Table() *session.Machine { return f.machine }

// Table is the sessions alone.
func (f *FSM) Table() *session.Machine { return f.machine }

// The faults of PlantedApply.
const (
	IndexApart    = "the applied index is in another commit than the effect"
	SessionsApart = "the sessions are not in the commit of the effect"
	NoSkip        = "the replay does not skip"
)

// PlantedApply is ApplyBatch with a fault. It calls crash between two commits.
func (f *DiskFSM) PlantedApply(fault string, logs []*raft.Log, crash func()) {
	if fault == NoSkip {
		f.applied = 0
		f.ApplyBatch(logs)
		return
	}
	last := max(f.applied, logs[len(logs)-1].Index)
	b := diskBatch{fsm: f, answers: make([]any, len(logs)+1)}
	add := func(records []record, applied uint64) func(tx *bbolt.Tx) error {
		return func(tx *bbolt.Tx) error { return f.journal.add(tx, f.machine, records, applied) }
	}
	commit := func(fn func(tx *bbolt.Tx) error) {
		if err := f.db.Update(fn); err != nil {
			panic(err)
		}
	}
	commit(func(tx *bbolt.Tx) error {
		for b.next = 1; b.next <= len(logs); b.next++ {
			if log := logs[b.next-1]; log.Index > f.applied {
				if err := b.apply(tx, log); err != nil {
					return err
				}
			}
		}
		if fault == IndexApart {
			return add(b.journal, f.applied)(tx)
		}
		return add(nil, last)(tx)
	})
	crash()
	if fault == IndexApart {
		b.journal = nil
	}
	commit(add(b.journal, last))
	f.applied, f.handed = last, last
}

// OpenReads is how many transactions read the state.
func (f *DiskFSM) OpenReads() int { return f.db.Stats().OpenTxN }

// Unsynced has commits of a state machine on disk be fast, and survive this process only.
func (f *DiskFSM) Unsynced() *DiskFSM {
	f.db.NoSync = true
	return f
}
