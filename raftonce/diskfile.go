package raftonce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/everonce/everonce/session"
)

// The files of a folder: the database, which is the file with the highest number, and the received part of a snapshot.
// A complete snapshot gets the next number, so that a crash leaves the old state or the new one. While the database is
// open with NoSync or NoGrowSync a marker file exists: if it still exists at the next start, the database may be
// damaged.
const (
	stateFile = "state-%020d.db"
	incoming  = "incoming"
	unsynced  = "unsynced"
)

func (f *DiskFSM) file(number uint64) string {
	return filepath.Join(f.dir, fmt.Sprintf(stateFile, number))
}

func boltOptions(opts *DiskOptions) bbolt.Options {
	o := *bbolt.DefaultOptions
	o.FreelistType = bbolt.FreelistMapType
	if opts != nil && opts.Bolt != nil {
		o = *opts.Bolt
	}
	if o.Timeout == 0 { // bbolt would wait for ever
		o.Timeout = time.Second
	}
	if o.InitialMmapSize == 0 && runtime.GOOS != "windows" && bits.UintSize == 64 { // Windows would make the file this large
		plenty := int64(64 << 30) // a constant int would not compile on 32 bits
		o.InitialMmapSize = int(plenty)
	}
	return o
}

// synced returns the options of a database that survives a crash.
func synced(o bbolt.Options) *bbolt.Options {
	o.NoSync, o.NoGrowSync = false, false
	return &o
}

// isDurable reports whether the database can be trusted after a crash.
func (f *DiskFSM) isDurable() bool { return !f.options.NoSync && !f.options.NoGrowSync }

// open opens the newest file, or creates one, and removes leftovers of a crash.
func (f *DiskFSM) open() error {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(f.dir) // sorted
	if err != nil {
		return err
	}
	var left []string
	for _, entry := range entries {
		number := uint64(0)
		if _, err := fmt.Sscanf(entry.Name(), stateFile, &number); err != nil || entry.Name() != fmt.Sprintf(stateFile, number) {
			continue // not ours, for example a copy
		}
		if number > f.number {
			left = append(left, f.file(f.number))
		}
		f.number = number
	}
	if err := f.discard(f.file(f.number)); err != nil {
		return err
	}
	if f.db, err = bbolt.Open(f.file(f.number), 0o600, synced(f.options)); err != nil {
		return err
	}
	if !f.isDurable() { // only now: no other process has it open
		if err := f.mark(); err != nil {
			return errors.Join(err, f.db.Close())
		}
		f.db.NoSync, f.db.NoGrowSync = f.options.NoSync, f.options.NoGrowSync
	}
	for _, path := range append(left, filepath.Join(f.dir, incoming)) {
		if err := remove(path); err != nil {
			return errors.Join(err, f.db.Close())
		}
	}
	err = f.db.Update(func(tx *bbolt.Tx) (err error) {
		var m *session.Machine
		if m, f.applied, err = f.journal.load(tx, f.config); err != nil {
			return err
		}
		if m == nil {
			m = f.machine
			err = f.journal.fold(tx, m, 0)
		}
		f.use(m)
		return err
	})
	if err != nil {
		return errors.Join(err, f.db.Close())
	}
	return nil
}

// discard removes a database that may be damaged.
func (f *DiskFSM) discard(path string) error {
	mark := filepath.Join(f.dir, unsynced)
	switch _, err := os.Stat(mark); {
	case err == nil:
		// No other process may have it open. The file may be damaged, so only its head is read.
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: f.options.Timeout})
		if errors.Is(err, bolterrors.ErrTimeout) {
			return err
		}
		if err == nil {
			if err := db.Close(); err != nil {
				return err
			}
		}
		return errors.Join(remove(path), remove(mark))
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	return nil
}

// mark creates the marker of a database that may become damaged.
func (f *DiskFSM) mark() error {
	file, err := os.Create(filepath.Join(f.dir, unsynced))
	if err != nil {
		return err
	}
	folder, err := os.Open(f.dir)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	return errors.Join(file.Sync(), file.Close(), folder.Sync(), folder.Close())
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Close closes the database after the last read has ended. Shut raft down first, and wait for it:
// raft.Shutdown().Error().
func (f *DiskFSM) Close() error {
	f.old.Wait()
	err := f.db.Sync()
	if err == nil && !f.isDurable() {
		err = remove(filepath.Join(f.dir, unsynced)) // while no other process can have it open
	}
	return errors.Join(err, f.db.Close())
}

// The format of snapshots: the database, after its length in 64 bits, little endian.
const diskMagic = "everonce-raftdisk\x01"

type diskSnapshot struct{ tx *bbolt.Tx }

// Snapshot returns the current state, with the sessions in it. It is written while entries are applied. While raft
// replays entries that are already in the state it returns an error: raft would give the snapshot a lower index, and a
// node that restored it would apply entries twice.
func (f *DiskFSM) Snapshot() (raft.FSMSnapshot, error) {
	if f.handed < f.applied {
		return nil, fmt.Errorf("raftonce: no snapshot before raft has replayed entry %d, which is in the state (raft is at entry %d)", f.applied, f.handed)
	}
	tx, err := f.begin()
	if err != nil {
		return nil, err
	}
	return diskSnapshot{tx}, nil
}

func (s diskSnapshot) Persist(sink raft.SnapshotSink) error {
	defer s.Release()                                                                              // raft.RecoverCluster does not release it
	_, err := sink.Write(binary.LittleEndian.AppendUint64([]byte(diskMagic), uint64(s.tx.Size()))) //nolint:gosec // not negative
	if err == nil {
		_, err = s.tx.WriteTo(sink)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("raftonce: write a snapshot: %w", err), sink.Cancel())
	}
	return sink.Close()
}

func (s diskSnapshot) Release() { _ = s.tx.Rollback() } //nolint:errcheck // it fails only if it was released before

// Restore replaces the state by a snapshot, atomically: after a crash it is the old one or the new one. The error wraps
// [ErrSnapshot], [ErrOtherConfig], an error of [session.Restore] or of the file system; the old state then remains.
func (f *DiskFSM) Restore(from io.ReadCloser) error {
	temp := filepath.Join(f.dir, incoming)
	if err := receive(from, temp); err != nil {
		return fmt.Errorf("raftonce: receive a snapshot: %w", err)
	}
	var j journal
	machine, err := f.check(temp, &j)
	if err == nil {
		err = os.Rename(temp, f.file(f.number+1))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("raftonce: restore a snapshot: %w", err), os.Remove(temp))
	}
	db, err := bbolt.Open(f.file(f.number+1), 0o600, &f.options)
	if err != nil {
		return fmt.Errorf("raftonce: restore a snapshot: %w", err)
	}
	f.mu.Lock()
	old, number := f.db, f.number
	f.db, f.number = db, number+1
	f.mu.Unlock()
	f.old.Go(func() { // a snapshot may be reading it, which waits for raft, which waits for this call
		_ = old.Close()               //nolint:errcheck // nothing was written to it since the last commit
		_ = os.Remove(f.file(number)) //nolint:errcheck // or the next start does
	})
	f.journal, f.applied, f.handed = j, 0, 0
	f.use(machine)
	return nil
}

// receive writes a snapshot's database to a file.
func receive(from io.Reader, path string) error {
	head := make([]byte, len(diskMagic)+8)
	if _, err := io.ReadFull(from, head); err != nil || string(head[:len(diskMagic)]) != diskMagic {
		return errors.Join(fmt.Errorf("%w on disk, or its version is unknown", ErrSnapshot), err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) //nolint:gosec // of our folder
	if err != nil {
		return err
	}
	_, err = io.CopyN(file, from, int64(binary.LittleEndian.Uint64(head[len(diskMagic):]))) //nolint:gosec // a negative one copies nothing
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: it is truncated", ErrSnapshot)
	}
	return errors.Join(err, file.Sync(), file.Close())
}

// check returns the machine of a received database, and marks its applied index as unknown: raft knows its index, and
// replays everything after it.
func (f *DiskFSM) check(path string, j *journal) (m *session.Machine, err error) {
	db, err := bbolt.Open(path, 0o600, synced(f.options))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		if m, _, err = j.load(tx, f.config); err != nil {
			return err
		}
		if m == nil {
			return fmt.Errorf("%w: it has no sessions", ErrSnapshot)
		}
		return tx.Bucket(ours).Put(keyApplied, key('u', 0)[1:])
	})
	return m, errors.Join(err, db.Close())
}
