package raftonce

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/everonce/everonce/session"
)

// DiskMachine executes a request, and returns its result. Its writes in tx commit together with the request's record.
// It must be deterministic, must not end tx, and must not touch the bucket "everonce".
//
// An error is the request's result: it is kept, and replayed. The writes of a failed request are undone, for which the
// requests before it in its batch are executed again: if errors are frequent, check first, then write.
type DiskMachine func(tx *bbolt.Tx, payload []byte) ([]byte, error)

// DiskOptions are the options of [OpenDisk].
type DiskOptions struct {
	// Bolt are the options of the database. NoSync makes commits faster, and costs only time after a crash: if the process
	// ends without Close, the file may be damaged, and the next OpenDisk begins with an empty one, which raft fills from
	// its snapshot and log. The same holds for NoGrowSync. Timeout is how long another process may have the folder open,
	// by default a second.
	//
	// A database that grows beyond InitialMmapSize while a snapshot is written stops the node for ever: bbolt waits for
	// the snapshot, which waits for raft, which waits for bbolt. So 0 means 64 GiB here. This is address space, of which a
	// process on a 64-bit system has plenty (unless ulimit -v bounds it), not memory or disk. Set it if the database may
	// grow larger. On Windows, where the file grows to this size at once, and on 32 bits, there is no default: set it.
	Bolt *bbolt.Options
}

// DiskFSM is a state machine whose state and sessions are in one bbolt database. Applied index, sessions and effects of
// the entries of a batch are one commit, so that replaying the log after a crash neither repeats nor loses an entry. A
// node that restarts continues from there, see [DiskFSM.Resume].
//
// If a commit fails, as if the log cannot be written, the process ends with a panic: the other nodes go on, and this
// one continues after the next start.
type DiskFSM struct {
	table
	fn      DiskMachine
	dir     string
	options bbolt.Options

	applied uint64 // the last command in the state; 0 after a snapshot was restored
	handed  uint64 // the last command from raft: below applied while raft replays
	resumed bool
	journal journal

	mu     sync.RWMutex // guards db
	db     *bbolt.DB
	number uint64         // number of the file
	old    sync.WaitGroup // replaced files that are still being read
}

var _ raft.BatchingFSM = (*DiskFSM)(nil)

// OpenDisk opens the state machine in the folder dir, which it creates if needed, and which must hold nothing else. All
// nodes must have the same config, which cannot be changed during the life of the cluster. The error wraps
// [session.ErrConfig], [ErrOtherConfig], [session.ErrOtherMachine], [session.ErrCorrupt], or an error of the file
// system. If another process has the folder open, it wraps bbolt's ErrTimeout.
func OpenDisk(dir string, fn DiskMachine, config session.Config, opts *DiskOptions) (*DiskFSM, error) {
	f := &DiskFSM{fn: fn, dir: dir, options: boltOptions(opts)}
	if err := f.configure(config); err != nil { // before any file is created
		return nil, err
	}
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("raftonce: open the state machine on disk: %w", err)
	}
	return f, nil
}

// View reads the state in one transaction, at any time and in any goroutine.
func (f *DiskFSM) View(fn func(tx *bbolt.Tx) error) error {
	tx, err := f.begin()
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it has only read, and fn may panic
	return fn(tx)
}

func (f *DiskFSM) begin() (*bbolt.Tx, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.db.Begin(false)
}

// Apply applies one entry as a batch.
func (f *DiskFSM) Apply(log *raft.Log) any { return f.ApplyBatch([]*raft.Log{log})[0] }

// ApplyBatch applies entries in one commit. The state machine is called for the requests that were not executed before.
// Entries that are already in the state are skipped: they are replayed after a start, and no caller waits for their
// replies.
func (f *DiskFSM) ApplyBatch(logs []*raft.Log) []any {
	if !f.resumed {
		panic("raftonce: call DiskFSM.Resume before raft.NewRaft")
	}
	b := diskBatch{fsm: f, logs: logs, answers: make([]any, len(logs))}
	for b.next < len(logs) && logs[b.next].Index <= f.applied {
		b.answers[b.next] = ErrRetry
		b.next++
	}
	for _, log := range logs {
		if log.Type == raft.LogCommand {
			f.handed = log.Index
		}
	}
	if b.next == len(logs) {
		return b.answers
	}
	last := max(f.applied, f.handed)
	err := errUndo
	for errors.Is(err, errUndo) {
		err = f.db.Update(b.run)
	}
	if err != nil {
		panic(fmt.Errorf("raftonce: commit the entries up to %d on disk: %w", last, err))
	}
	f.applied = last
	f.publish()
	return b.answers
}

// Resume lets raft continue from the state on disk: call it before [raft.NewRaft] or [raft.RecoverCluster], with the
// same arguments. It sets config.NoSnapshotRestoreOnStart if the state is at least as new as the newest snapshot;
// otherwise raft restores the snapshot. The log after it is replayed, and entries that are already in the state are
// skipped.
//
// If the log is shorter than the state, the error is [ErrAhead].
func (f *DiskFSM) Resume(config *raft.Config, logs raft.LogStore, snapshots raft.SnapshotStore) error {
	last, err := logs.LastIndex()
	if err != nil {
		return fmt.Errorf("raftonce: resume: the log: %w", err)
	}
	list, err := snapshots.List()
	if err != nil {
		return fmt.Errorf("raftonce: resume: the snapshots: %w", err)
	}
	newest := uint64(0)
	if len(list) > 0 {
		newest = list[0].Index
	}
	if f.applied > max(last, newest) {
		return fmt.Errorf("%w: the state has entry %d, and the log ends at %d", ErrAhead, f.applied, max(last, newest))
	}
	config.NoSnapshotRestoreOnStart = f.applied >= newest
	f.handed, f.resumed = newest, true
	return nil
}
