package raftonce

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/everonce/everonce/session"
)

// DiskMachine executes a request, and returns its result. What it writes in tx commits together with the request's record.
// It must be deterministic, must not end tx, and must leave the bucket "everonce" alone.
//
// An error is the request's result: it is kept, and replayed. What was written before is undone, for which the requests before
// it in its batch are executed again: where errors are frequent, check first, then write.
type DiskMachine func(tx *bbolt.Tx, payload []byte) ([]byte, error)

// DiskOptions are the options of [OpenDisk].
type DiskOptions struct {
	// Bolt are the options of the database. NoSync makes commits faster, and costs nothing but time: if the process ends
	// without Close, the file may be damaged, and the next OpenDisk begins with an empty one, which raft fills from its
	// snapshot and log. The same holds for NoGrowSync. Timeout is how long another process may have the folder open, by
	// default a second.
	//
	// A database that grows beyond InitialMmapSize while a snapshot is written stops the node for ever: bbolt waits for the
	// snapshot, which waits for raft, which waits for bbolt. So it is 64 GiB where it is 0: of addresses, of which a process on a
	// 64-bit system has plenty (unless ulimit -v bounds them), and not of memory or disk. Set it where the database may grow
	// larger than that. On Windows, where the file becomes as large at once, and on 32 bits, there is no default: set it.
	Bolt *bbolt.Options
}

// DiskFSM is a state machine whose state and sessions are in one bbolt database. Applied index, sessions and effects of the
// entries of a batch are one commit, so that the replay of the log after a crash neither doubles nor loses. A node that
// starts again goes on from there, see [DiskFSM.Resume].
//
// Like a log that cannot be written, a commit that fails ends the process, with a panic: the other nodes go on, and
// after the next start this one.
type DiskFSM struct {
	table
	fn      DiskMachine
	dir     string
	options bbolt.Options

	applied uint64 // the last command that is in the state; 0 after a snapshot was restored
	handed  uint64 // the last command that raft has handed over: while it replays, below applied
	resumed bool
	journal journal

	mu     sync.RWMutex // of db
	db     *bbolt.DB
	number uint64         // of its file
	old    sync.WaitGroup // files that were replaced, and are still read
}

var _ raft.BatchingFSM = (*DiskFSM)(nil)

// OpenDisk opens the state machine whose files are in the folder dir, which it makes if need be, and which belongs to it
// alone. All nodes must be given the same config, which cannot be changed as long as the cluster lives.
// The error wraps [session.ErrConfig], [ErrOtherConfig], [session.ErrOtherMachine], [session.ErrCorrupt], or is of the file system. Another
// process that has the folder open is bbolt's ErrTimeout.
func OpenDisk(dir string, fn DiskMachine, config session.Config, opts *DiskOptions) (*DiskFSM, error) {
	f := &DiskFSM{fn: fn, dir: dir, options: boltOptions(opts)}
	if err := f.configure(config); err != nil { // before there are files
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

// Apply applies an entry, as a batch of its own.
func (f *DiskFSM) Apply(log *raft.Log) any { return f.ApplyBatch([]*raft.Log{log})[0] }

// ApplyBatch applies entries in one commit. The state machine is called for the requests that were not executed before.
// Entries that are in the state already are left out: they come after a start, and nobody waits for their answers.
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

// Resume has raft go on from the state on disk: call it before [raft.NewRaft] or [raft.RecoverCluster], with what that is given. It sets
// config.NoSnapshotRestoreOnStart where the state is not older than the newest snapshot; otherwise raft restores that. The
// log behind it is replayed, and what is in the state is left out.
//
// It refuses with [ErrAhead] a log that is shorter than the state.
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
