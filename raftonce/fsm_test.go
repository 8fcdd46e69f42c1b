package raftonce_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/everonce/everonce/raftonce"
	"github.com/everonce/everonce/session"
)

func newFSM(t *testing.T, inner raft.FSM, c session.Config) *raftonce.FSM {
	t.Helper()
	f, err := raftonce.NewFSM(inner, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// entries is a random log: pipelined requests of a few sessions with duplicates, renewals, ends, and what is no
// command.
func entries(t *testing.T, random *rand.Rand) (logs []*raft.Log) {
	t.Helper()
	stamp := int64(0)
	for i := range 400 {
		stamp += random.Int64N(3)
		id := session.ID(1 + random.Uint64N(4))
		c := session.Command{Session: id, Nonce: session.Nonce{byte(id)}}
		switch random.IntN(12) {
		case 0:
			c = session.Command{Op: session.Register, Nonce: session.Nonce{byte(1 + random.IntN(6))}}
		case 1:
			c = session.Command{Op: session.KeepAlive, Beats: []session.Beat{{Session: id, Nonce: c.Nonce, Mark: random.Uint64N(uint64(2 + i/12))}}}
		case 2:
			if random.IntN(20) == 0 {
				c.Op = session.End
			} else {
				c.Op = session.Tick
			}
		default:
			c.Op, c.Number = session.Request, 1+random.Uint64N(uint64(4+i/10))
			c.Mark = c.Number - 1 - random.Uint64N(c.Number)
			c.Payload = fmt.Appendf(nil, "%d %d %s", id, c.Number, strings.Repeat("x", random.IntN(30)))
		}
		data, err := raftonce.NewEntry(diskConfig(), stamp, &c)
		if err != nil {
			t.Fatal(err)
		}
		if random.IntN(30) == 0 {
			data = data[:random.IntN(20)]
		}
		logs = append(logs, &raft.Log{Index: uint64(i + 1), Term: random.Uint64N(20) / 19, Type: raft.LogCommand, Data: data})
		if random.IntN(30) == 0 {
			logs = append(logs, &raft.Log{Index: uint64(i + 1), Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(raft.Configuration{})})
		}
	}
	return logs
}

// TestBatchesDoNotShow: however raft cuts the log into batches, answers and state are the same.
func TestBatchesDoNotShow(t *testing.T) {
	c := diskConfig()
	most := 0
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		logs := entries(t, random)
		inner := &batching{ledger: newLedger()}
		single, batched := newFSM(t, newLedger(), c), newFSM(t, inner, c)
		var want, got []any
		for _, log := range logs {
			if log.Type == raft.LogCommand {
				want = append(want, single.Apply(log))
			} else {
				want = append(want, nil)
			}
		}
		for rest := logs; len(rest) > 0; {
			n := min(1+random.IntN(40), len(rest))
			got = append(got, batched.ApplyBatch(rest[:n])...)
			rest = rest[n:]
		}
		for i := range logs {
			if !reflect.DeepEqual(got[i], want[i]) && fmt.Sprint(got[i]) != fmt.Sprint(want[i]) {
				t.Fatalf("seed %d, entry %d: %+v in a batch, %+v alone", seed, i, got[i], want[i])
			}
		}
		if !bytes.Equal(image(t, single), image(t, batched)) {
			t.Fatalf("seed %d: the states differ", seed)
		}
		most = max(most, inner.most)
	}
	if most < 4 {
		t.Errorf("the largest batch of the state machine has %d entries", most)
	}
}

// machine is a state machine of any kind.
type machine interface {
	raft.BatchingFSM
	Sessions() int
}

// everyKind runs a test with each kind.
func everyKind(t *testing.T, test func(t *testing.T, open func(session.Config) machine)) {
	t.Helper()
	for name, open := range map[string]func(t *testing.T, c session.Config) machine{
		"memory": func(t *testing.T, c session.Config) machine { t.Helper(); return newFSM(t, newLedger(), c) },
		"batches": func(t *testing.T, c session.Config) machine {
			t.Helper()
			return newFSM(t, &batching{ledger: newLedger()}, c)
		},
		"disk": func(t *testing.T, c session.Config) machine { t.Helper(); return openDisk(t, t.TempDir(), count, c) },
	} {
		t.Run(name, func(t *testing.T) {
			test(t, func(c session.Config) machine { t.Helper(); return open(t, c) })
		})
	}
}

// TestStampOfAnotherTerm ends no session: the node that stamped did not lead, and its clock ran while there was no
// leader.
func TestStampOfAnotherTerm(t *testing.T) {
	everyKind(t, func(t *testing.T, open func(session.Config) machine) {
		f := open(diskConfig())
		tick, err := raftonce.NewEntry(diskConfig(), 1<<40, &session.Command{Op: session.Tick})
		if err != nil {
			t.Fatal(err)
		}
		f.ApplyBatch(append(requests(t), &raft.Log{Index: 2, Term: 1, Type: raft.LogCommand, Data: tick}))
		if n := f.Sessions(); n != 1 {
			t.Errorf("%d sessions, want 1", n)
		}
		if f.ApplyBatch([]*raft.Log{{Index: 3, Type: raft.LogCommand, Data: tick}}); f.Sessions() != 0 {
			t.Error("the stamp of its term is ignored")
		}
	})
}

// TestEntryOfANewerVersion ends the process: other nodes have executed it.
func TestEntryOfANewerVersion(t *testing.T) {
	entry, err := raftonce.NewEntry(diskConfig(), 1, &session.Command{Op: session.Tick})
	if err != nil {
		t.Fatal(err)
	}
	everyKind(t, func(t *testing.T, open func(session.Config) machine) {
		f := open(diskConfig())
		for _, at := range []int{5, 26, 27} { // the versions of entry and command, and Op
			newer := bytes.Clone(entry)
			newer[at]++
			if p := panicked(func() { f.ApplyBatch([]*raft.Log{{Index: 1, Type: raft.LogCommand, Data: newer}}) }); !strings.Contains(fmt.Sprint(p), "newer version") {
				t.Errorf("byte %d: %v", at, p)
			}
		}
	})
}

// TestOtherConfig: a node with another Config than the others takes no part in the log, instead of having a different
// table.
func TestOtherConfig(t *testing.T) {
	another := reflect.ValueOf(diskConfig())
	for i := range another.NumField() {
		c := diskConfig()
		switch field := reflect.ValueOf(&c).Elem().Field(i); field.Kind() {
		case reflect.String:
			field.SetString("other")
		case reflect.Bool:
			field.SetBool(true)
		case reflect.Uint64:
			field.SetUint(9)
		default:
			field.SetInt(99)
		}
		entry, err := raftonce.NewEntry(c, 1, &session.Command{Op: session.Register, Nonce: session.Nonce{2}})
		if err != nil {
			t.Fatal(err)
		}
		everyKind(t, func(t *testing.T, open func(session.Config) machine) {
			f := open(diskConfig())
			log := func(index uint64) []*raft.Log { return []*raft.Log{{Index: index, Type: raft.LogCommand, Data: entry}} }
			if err, _ := panicked(func() { f.ApplyBatch(log(1)) }).(error); !errors.Is(err, raftonce.ErrOtherConfig) {
				t.Errorf("%+v is in the first entry: %v", c, err)
			}
			f.ApplyBatch(requests(t))
			if err, _ := f.ApplyBatch(log(2))[0].(error); !errors.Is(err, raftonce.ErrOtherConfig) || f.Sessions() != 1 {
				t.Errorf("%+v is in the second entry: %v, %d sessions", c, err, f.Sessions())
			}
			err := f.Restore(io.NopCloser(bytes.NewReader(image(t, open(c)))))
			if !errors.Is(err, raftonce.ErrOtherConfig) && !errors.Is(err, session.ErrOtherMachine) {
				t.Errorf("a snapshot of %+v: %v", c, err)
			}
		})
	}
}

// miscounting is a ledger that returns one result whatever it is given.
type miscounting struct{ *ledger }

func (miscounting) ApplyBatch([]*raft.Log) []any { return []any{nil} }

func TestBatchWithAWrongCount(t *testing.T) {
	f := newFSM(t, miscounting{newLedger()}, diskConfig())
	logs := append(requests(t), requests(t, "a")[1], &raft.Log{Type: raft.LogConfiguration})
	if p := panicked(func() { f.ApplyBatch(logs) }); !strings.Contains(fmt.Sprint(p), "1 results for 2 entries") {
		t.Error(p)
	}
}

// configured is a ledger that stores configurations.
type configured struct {
	*ledger
	index uint64
}

func (c *configured) StoreConfiguration(index uint64, _ raft.Configuration) { c.index = index }

func TestConfigurationIsPassedThrough(t *testing.T) {
	inner := &configured{ledger: newLedger()}
	f := newFSM(t, inner, config())
	f.ApplyBatch([]*raft.Log{{Index: 7, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(raft.Configuration{})}})
	if inner.index != 7 {
		t.Errorf("the configuration of entry %d was stored", inner.index)
	}
	f.StoreConfiguration(8, raft.Configuration{})
	if inner.index != 8 {
		t.Errorf("the configuration of entry %d was stored", inner.index)
	}
}

// TestEntryThatIsNoCommand is answered with a typed error, and changes nothing.
func TestEntryThatIsNoCommand(t *testing.T) {
	inner := newLedger()
	f := newFSM(t, inner, config())
	before := image(t, f)
	whole, err := raftonce.NewEntry(diskConfig(), 1<<40, &session.Command{Op: session.Request, Session: 1, Number: 1})
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if err, _ := f.Apply(&raft.Log{Data: whole[:n]}).(error); !errors.Is(err, raftonce.ErrEntry) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if err, _ := f.Apply(&raft.Log{Data: []byte(`{"op":"transfer","amount":10}`)}).(error); !errors.Is(err, raftonce.ErrEntry) {
		t.Errorf("another encoding: %v", err)
	}
	if !bytes.Equal(image(t, f), before) || len(inner.executed()) != 0 {
		t.Error("the state has changed")
	}
}

// TestSnapshotThatIsNone is refused with a typed error.
func TestSnapshotThatIsNone(t *testing.T) {
	whole := image(t, newFSM(t, newLedger(), config()))
	f := newFSM(t, newLedger(), config())
	restore := func(b []byte) error { return f.Restore(io.NopCloser(bytes.NewReader(b))) }
	if err := restore(whole); err != nil {
		t.Fatal(err)
	}
	sessions := len(whole) - len("{}\n")
	for n := range sessions {
		if err := restore(whole[:n]); !errors.Is(err, raftonce.ErrSnapshot) && !errors.Is(err, session.ErrCorrupt) {
			t.Errorf("%d bytes of it: %v", n, err)
		}
	}
	if err := restore(whole[:sessions]); err == nil { // the state machine's own error
		t.Error("restored without the state machine")
	}
	if err := restore([]byte(`{"pay":1}` + strings.Repeat(" ", 100))); !errors.Is(err, raftonce.ErrSnapshot) {
		t.Errorf("of another state machine: %v", err)
	}
	other := newFSM(t, newLedger(), session.Config{Name: "other", Lease: lease})
	if err := other.Restore(io.NopCloser(bytes.NewReader(whole))); !errors.Is(err, session.ErrOtherMachine) {
		t.Errorf("of another machine: %v", err)
	}
}

// TestSnapshotBesideApply: what is applied while a snapshot is written is not in it.
func TestSnapshotBesideApply(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	f := newFSM(t, newLedger(), diskConfig())
	logs := entries(t, random)
	for _, log := range logs[:200] {
		f.Apply(log)
	}
	want := image(t, f)
	s, err := f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan *sink)
	go func() {
		var b sink
		if err := s.Persist(&b); err != nil {
			t.Error(err)
		}
		s.Release()
		done <- &b
	}()
	for _, log := range logs[200:] {
		f.Apply(log)
	}
	if got := <-done; !bytes.Equal(got.Bytes(), want) {
		t.Error("the snapshot has the state of another time")
	}
}

// fullDisk fails after some bytes.
type fullDisk struct {
	sink
	left int
}

func (d *fullDisk) Write(b []byte) (int, error) {
	if d.left -= len(b); d.left < 0 {
		return 0, io.ErrShortWrite
	}
	return d.sink.Write(b)
}

// TestSnapshotThatCannotBeWritten is canceled, and never closed as if it were whole.
func TestSnapshotThatCannotBeWritten(t *testing.T) {
	f := newFSM(t, newLedger(), config())
	for n := range len(image(t, f)) {
		s, err := f.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		disk := fullDisk{left: n}
		if err := s.Persist(&disk); !errors.Is(err, io.ErrShortWrite) || disk.closed || !disk.canceled {
			t.Errorf("after %d bytes: %v, closed %t, canceled %t", n, err, disk.closed, disk.canceled)
		}
		s.Release()
	}
}

// answering is a state machine with any answer.
type answering struct {
	raft.FSM
	answer any
}

func (a answering) Apply(*raft.Log) any { return a.answer }

func TestResults(t *testing.T) {
	failed := errors.New("a FailedError")
	double := &raftonce.Options{Encode: func(a any) ([]byte, error) {
		if a == 0 {
			return nil, errors.New("zero")
		}
		return fmt.Append(nil, a), nil
	}}
	for _, tc := range []struct {
		answer any
		opts   *raftonce.Options
		want   string
		err    error
	}{
		{[]byte("yes"), nil, "yes", nil},
		{"yes", nil, "yes", nil},
		{nil, nil, "", nil},
		{errors.New("no money"), nil, "no money", failed},
		{7, nil, "", raftonce.ErrNotEncoded},
		{7, double, "7", nil},
		{0, double, "", raftonce.ErrNotEncoded},
		{errors.New("no money"), double, "no money", failed},
	} {
		c := session.Config{Lease: 10, MaxResult: 100}
		f, err := raftonce.NewFSM(answering{newLedger(), tc.answer}, c, tc.opts)
		if err != nil {
			t.Fatal(err)
		}
		apply := func(command *session.Command) session.Reply {
			data, err := raftonce.NewEntry(c, 1, command)
			if err != nil {
				t.Fatal(err)
			}
			a, _ := f.Apply(&raft.Log{Data: data}).(session.Reply)
			return a
		}
		apply(&session.Command{Op: session.Register, Nonce: nonce})
		for range 2 {
			b, err := raftonce.Result(apply(request(1, 1, "x")))
			var failure *raftonce.FailedError
			if errors.As(err, &failure) {
				b, err = []byte(failure.Message), failed
			}
			if string(b) != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%v is answered as %q, %v", tc.answer, b, err)
			}
		}
	}
	if _, err := raftonce.Result(session.Reply{Elided: true}); !errors.Is(err, raftonce.ErrElided) {
		t.Error(err)
	}
	if _, err := raftonce.NewFSM(newLedger(), session.Config{}, nil); !errors.Is(err, session.ErrConfig) {
		t.Error(err)
	}
}
