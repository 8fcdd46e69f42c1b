package raftonce_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/everonce/everonce/raftonce"
	"github.com/everonce/everonce/session"
)

// durable is a node whose log, snapshots and perhaps state machine are files.
type durable struct {
	*raftonce.Node
	t         *testing.T
	raft      *raft.Raft
	fsm       raftonce.StateMachine
	executed  func() map[string]int
	skipped   bool // the newest snapshot was not restored at the start
	transport *raft.InmemTransport
	other     *durable // that may be the leader
	ends      []func() error
}

// How a node starts: as the first of a cluster, or joining one; or it goes on alone.
type beginning int

const (
	first beginning = iota
	joining
	recovering
)

// startDurable starts a node with the files of a folder.
func startDurable(t *testing.T, dir string, onDisk bool, how beginning) *durable {
	t.Helper()
	d := &durable{t: t}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	log, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(dir, "log"), NoSync: true}) // what this process writes, it reads
	if err != nil {
		t.Fatal(err)
	}
	d.ends = append(d.ends, log.Close)
	snapshots, err := raft.NewFileSnapshotStore(dir, 2, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	_, d.transport = raft.NewInmemTransport(raft.ServerAddress(filepath.Base(dir)))
	settings := raft.DefaultConfig()
	settings.LocalID = raft.ServerID(d.transport.LocalAddr())
	settings.LogOutput = io.Discard
	settings.HeartbeatTimeout, settings.ElectionTimeout, settings.LeaderLeaseTimeout = 300*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond
	settings.TrailingLogs = 3
	settings.SnapshotInterval = time.Hour // only when a test says so

	c := session.Config{Name: "ledger", Lease: time.Hour}
	if onDisk {
		f := openDisk(t, filepath.Join(dir, "state"), count, c)
		if err := f.Resume(settings, log, snapshots); err != nil {
			t.Fatal(err)
		}
		d.ends = append(d.ends, f.Close)
		d.fsm, d.executed = f, func() map[string]int { return counted(t, f) }
	} else {
		l := newLedger()
		d.fsm, d.executed = newFSM(t, l, c), l.executed
	}
	d.skipped = settings.NoSnapshotRestoreOnStart
	one := raft.Configuration{Servers: []raft.Server{{ID: settings.LocalID, Address: d.transport.LocalAddr()}}}
	switch how {
	case recovering:
		if err := raft.RecoverCluster(settings, d.fsm, log, log, snapshots, d.transport, one); err != nil {
			t.Fatal(err)
		}
		d.stop()
		return startDurable(t, dir, onDisk, joining)
	case first:
		if err := raft.BootstrapCluster(settings, log, log, snapshots, d.transport, one); err != nil && err != raft.ErrCantBootstrap { //nolint:errorlint // as it is documented
			t.Fatal(err)
		}
	}
	if d.raft, err = raft.NewRaft(settings, d.fsm, log, log, snapshots, d.transport); err != nil {
		t.Fatal(err)
	}
	d.Node = raftonce.NewNode(d.raft, d.fsm, nil)
	return d
}

func (d *durable) stop() {
	d.t.Helper()
	if d.raft != nil {
		if err := d.raft.Shutdown().Error(); err != nil {
			d.t.Fatal(err)
		}
	}
	for _, end := range d.ends {
		if err := end(); err != nil {
			d.t.Fatal(err)
		}
	}
}

// await polls until something is true.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("for a minute: not %s", what)
		}
	}
}

// send sends a command until it is answered by this node.
func (d *durable) send(c *session.Command) (a session.Reply) {
	d.t.Helper()
	await(d.t, "an answer of the leader", func() bool {
		var err error
		a, err = d.Apply(c, time.Second)
		if err != nil && d.other != nil {
			_ = d.other.raft.LeadershipTransferToServer("b", "b").Error() // while it is the leader
		}
		return err == nil
	})
	return a
}

// pay sends requests, and returns what they were answered.
func (d *durable) pay(id session.ID, from, to uint64) (answers []string) {
	d.t.Helper()
	for n := from; n <= to; n++ {
		a := d.send(request(id, n, fmt.Sprint("pay ", n)))
		if a.Err != 0 {
			d.t.Fatalf("request %d: %v", n, a.Err)
		}
		answers = append(answers, string(a.Result))
	}
	return answers
}

// repeat sends requests that were answered before, and checks that they are answered alike, and took effect once.
func (d *durable) repeat(when string, id session.ID, want []string) {
	d.t.Helper()
	for i, was := range want {
		a := d.send(request(id, uint64(i+1), fmt.Sprint("pay ", i+1)))
		if !a.Replayed || string(a.Result) != was {
			d.t.Errorf("%s: request %d is answered %+v; it was %q", when, i+1, a, was)
		}
	}
	times := d.executed()
	if len(times) != len(want) {
		d.t.Errorf("%s: %d requests were executed, want %d", when, len(times), len(want))
	}
	for payload, n := range times {
		if n != 1 {
			d.t.Errorf("%s: %q was executed %d times", when, payload, n)
		}
	}
}

// TestSnapshotNotRestored: a state machine in memory never goes on without the sessions of its snapshot.
func TestSnapshotNotRestored(t *testing.T) {
	fsm := newFSM(t, newLedger(), diskConfig())
	snapshots, store := raft.NewInmemSnapshotStore(), raft.NewInmemStore()
	_, transport := raft.NewInmemTransport("a")
	servers := raft.Configuration{Servers: []raft.Server{{ID: "a", Address: "a"}}}
	to, err := snapshots.Create(1, 5, 1, servers, 1, transport)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := to.Write(image(t, newFSM(t, newLedger(), diskConfig()))); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	settings := raft.DefaultConfig()
	settings.LocalID, settings.LogOutput, settings.NoSnapshotRestoreOnStart = "a", io.Discard, true
	r, err := raft.NewRaft(settings, fsm, store, store, snapshots, transport)
	if err != nil {
		t.Fatal(err)
	}
	if p := panicked(func() { raftonce.NewNode(r, fsm, nil) }); !strings.Contains(fmt.Sprint(p), "NoSnapshotRestoreOnStart") {
		t.Errorf("it goes on without sessions: %v", p)
	}
	if err := r.Shutdown().Error(); err != nil {
		t.Error(err)
	}
}

// TestRestart: a node that starts again with its files answers the requests of before, and has their effects once.
func TestRestart(t *testing.T) {
	for name, onDisk := range map[string]bool{"in memory": false, "on disk": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "a")
			a := startDurable(t, dir, onDisk, first)
			id := a.send(&session.Command{Op: session.Register, Nonce: nonce}).Session
			answers := a.pay(id, 1, 9)
			again := func(when string) {
				t.Helper()
				a.stop()
				a = startDurable(t, dir, onDisk, first)
				a.repeat(when, id, answers)
			}
			again("with a log")
			if err := a.raft.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
			again("with a snapshot and what is left of the log")
			answers = append(answers, a.pay(id, 10, 15)...)
			again("with a snapshot and a longer log")
			if a.skipped != onDisk {
				t.Errorf("the restoration of the snapshot was left out: %t", a.skipped)
			}

			if err := a.raft.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
			there := filepath.Join(t.TempDir(), "b")
			b := startDurable(t, there, onDisk, joining)
			connect := func() {
				a.transport.Connect(b.transport.LocalAddr(), b.transport)
				b.transport.Connect(a.transport.LocalAddr(), a.transport)
			}
			connect()
			if err := a.raft.AddVoter("b", "b", 0, 0).Error(); err != nil {
				t.Fatal(err)
			}
			await(t, "at b, in a snapshot", func() bool {
				return len(b.executed()) == len(answers) && b.raft.Stats()["last_snapshot_index"] != "0"
			})
			for _, when := range []string{"after a snapshot of the leader", "and once more", "and with a log behind that"} {
				b.stop()
				b = startDurable(t, there, onDisk, joining)
				connect()
				b.other = a
				b.repeat(when, id, answers)
				answers = append(answers, b.pay(id, uint64(len(answers)+1), uint64(len(answers)+3))...)
			}
			a.stop()
			b.stop()
			b = startDurable(t, there, onDisk, recovering)
			b.repeat("alone", id, answers)
			b.stop()
		})
	}
}
