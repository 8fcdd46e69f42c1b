package session_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/everonce/everonce/session"
)

// busy is a machine with sessions of all kinds, and everything that has ended with them.
func busy(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t, func(c *session.Config) { c.Name, c.PerPrincipal = "shop", 5 })
	for n := range byte(40) {
		m.now += lease / 30 // some of them expire
		id := m.register(n, func(c *session.Command) {
			c.Principal, c.Ordered, c.Epoch = string('a'+rune(n%11)), n%3 == 0, uint64(n)
		})
		for number := range uint64(n % 5) {
			c := request(id, number+1, number/2, string(bytes.Repeat([]byte{'x'}, int(n)*3)))
			c.Nonce, c.Epoch = nonce(n), uint64(n)
			m.do(c)
		}
		if n%7 == 0 {
			m.do(session.Command{Op: session.End, Session: id, Nonce: nonce(n), Epoch: uint64(n)})
		}
	}
	return m
}

// TestSnapshotsAreEqual: what was restored is saved as the same bytes, and goes on alike.
func TestSnapshotsAreEqual(t *testing.T) {
	m := busy(t)
	first := saved(t, m.Machine)
	restored, err := session.Restore(bytes.NewReader(first), "shop")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, saved(t, restored)) {
		t.Error("the restored machine is saved as other bytes")
	}
	m2 := &machine{Machine: restored, t: t, now: m.now}
	for _, m := range []*machine{m, m2} {
		m.now += lease / 2 // half of them expire
		m.register(77)
		m.do(session.Command{Op: session.Tick})
	}
	if !bytes.Equal(saved(t, m.Machine), saved(t, m2.Machine)) {
		t.Error("they went on differently")
	}
}

// TestASnapshotIsOfOneMoment: the machine goes on while it is written.
func TestASnapshotIsOfOneMoment(t *testing.T) {
	m := busy(t)
	want := saved(t, m.Machine)
	snapshot, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := snapshot.WriteTo(&got); err != nil {
			t.Error(err)
		}
	})
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		m.now += lease / 1000
		n := byte(random.IntN(250))
		a := m.do(session.Command{Op: session.Register, Nonce: nonce(n), Epoch: 300})
		c := request(a.Session, uint64(random.IntN(6)), uint64(random.IntN(4)), "x")
		c.Nonce, c.Epoch = nonce(n), 300
		m.do(c)
	}
	wg.Wait()
	snapshot.Release()
	snapshot.Release()
	if !bytes.Equal(want, got.Bytes()) {
		t.Error("the snapshot is of no one moment")
	}
}

// TestFormatOfSnapshots: later versions read what this one writes. Others may check theirs against the files.
func TestFormatOfSnapshots(t *testing.T) {
	m := newMachine(t, func(c *session.Config) { c.Name, c.PerPrincipal, c.Evict = "shop", 5, true })
	m.now = 1_000_000_007
	id := m.register(1, func(c *session.Command) { c.Principal = "alice" })
	m.do(request(id, 1, 0, "first"))
	m.do(request(id, 3, 1, "third"))
	m.register(2, func(c *session.Command) { c.Principal, c.Ordered, c.Epoch = "bob", true, 3 })
	vector(t, "snapshot-1.bin", saved(t, m.Machine))
}

// vector compares with a file of testdata, or writes it if it is missing.
func vector(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	want, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is new: check it, and add it", file)
		err = os.WriteFile(file, got, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if want != nil && !bytes.Equal(want, got) {
		t.Errorf("%s: got % x", file, got)
	}
}

// TestBadSnapshots are refused by name.
func TestBadSnapshots(t *testing.T) {
	m := newMachine(t, func(c *session.Config) { c.Name = "shop" })
	id := m.register(1, func(c *session.Command) { c.Principal = "alice" })
	m.do(request(id, 1, 0, "first"))
	m.register(2)
	good := saved(t, m.Machine)
	for at := range good {
		if _, err := session.Restore(bytes.NewReader(good[:at]), "shop"); !errors.Is(err, session.ErrCorrupt) {
			t.Fatalf("cut at %d: %v", at, err)
		}
		bad := bytes.Clone(good)
		bad[at] ^= 0x40
		want := session.ErrCorrupt
		switch {
		case at == 16: // the version
			want = session.ErrNewer
		case at == 17, at >= 21 && at < 25: // the name
			want = session.ErrOtherMachine
		}
		_, err := session.Restore(bytes.NewReader(bad), "shop")
		if !errors.Is(err, want) {
			t.Fatalf("damaged at %d: %v", at, err)
		}
	}
	if _, err := session.Restore(bytes.NewReader(append(bytes.Clone(good), 0)), "shop"); !errors.Is(err, session.ErrCorrupt) {
		t.Errorf("with something behind it: %v", err)
	}
	if _, err := session.Restore(bytes.NewReader(good), "bank"); !errors.Is(err, session.ErrOtherMachine) {
		t.Errorf("of another machine: %v", err)
	}
	broken := errors.New("the disk")
	if _, err := session.Restore(io.MultiReader(bytes.NewReader(good[:50]), failing{broken}), "shop"); !errors.Is(err, broken) || errors.Is(err, session.ErrCorrupt) {
		t.Errorf("of a broken disk: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestASnapshotThatCannotBeWritten says so.
func TestASnapshotThatCannotBeWritten(t *testing.T) {
	full := errors.New("no space")
	s, err := busy(t).Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	if _, err := s.WriteTo(failing{full}); !errors.Is(err, full) {
		t.Errorf("WriteTo: %v", err)
	}
}

// FuzzRestore: what can be restored is saved as the same bytes.
func FuzzRestore(f *testing.F) {
	m, err := session.New(session.Config{Lease: time.Minute})
	if err != nil {
		f.Fatal(err)
	}
	m.Apply(1, &session.Command{Op: session.Register, Principal: "a"}, nil)
	m.Apply(2, &session.Command{Op: session.Request, Session: 1, Number: 2}, func() []byte { return []byte("x") })
	f.Add(saved(f, m))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := session.Restore(bytes.NewReader(b), "")
		if err == nil && !bytes.Equal(saved(t, m), b) {
			t.Error("saved as other bytes")
		}
	})
}
