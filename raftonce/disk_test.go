package raftonce_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/everonce/everonce/raftonce"
	"github.com/everonce/everonce/session"
)

// count is the ledger, on disk.
func count(tx *bbolt.Tx, payload []byte) ([]byte, error) {
	b, err := tx.CreateBucketIfNotExists([]byte("ledger"))
	if err != nil {
		return nil, err
	}
	times := uint64(1)
	if before := b.Get(payload); before != nil {
		times += binary.BigEndian.Uint64(before)
	} else if _, err := b.NextSequence(); err != nil {
		return nil, err
	}
	if err := b.Put(payload, binary.BigEndian.AppendUint64(nil, times)); err != nil {
		return nil, err
	}
	if bytes.HasPrefix(payload, []byte("refuse")) {
		return nil, errors.New("refused")
	}
	return fmt.Appendf(nil, "%s %d", payload, b.Sequence()), nil
}

// counted is what the ledger on disk has.
func counted(t *testing.T, f *raftonce.DiskFSM) map[string]int {
	t.Helper()
	times := map[string]int{}
	err := f.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("ledger"))
		if b == nil {
			return nil
		}
		return b.ForEach(func(k, v []byte) error {
			times[string(k)] = int(binary.BigEndian.Uint64(v)) //nolint:gosec // small
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return times
}

func openDisk(t *testing.T, dir string, fn raftonce.DiskMachine, c session.Config) *raftonce.DiskFSM {
	t.Helper()
	f, err := raftonce.OpenDisk(dir, fn, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // the test may have closed it
	return f.Begun().Unsynced()
}

// table is the sessions' snapshot.
func table(t *testing.T, m *session.Machine) []byte {
	t.Helper()
	s, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	var b bytes.Buffer
	if _, err := s.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// copied is the folder of a process that dies now.
func copied(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if errors.Is(err, os.ErrNotExist) { // a file that was replaced, and is removed beside us
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, file.Name()), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// smallJournal has journals folded often.
func smallJournal(t *testing.T) {
	t.Helper()
	before := *raftonce.SmallJournal
	*raftonce.SmallJournal = 2000
	t.Cleanup(func() { *raftonce.SmallJournal = before })
}

func diskConfig() session.Config {
	return session.Config{Name: "ledger", Lease: 100, Window: 8, MaxResult: 40, MaxBytes: 60}
}

// expect compares a state machine on disk with one in memory.
func expect(t *testing.T, what string, got *raftonce.DiskFSM, want *raftonce.FSM, l *ledger) {
	t.Helper()
	if !bytes.Equal(table(t, got.Table()), table(t, want.Table())) {
		t.Errorf("%s: the sessions differ", what)
	}
	if times := counted(t, got); !maps.Equal(times, l.executed()) {
		t.Errorf("%s: executed %v, want %v", what, times, l.executed())
	}
}

// TestDiskAgreesWithMemory: one node on disk gets the log of one in memory in other batches, is stopped, started with a
// replay from anywhere, and restored from a snapshot of itself. Answers, sessions and state are the same.
func TestDiskAgreesWithMemory(t *testing.T) {
	smallJournal(t)
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 2))
		logs := entries(t, random)
		l := newLedger()
		memory := newFSM(t, l, diskConfig())
		want := make([]any, len(logs))
		for i, log := range logs {
			if log.Type == raft.LogCommand {
				want[i] = memory.Apply(log)
			}
		}
		dir := t.TempDir()
		disk := openDisk(t, dir, count, diskConfig())
		applied := 0
		for at := 0; at < len(logs); {
			n := min(1+random.IntN(40), len(logs)-at)
			for i, got := range disk.ApplyBatch(logs[at : at+n]) {
				if at+i >= applied && logs[at+i].Type == raft.LogCommand && fmt.Sprint(got) != fmt.Sprint(want[at+i]) {
					t.Fatalf("seed %d, entry %d: %+v on disk, %+v in memory", seed, at+i, got, want[at+i])
				}
			}
			at += n
			applied = max(applied, at)
			switch random.IntN(6) {
			case 0:
				if err := disk.Close(); err != nil {
					t.Fatal(err)
				}
				disk = openDisk(t, dir, count, diskConfig())
				at = random.IntN(at + 1)
			case 1:
				if at < applied { // no snapshot in a replay
					continue
				}
				whole := image(t, disk)
				dir = t.TempDir()
				disk = openDisk(t, dir, count, diskConfig())
				if err := disk.Restore(io.NopCloser(bytes.NewReader(whole))); err != nil {
					t.Fatal(err)
				}
				at = applied // raft goes on behind the snapshot
			}
		}
		expect(t, fmt.Sprintf("seed %d", seed), disk, memory, l)
	}
}

// crash is a process that has died, and what raft has then.
type crash struct {
	when, dir string
	snapshot  []byte // the newest one, nil for none
	index     uint64 // the snapshot's index: the index of its last entry
	adopt     bool   // a fault: the snapshot is taken as restored
}

// start does what raft does at a start: it restores the snapshot unless told otherwise, and replays the log behind it.
func (c *crash) start(t *testing.T, logs []*raft.Log, apply func(*raftonce.DiskFSM, []*raft.Log)) *raftonce.DiskFSM {
	t.Helper()
	f := openDisk(t, c.dir, count, diskConfig())
	snapshots, store := raft.NewInmemSnapshotStore(), raft.NewInmemStore()
	if err := store.StoreLogs(logs); err != nil {
		t.Fatal(err)
	}
	if c.snapshot != nil {
		_, transport := raft.NewInmemTransport("")
		to, err := snapshots.Create(1, c.index, 1, raft.Configuration{}, 0, transport)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := to.Write(c.snapshot); err != nil {
			t.Fatal(err)
		}
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
	}
	settings := raft.DefaultConfig()
	if err := f.Resume(settings, store, snapshots); err != nil {
		t.Fatalf("%s: %v", c.when, err)
	}
	if c.snapshot != nil && !settings.NoSnapshotRestoreOnStart && !c.adopt {
		if err := f.Restore(io.NopCloser(bytes.NewReader(c.snapshot))); err != nil {
			t.Fatalf("%s: %v", c.when, err)
		}
	}
	for part := range slices.Chunk(logs[c.index:], 30) {
		apply(f, part)
	}
	return f
}

// commands is entries without configurations: the index of logs[i] is i+1.
func commands(t *testing.T, seed uint64) (logs []*raft.Log) {
	t.Helper()
	for _, log := range entries(t, rand.New(rand.NewPCG(seed, 3))) {
		if log.Type == raft.LogCommand {
			logs = append(logs, log)
		}
	}
	return logs
}

// TestCrashPoints: wherever the process dies, what raft does at the next start neither doubles nor loses.
func TestCrashPoints(t *testing.T) {
	smallJournal(t)
	logs := commands(t, 1)
	l := newLedger()
	memory := newFSM(t, l, diskConfig())
	for _, log := range logs {
		memory.Apply(log)
	}

	var crashes []*crash
	dir := t.TempDir()
	die := func(when string) *crash {
		crashes = append(crashes, &crash{when: when, dir: copied(t, dir)})
		return crashes[len(crashes)-1]
	}
	calls := 0
	disk := openDisk(t, dir, func(tx *bbolt.Tx, payload []byte) ([]byte, error) {
		if calls++; calls%17 == 0 {
			die(fmt.Sprintf("in the middle of a batch, at execution %d", calls))
		}
		return count(tx, payload)
	}, diskConfig())
	var half []byte
	for at := 0; at < len(logs); at += 20 {
		disk.ApplyBatch(logs[at : at+20])
		die(fmt.Sprintf("between the commit of entry %d and raft's next step", at+20))
		if at == 200 {
			half = image(t, disk)
		}
	}

	// A follower with less is sent the snapshot, which raft has stored before it is restored.
	dir = t.TempDir()
	disk = openDisk(t, dir, count, diskConfig())
	disk.ApplyBatch(logs[:60])
	for at := 0; at <= len(half); at += len(half) / 5 {
		parts := io.MultiReader(bytes.NewReader(half[:at]), during(func() {
			c := die(fmt.Sprintf("with %d of %d bytes of a snapshot restored", at, len(half)))
			c.snapshot, c.index = half, 220
		}), bytes.NewReader(half[at:]))
		if err := disk.Restore(io.NopCloser(parts)); err != nil {
			t.Fatal(err)
		}
	}
	for _, when := range []string{"a snapshot is restored", "an entry is applied behind a snapshot"} {
		c := die("when " + when)
		c.snapshot, c.index = half, 220
		disk.Apply(logs[220])
	}

	for _, c := range crashes {
		f := c.start(t, logs, func(f *raftonce.DiskFSM, logs []*raft.Log) { f.ApplyBatch(logs) })
		expect(t, c.when, f, memory, l)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if files, err := filepath.Glob(filepath.Join(c.dir, "*")); err != nil || len(files) != 1 {
			t.Errorf("%s: there remain %v, %v", c.when, files, err)
		}
	}
	if len(crashes) < 25 {
		t.Errorf("only %d crashes", len(crashes))
	}
}

// during is an empty reader that calls a function.
type during func()

func (d during) Read([]byte) (int, error) {
	d()
	return 0, io.EOF
}

// TestPlantedBugsOnDisk: the comparison with a node in memory sees these faults.
func TestPlantedBugsOnDisk(t *testing.T) {
	logs := commands(t, 1)
	l := newLedger()
	memory := newFSM(t, l, diskConfig())
	for _, log := range logs {
		memory.Apply(log)
	}
	differs := func(t *testing.T, f *raftonce.DiskFSM) bool {
		t.Helper()
		return !bytes.Equal(table(t, f.Table()), table(t, memory.Table())) || !maps.Equal(counted(t, f), l.executed())
	}
	for _, fault := range []string{raftonce.IndexApart, raftonce.SessionsApart, raftonce.NoSkip} {
		t.Run(fault, func(t *testing.T) {
			var crashes []*crash
			dir := t.TempDir()
			disk := openDisk(t, dir, count, diskConfig())
			for part := range slices.Chunk(logs, 30) {
				disk.PlantedApply(fault, part, func() { crashes = append(crashes, &crash{dir: copied(t, dir)}) })
			}
			crashes = append(crashes, &crash{dir: copied(t, dir)})
			for _, c := range crashes {
				if differs(t, c.start(t, logs, func(f *raftonce.DiskFSM, logs []*raft.Log) { f.PlantedApply(fault, logs, func() {}) })) {
					return
				}
			}
			t.Errorf("in %d crashes the fault is not seen", len(crashes))
		})
	}
	t.Run("a snapshot that was never restored is adopted", func(t *testing.T) {
		leader := openDisk(t, t.TempDir(), count, diskConfig())
		leader.ApplyBatch(logs[:220])
		c := &crash{dir: t.TempDir(), snapshot: image(t, leader), index: 220, adopt: true}
		behind := openDisk(t, c.dir, count, diskConfig())
		behind.ApplyBatch(logs[:60])
		if err := behind.Close(); err != nil {
			t.Fatal(err)
		}
		if !differs(t, c.start(t, logs, func(f *raftonce.DiskFSM, logs []*raft.Log) { f.ApplyBatch(logs) })) {
			t.Error("the fault is not seen")
		}
	})
}
