package raftonce

import (
	"bytes"
	"io"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/everonce/everonce/session"
)

// NewEntry is an entry as a leader appends it.
var NewEntry = newEntry

// RestoreWithoutSessions is Restore with a fault: the sessions are outside of the snapshot, and stay as they are.
func (f *FSM) RestoreWithoutSessions(from io.ReadCloser) error {
	if _, err := io.CopyN(io.Discard, from, int64(len(magic))); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, &pieceReader{from: from}); err != nil {
		return err
	}
	return f.inner.Restore(from)
}

// SmallJournal is the size up to which a journal is not folded.
var SmallJournal = &smallJournal

// Begun has a state machine on disk take entries as if it was resumed.
func (f *DiskFSM) Begun() *DiskFSM {
	f.resumed = true
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
	last := logs[len(logs)-1].Index
	later := map[string][]byte{}
	commit := func(fn func(tx *bbolt.Tx) error) {
		if err := f.db.Update(fn); err != nil {
			panic(err)
		}
	}
	commit(func(tx *bbolt.Tx) error {
		for _, log := range logs {
			if log.Index <= f.applied {
				continue
			}
			if _, err := f.apply(tx, log); err != nil {
				return err
			}
			entries := tx.Bucket(ours).Bucket(keyJournal)
			if entry := entries.Get(key(log.Index)); fault == SessionsApart && entry != nil {
				later[string(key(log.Index))] = bytes.Clone(entry)
				if err := entries.Delete(key(log.Index)); err != nil {
					return err
				}
			}
		}
		if fault == IndexApart {
			return nil
		}
		return tx.Bucket(ours).Put(keyApplied, key(last))
	})
	crash()
	commit(func(tx *bbolt.Tx) error {
		for at, entry := range later {
			if err := tx.Bucket(ours).Bucket(keyJournal).Put([]byte(at), entry); err != nil {
				return err
			}
		}
		return tx.Bucket(ours).Put(keyApplied, key(last))
	})
	f.applied = max(f.applied, last)
}

// Unsynced has commits of a state machine on disk be fast, and survive this process only.
func (f *DiskFSM) Unsynced() *DiskFSM {
	f.db.NoSync = true
	return f
}
