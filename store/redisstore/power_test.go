package redisstore_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/redisstore"
)

// A kill shows nothing of a loss of power: what a process has written survives it in the system's memory. Here the
// power is lost: of each file only what was synced is left. With appendfsync always that is all that was acknowledged;
// with everysec and with no it is not, and operations whose records are lost are new.
func TestALossOfPower(t *testing.T) {
	t.Parallel()
	for fsync, loses := range map[string]bool{"always": false, "everysec": true, "no": true} {
		t.Run(fsync, func(t *testing.T) {
			t.Parallel()
			lost := 0
			for try := 0; try == 0 || loses && lost == 0 && try < 20; try++ { // everysec may just have synced
				lost += lossOfPower(t, fsync)
			}
			if (lost > 0) != loses {
				t.Errorf("%d acknowledged operations were lost, want some: %v", lost, loses)
			}
			t.Logf("appendfsync %s: %d acknowledged operations were lost", fsync, lost)
		})
	}
}

// lossOfPower returns how many acknowledged operations a loss of power has lost.
func lossOfPower(t *testing.T, fsync string) (lost int) {
	t.Helper()
	p, notes := startNotedServer(t, fsync)
	r, err := everonce.NewReceiver(newStore(t, p.client(t), &redisstore.Options{}), everonce.Refuse, nil)
	noErr(t, err)
	noErr(t, r.Ready(t.Context()))
	do := func(n int) everonce.Result[int] {
		t.Helper()
		res, err := everonce.Do(t.Context(), r, everonce.Key{Scope: "power", ID: strconv.Itoa(n)}, func(context.Context, *everonce.Attempt) (int, error) { return n, nil })
		noErr(t, err)
		return res
	}
	const least = 20
	var written []int64 // how long the log was when the operation was acknowledged
	for n := 0; n < least || fsync == "everysec" && notes.synced(t, p.log(t)) < written[0]; n++ {
		do(n)
		written = append(written, size(t, p.log(t)))
	}
	p.kill(t)
	left := notes.synced(t, p.log(t))
	notes.losePower(t, p.dir)
	p.restart(t)

	s := newStore(t, p.client(t), &redisstore.Options{})
	for n, end := range written {
		key := everonce.Key{Scope: "power", ID: strconv.Itoa(n)}
		got, err := s.Get(t.Context(), driver.GetRequest{ID: key.RecordID()})
		noErr(t, err)
		kept := got.Found && got.Record.State == driver.StateCompleted
		if kept && (end > left || lost > 0) || !kept && end <= left && fsync != "everysec" { // which writes late while it syncs
			t.Fatalf("operation %d, which ended at byte %d of the log: kept %v; %d bytes were synced, and %d operations before it lost", n, end, kept, left, lost)
		}
		if !kept {
			lost++
		}
	}
	if lost > 1 { // the latest one is gone without a trace; the first that was lost may have left its claim
		r, err := everonce.NewReceiver(s, everonce.Refuse, nil)
		noErr(t, err)
		n := len(written) - 1
		res, err := everonce.Do(t.Context(), r, everonce.Key{Scope: "power", ID: strconv.Itoa(n)}, func(context.Context, *everonce.Attempt) (int, error) { return n, nil })
		if err != nil || res.Outcome != everonce.Executed {
			t.Errorf("an operation whose record is lost: %v, %v; want it new", res.Outcome, err)
		}
	}
	return lost
}

// With everysec a server that is killed while it waits for a slow disk loses what it has acknowledged meanwhile, though
// its machine goes on: it does not even write to the log then. With always it does not acknowledge before it has
// synced.
func TestAKillWhileTheDiskIsSlow(t *testing.T) {
	t.Parallel()
	lost := false
	for try := 0; !lost && try < 20; try++ { // after two seconds it writes all the same
		p, notes := startNotedServer(t, "everysec")
		s := newStore(t, p.client(t), &redisstore.Options{})
		notes.put(t, "slow")
		for n := 0; !notes.has("syncing"); n++ {
			claimed(t, s, everonce.Key{Scope: "slow", ID: strconv.Itoa(n)})
		}
		rec := claimed(t, s, testKey)
		_, err := s.Complete(t.Context(), completionOf(&rec, "v"))
		noErr(t, err)
		p.kill(t)
		noErr(t, os.Remove(filepath.Join(string(notes), "slow")))
		p.restart(t)
		got, err := newStore(t, p.client(t), &redisstore.Options{}).Get(t.Context(), driver.GetRequest{ID: rec.ID})
		noErr(t, err)
		lost = !got.Found || got.Record.State != driver.StateCompleted
	}
	if !lost {
		t.Error("nothing was lost: the documentation says otherwise")
	}

	p, notes := startNotedServer(t, "always")
	s := newStore(t, p.client(t), &redisstore.Options{})
	rec := claimed(t, s, testKey)
	notes.put(t, "slow")
	var done sync.WaitGroup
	done.Go(func() {
		if _, err := s.Complete(t.Context(), completionOf(&rec, "v")); err == nil {
			t.Error("a completion is acknowledged before it is synced")
		}
	})
	for !notes.has("syncing") {
		runtime.Gosched()
	}
	p.kill(t)
	done.Wait()
}

// syncNotes is the folder in which a server's files are noted when they are synced.
type syncNotes string

// startNotedServer starts a server whose syncs are noted.
func startNotedServer(t *testing.T, fsync string) (*process, syncNotes) {
	t.Helper()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	lib := filepath.Join(t.TempDir(), "power.so")
	out, err := exec.Command(cc, "-shared", "-fPIC", "-o", lib, "testdata/power.c", "-ldl").CombinedOutput() //nolint:gosec // the test's own arguments
	if err != nil {
		t.Fatalf("no C compiler, which the race detector needs too: set CC, or install gcc: %v\n%s", err, out)
	}
	notes := syncNotes(t.TempDir())
	p := startServerIn(t, []string{"LD_PRELOAD=" + lib, "SYNCED=" + string(notes)}, "--appendfsync", fsync)
	if all, err := os.ReadDir(string(notes)); err != nil || len(all) == 0 {
		t.Fatalf("no sync of the server's is noted, %v", err)
	}
	return p, notes
}

func (n syncNotes) put(t *testing.T, name string) {
	t.Helper()
	noErr(t, os.WriteFile(filepath.Join(string(n), name), nil, 0o600))
}

func (n syncNotes) has(name string) bool {
	_, err := os.Stat(filepath.Join(string(n), name))
	return err == nil
}

// log is the file that the server appends to.
func (p *process) log(t *testing.T) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(p.dir, "appendonlydir", "*.incr.aof"))
	if err != nil || len(all) != 1 {
		t.Fatalf("the append-only files are %q, %v", all, err)
	}
	return all[0]
}

func size(t *testing.T, file string) int64 {
	t.Helper()
	info, err := os.Stat(file)
	noErr(t, err)
	return info.Size()
}

// synced returns how much of a file is on the disk for certain.
func (n syncNotes) synced(t *testing.T, file string) int64 {
	t.Helper()
	info, err := os.Stat(file)
	noErr(t, err)
	note, err := os.ReadFile(filepath.Join(string(n), fmt.Sprint(info.Sys().(*syscall.Stat_t).Ino)))
	if os.IsNotExist(err) || err == nil && len(note) == 0 {
		return 0
	}
	noErr(t, err)
	bytes, err := strconv.ParseInt(string(note), 10, 64)
	noErr(t, err)
	return min(bytes, info.Size())
}

// losePower leaves of each file what was synced.
func (n syncNotes) losePower(t *testing.T, dir string) {
	t.Helper()
	noErr(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		return os.Truncate(path, n.synced(t, path))
	}))
}
