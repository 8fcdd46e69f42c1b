package raftonce_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/everonce/everonce/raftonce"
	"github.com/everonce/everonce/session"
)

// requests is a log: a registration, and a request for each payload.
func requests(t *testing.T, payloads ...string) (logs []*raft.Log) {
	t.Helper()
	add := func(c *session.Command) {
		data, err := raftonce.NewEntry(diskConfig(), int64(len(logs)), c)
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, &raft.Log{Index: uint64(len(logs) + 1), Type: raft.LogCommand, Data: data})
	}
	add(&session.Command{Op: session.Register, Nonce: nonce})
	for i, payload := range payloads {
		add(request(1, uint64(i+1), payload))
	}
	return logs
}

// TestErrorUndoes: what a request wrote before it failed is gone, and nothing else of its batch. The error is kept.
func TestErrorUndoes(t *testing.T) {
	logs := requests(t, "refuse 1", "a", "b", "refuse 2", "a", "refuse 3")
	want := map[string]int{"a": 2, "b": 1}
	var images [][]byte
	for _, size := range []int{1, 3, len(logs)} {
		dir := t.TempDir()
		f := openDisk(t, dir, count, diskConfig())
		for at := 0; at < len(logs); at += size {
			f.ApplyBatch(logs[at:min(at+size, len(logs))])
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		f = openDisk(t, dir, count, diskConfig())
		if got := counted(t, f); !maps.Equal(got, want) {
			t.Errorf("in batches of %d: executed %v, want %v", size, got, want)
		}
		images = append(images, table(t, f.Table()))
		again := requests(t, "refuse 1", "a", "b", "refuse 2")[4]
		again.Index = 100
		a, _ := f.Apply(again).(session.Reply)
		var failure *raftonce.FailedError
		if _, err := raftonce.Result(a); !errors.As(err, &failure) || failure.Message != "refused" || !a.Replayed {
			t.Errorf("the failed request gets %+v, %v", a, err)
		}
	}
	if !bytes.Equal(images[0], images[1]) || !bytes.Equal(images[1], images[2]) {
		t.Error("the sessions depend on the batches")
	}
}

// panicked returns what a function panicked with.
func panicked(fn func()) (p any) {
	defer func() { p = recover() }()
	fn()
	return nil
}

// TestCommitThatFails ends the process, and the next one loses and doubles nothing.
func TestCommitThatFails(t *testing.T) {
	logs := requests(t, "a", "b", strings.Repeat("c", 30_000), "a")
	dir := t.TempDir()
	full := *bbolt.DefaultOptions
	full.MaxSize = 60_000
	f, err := raftonce.OpenDisk(dir, count, diskConfig(), &raftonce.DiskOptions{Bolt: &full})
	if err != nil {
		t.Fatal(err)
	}
	f.Begun().ApplyBatch(logs[:3])
	err, _ = panicked(func() { f.ApplyBatch(logs[3:]) }).(error)
	if !errors.Is(err, bolterrors.ErrMaxSizeReached) {
		t.Fatalf("on a full disk it panics with %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f = openDisk(t, dir, count, diskConfig())
	f.ApplyBatch(logs)
	if got := counted(t, f); got["a"] != 2 || got["b"] != 1 || len(got) != 3 {
		t.Errorf("executed %v", got)
	}
}

// TestMisuseOfDisk fails at once.
func TestMisuseOfDisk(t *testing.T) {
	f, err := raftonce.OpenDisk(t.TempDir(), count, diskConfig(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if p := panicked(func() { f.Apply(requests(t)[0]) }); !strings.Contains(fmt.Sprint(p), "Resume") {
		t.Errorf("without Resume: %v", p)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	calls := 0
	f = openDisk(t, t.TempDir(), func(_ *bbolt.Tx, payload []byte) ([]byte, error) {
		if string(payload) == "refuse" {
			return nil, errors.New("refused")
		}
		calls++
		return fmt.Append(nil, calls), nil
	}, diskConfig())
	if p := panicked(func() { f.ApplyBatch(requests(t, "a", "refuse")) }); !strings.Contains(fmt.Sprint(p), "not deterministic") {
		t.Errorf("a state machine that answers otherwise when it is called again: %v", p)
	}
	if _, err := raftonce.OpenDisk(t.TempDir(), count, session.Config{}, nil); !errors.Is(err, session.ErrConfig) {
		t.Error(err)
	}
}

// TestResume says when raft restores its newest snapshot at the start, and refuses a log that is not the state's.
func TestResume(t *testing.T) {
	logs := requests(t, "a", "b", "c")
	for _, tc := range []struct {
		applied, last int    // entries in the state, and in the log
		newest        uint64 // snapshot
		skip          bool
		err           error
	}{
		{0, 0, 0, true, nil}, // there is no database
		{0, 4, 0, true, nil},
		{4, 4, 2, true, nil},
		{4, 4, 4, true, nil},
		{4, 0, 4, true, nil}, // all of the log is in the snapshot
		{3, 3, 4, false, nil},
		{0, 0, 4, false, nil},
		{4, 3, 2, false, raftonce.ErrAhead},
		{4, 0, 0, false, raftonce.ErrAhead},
	} {
		f := openDisk(t, t.TempDir(), count, diskConfig())
		for _, log := range logs[:tc.applied] {
			f.Apply(log)
		}
		store, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
		if err := store.StoreLogs(logs[:tc.last]); err != nil {
			t.Fatal(err)
		}
		if tc.newest > 0 {
			_, transport := raft.NewInmemTransport("")
			if _, err := snapshots.Create(1, tc.newest, 1, raft.Configuration{}, 0, transport); err != nil {
				t.Fatal(err)
			}
		}
		var settings raft.Config
		if err := f.Resume(&settings, store, snapshots); !errors.Is(err, tc.err) || settings.NoSnapshotRestoreOnStart != tc.skip {
			t.Errorf("%+v: %v, %t", tc, err, settings.NoSnapshotRestoreOnStart)
		}
	}
}

// TestDiskSnapshotThatIsNone is refused with a typed error, and the state is unchanged.
func TestDiskSnapshotThatIsNone(t *testing.T) {
	f := openDisk(t, t.TempDir(), count, diskConfig())
	f.ApplyBatch(requests(t, "a"))
	whole := image(t, f)
	other := openDisk(t, t.TempDir(), count, session.Config{Name: "other", Lease: lease})
	empty := filepath.Join(t.TempDir(), "empty")
	db, err := bbolt.Open(empty, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(empty)
	if err != nil {
		t.Fatal(err)
	}
	head := len("everonce-raftdisk\x01")
	size := []byte{0, byte(len(file) >> 8), byte(len(file) >> 16), 0, 0, 0, 0, 0}
	for what, tc := range map[string]struct {
		snapshot []byte
		err      error
	}{
		"nothing":                    {nil, raftonce.ErrSnapshot},
		"its head":                   {whole[:head], raftonce.ErrSnapshot},
		"its head and length":        {whole[:head+8], raftonce.ErrSnapshot},
		"half of it":                 {whole[:len(whole)/2], raftonce.ErrSnapshot},
		"all but a byte":             {whole[:len(whole)-1], raftonce.ErrSnapshot},
		"of a node in memory":        {image(t, newFSM(t, newLedger(), diskConfig())), raftonce.ErrSnapshot},
		"of another machine":         {image(t, other), session.ErrOtherMachine},
		"a database without session": {append(append(bytes.Clone(whole[:head]), size...), file...), raftonce.ErrSnapshot},
		"no database":                {append(bytes.Clone(whole[:head+8]), make([]byte, len(whole)-head-8)...), raftonce.ErrSnapshot},
	} {
		if err := f.Restore(io.NopCloser(bytes.NewReader(tc.snapshot))); !errors.Is(err, tc.err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if !bytes.Equal(image(t, f), whole) {
		t.Error("the state has changed")
	}
	disk := fullDisk{left: len(whole) / 2}
	s, err := f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	if err := s.Persist(struct{ raft.SnapshotSink }{&disk}); !errors.Is(err, io.ErrShortWrite) || disk.closed || !disk.canceled {
		t.Errorf("a snapshot that cannot be written: %v, closed %t, canceled %t", err, disk.closed, disk.canceled)
	}
}

// TestSnapshotBesideOthers: a snapshot has the state of its time, although entries are applied and the state is
// replaced meanwhile. Neither waits for the snapshot to be written: raft would wait for ever.
func TestSnapshotBesideOthers(t *testing.T) {
	logs := requests(t, "a", "b", "c")
	f := openDisk(t, t.TempDir(), count, diskConfig())
	f.ApplyBatch(logs[:2])
	want := image(t, f)
	s, err := f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	f.ApplyBatch(logs[2:])
	if err := f.Restore(io.NopCloser(bytes.NewReader(want))); err != nil {
		t.Fatal(err)
	}
	if got := counted(t, f); len(got) != 1 {
		t.Errorf("after the restoration there is %v", got)
	}
	var b sink
	if err := s.Persist(&b); err != nil {
		t.Fatal(err)
	}
	s.Release()
	if !bytes.Equal(b.Bytes(), want) {
		t.Error("the snapshot has the state of another time")
	}
}

// TestGrowthBesideSnapshot: a database grows while a snapshot is written, also where the options do not think of that.
func TestGrowthBesideSnapshot(t *testing.T) {
	f, err := raftonce.OpenDisk(t.TempDir(), count, diskConfig(), &raftonce.DiskOptions{Bolt: &bbolt.Options{}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.Begun().Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	applied := make(chan struct{})
	go func() {
		f.ApplyBatch(requests(t, strings.Repeat("a", 30_000), strings.Repeat("b", 30_000), strings.Repeat("c", 30_000)))
		close(applied)
	}()
	select {
	case <-applied:
	case <-time.After(3 * time.Minute):
		t.Error("entries wait for the snapshot")
	}
	s.Release()
	<-applied
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestPanicInView: it leaves nothing open, for which Close would wait for ever.
func TestPanicInView(t *testing.T) {
	f, err := raftonce.OpenDisk(t.TempDir(), count, diskConfig(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if p := panicked(func() { _ = f.View(func(*bbolt.Tx) error { panic("a bug") }) }); p != "a bug" {
		t.Error(p)
	}
	if n := f.OpenReads(); n != 0 {
		t.Fatalf("%d transactions are open", n)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestCopyInTheFolder is not taken for the state: that would be removed as the older one.
func TestCopyInTheFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "state-00000000000000000001.db.bak"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		f := openDisk(t, dir, count, diskConfig())
		if got := counted(t, f); len(got) != i {
			t.Errorf("at start %d there is %v", i, got)
		}
		f.ApplyBatch(requests(t, "a"))
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*.db")); err != nil || len(files) != 1 || filepath.Base(files[0]) != "state-00000000000000000000.db" {
		t.Errorf("there are %v, %v", files, err)
	}
}

// TestSnapshotInReplay: Snapshot fails while raft replays entries that are in the state. Its index would be lower than
// the last entry in it.
func TestSnapshotInReplay(t *testing.T) {
	logs := requests(t, "a", "b")
	dir := t.TempDir()
	f := openDisk(t, dir, count, diskConfig())
	f.ApplyBatch(append(slices.Clone(logs), &raft.Log{Index: 4, Type: raft.LogConfiguration}))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f = openDisk(t, dir, count, diskConfig())
	store := raft.NewInmemStore()
	if err := store.StoreLogs(logs); err != nil {
		t.Fatal(err)
	}
	if err := f.Resume(raft.DefaultConfig(), store, raft.NewInmemSnapshotStore()); err != nil {
		t.Fatal(err)
	}
	for _, log := range logs {
		if s, err := f.Snapshot(); err == nil {
			s.Release()
			t.Errorf("there is a snapshot before entry %d is replayed", log.Index)
		}
		f.Apply(log)
	}
	image(t, f) // also without the configuration, which raft.RecoverCluster does not hand over
}

// TestDatabaseWithoutSync: it is trusted only if it was closed. Else the next start has an empty one.
func TestDatabaseWithoutSync(t *testing.T) {
	for name, bolt := range map[string]bbolt.Options{"NoSync": {NoSync: true}, "NoGrowSync": {NoGrowSync: true}} {
		t.Run(name, func(t *testing.T) {
			bolt.Timeout = time.Millisecond
			crashWithoutSync(t, &raftonce.DiskOptions{Bolt: &bolt})
		})
	}
}

// TestOpenedTwice fails, although bbolt would wait for ever, and the state is trusted as before.
func TestOpenedTwice(t *testing.T) {
	dir := t.TempDir()
	f := openDisk(t, dir, count, diskConfig())
	f.ApplyBatch(requests(t, "a"))
	fast := &raftonce.DiskOptions{Bolt: &bbolt.Options{NoSync: true}}
	if _, err := raftonce.OpenDisk(dir, count, diskConfig(), fast); !errors.Is(err, bolterrors.ErrTimeout) {
		t.Error(err)
	}
	if got := counted(t, openDisk(t, copied(t, dir), count, diskConfig())); len(got) != 1 {
		t.Errorf("after a crash there is %v", got)
	}
}

func crashWithoutSync(t *testing.T, fast *raftonce.DiskOptions) {
	t.Helper()
	logs := requests(t, "a", "b")
	dir := t.TempDir()
	open := func(dir string, opts *raftonce.DiskOptions) *raftonce.DiskFSM {
		t.Helper()
		f, err := raftonce.OpenDisk(dir, count, diskConfig(), opts)
		if err != nil {
			t.Fatal(err)
		}
		return f.Begun()
	}
	f := open(dir, fast)
	f.ApplyBatch(logs)
	if _, err := raftonce.OpenDisk(dir, count, diskConfig(), fast); !errors.Is(err, bolterrors.ErrTimeout) {
		t.Errorf("opened for the second time: %v", err)
	}
	for _, opts := range []*raftonce.DiskOptions{fast, nil} {
		crashed := open(copied(t, dir), opts)
		if got := counted(t, crashed); len(got) != 0 || crashed.Sessions() != 0 {
			t.Errorf("after a crash there is %v", got)
		}
		crashed.ApplyBatch(logs)
		if got := counted(t, crashed); len(got) != 2 {
			t.Errorf("after the replay there is %v", got)
		}
		if err := crashed.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f = open(dir, nil)
	if got := counted(t, f); len(got) != 2 || f.Sessions() != 1 {
		t.Errorf("closed and opened, there is %v", got)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedJournal is noticed at the start.
func TestDamagedJournal(t *testing.T) {
	dir := t.TempDir()
	f := openDisk(t, dir, count, diskConfig())
	f.ApplyBatch(requests(t, "a", "b"))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := raftonce.OpenDisk(dir, count, session.Config{Name: "other", Lease: lease}, nil); !errors.Is(err, session.ErrOtherMachine) {
		t.Errorf("of another machine: %v", err)
	}
	if _, err := raftonce.OpenDisk(dir, count, session.Config{Name: "ledger", Lease: lease}, nil); !errors.Is(err, raftonce.ErrOtherConfig) {
		t.Errorf("of another Config: %v", err)
	}
	damaged := 0
	for _, damage := range []func(k, v []byte) []byte{
		func(_, v []byte) []byte { return v[:len(v)-1] },
		func(_, v []byte) []byte { return v[:3] },
		func(k, v []byte) []byte { // a result of what was not executed
			if k[0] != 't' {
				return v[:2]
			}
			first := 4 + int(v[0])
			return append(v, v[first:first+4+int(v[first])]...)
		},
	} {
		for kind := range 3 {
			path := filepath.Join(copied(t, dir), "state-00000000000000000000.db")
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			err = db.Update(func(tx *bbolt.Tx) error {
				b := tx.Bucket([]byte("everonce"))
				k, v := b.Cursor().Seek([]byte{"stu"[kind]})
				return b.Put(bytes.Clone(k), damage(k, bytes.Clone(v)))
			})
			if err := errors.Join(err, db.Close()); err != nil {
				t.Fatal(err)
			}
			if f, err := raftonce.OpenDisk(filepath.Dir(path), count, diskConfig(), nil); errors.Is(err, session.ErrCorrupt) {
				damaged++
			} else {
				t.Errorf("with damage in %q: %v", "stu"[kind], err)
				_ = f.Close()
			}
		}
	}
	if damaged != 9 {
		t.Errorf("%d damages were seen", damaged)
	}
}
