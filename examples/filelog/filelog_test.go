//go:build unix

package filelog_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everonce/everonce/examples/filelog"
	"github.com/everonce/everonce/session/producer"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, name string) *filelog.Log {
	t.Helper()
	l, err := filelog.Open(name)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() }) //nolint:errcheck // most tests close it
	return l
}

func batch(g producer.Grant, first int32, records ...string) *filelog.Batch {
	b := &filelog.Batch{Stream: "orders", Producer: g.Producer, Epoch: g.Epoch, First: first}
	for _, r := range records {
		b.Records = append(b.Records, []byte(r))
	}
	return b
}

func wants(t testing.TB, l *filelog.Log, what string, b *filelog.Batch, want producer.Decision) {
	t.Helper()
	if a, err := l.Append(b); a != want || err != nil {
		t.Errorf("%s: %+v, %v, want %+v", what, a, err, want)
	}
}

func has(t testing.TB, l *filelog.Log, want string) {
	t.Helper()
	if got := string(bytes.Join(l.Read("orders", 0), []byte(" "))); got != want {
		t.Errorf("the log has %q, want %q", got, want)
	}
}

// history writes batches of two runs, and returns the file before and after its last record: a batch.
func history(t testing.TB) (early, late producer.Grant, before, after []byte) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "log")
	l := open(t, name)
	var err error
	early, err = l.Init("billing")
	must(t, err)
	wants(t, l, "the first", batch(early, 0, "a", "b"), producer.Decision{})
	late, err = l.Init("billing")
	must(t, err)
	wants(t, l, "the second", batch(late, 0, "c"), producer.Decision{Position: 2})
	before, err = os.ReadFile(name)
	must(t, err)
	wants(t, l, "the third", batch(late, 1, "d", "e"), producer.Decision{Position: 3})
	after, err = os.ReadFile(name)
	must(t, err)
	must(t, l.Close())
	return early, late, before, after
}

// TestKilledAtEveryByte: whatever part of the last record was written when the process was killed, and whether or not
// the file had its full size already, acknowledged batches are in the log, and a batch that is sent again is in it
// once.
func TestKilledAtEveryByte(t *testing.T) {
	early, late, before, after := history(t)
	dir := t.TempDir()
	for cut := len(before); cut <= len(after); cut++ {
		zeros := make([]byte, len(after)-cut)
		for _, tail := range [][]byte{nil, zeros} {
			name := filepath.Join(dir, fmt.Sprint(cut, len(tail)))
			must(t, os.WriteFile(name, append(after[:cut:cut], tail...), 0o600))
			l := open(t, name)
			whole := cut == len(after)
			wants(t, l, "a copy of what was acknowledged", batch(late, 0, "c"), producer.Decision{Duplicate: true, Position: 2})
			wants(t, l, "the earlier run", batch(early, 2, "z"), producer.Decision{Err: producer.ErrFenced})
			wants(t, l, fmt.Sprintf("the last, cut at %d of %d", cut, len(after)), batch(late, 1, "d", "e"), producer.Decision{Duplicate: whole, Position: 3})
			wants(t, l, "the next", batch(late, 3, "f"), producer.Decision{Position: 5})
			must(t, l.Close())
			l = open(t, name)
			wants(t, l, "a copy of the last", batch(late, 1, "d", "e"), producer.Decision{Duplicate: true, Position: 3})
			has(t, l, "a b c d e f")
			must(t, l.Close())
		}
	}
}

// TestDamage: a byte that was changed in what was acknowledged is noticed, and not cut off with all that follows.
func TestDamage(t *testing.T) {
	_, _, before, after := history(t)
	name := filepath.Join(t.TempDir(), "log")
	for at := range before {
		damaged := bytes.Clone(after)
		damaged[at] ^= 0x10
		must(t, os.WriteFile(name, damaged, 0o600))
		if l, err := filelog.Open(name); !errors.Is(err, filelog.ErrDamaged) {
			t.Fatalf("byte %d: %v, %v", at, l, err)
		}
	}
	must(t, os.WriteFile(name, append(before, before...), 0o600))
	if _, err := filelog.Open(name); !errors.Is(err, filelog.ErrDamaged) {
		t.Errorf("all of it twice: %v", err)
	}
}

// TestOneProcess: two logs on one file would give the same position twice.
func TestOneProcess(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	l := open(t, name)
	if _, err := filelog.Open(name); err == nil {
		t.Error("it was opened twice")
	}
	g, err := l.Init("")
	must(t, err)
	must(t, l.Close())
	for range 2 { // the outcome is unknown
		if _, err := l.Append(batch(g, 0, "a")); !errors.Is(err, os.ErrClosed) {
			t.Errorf("a file that cannot be written: %v", err)
		}
	}
	l = open(t, name)
	wants(t, l, "of an existing grant", batch(g, 0, "a"), producer.Decision{})
	huge := batch(g, 1)
	huge.Records = [][]byte{make([]byte, 16<<20)}
	if _, err := l.Append(huge); !errors.Is(err, filelog.ErrTooLarge) {
		t.Errorf("too large a batch: %v", err)
	}
	wants(t, l, "the next", batch(g, 1, "b"), producer.Decision{Position: 1})
}

// TestNames: a name that is not in the file as it was given would be another one after a restart.
func TestNames(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "log"))
	g, err := l.Init("")
	must(t, err)
	for _, name := range []string{"\xff", strings.Repeat("x", 256)} {
		if g, err := l.Init(name); !errors.Is(err, filelog.ErrName) {
			t.Errorf("a producer: %+v, %v", g, err)
		}
		b := batch(g, 0, "a")
		b.Stream = name
		wants(t, l, "a stream", b, producer.Decision{Err: producer.ErrNoStream})
	}
}

// TestOtherRecords: other records with numbers that were used are refused, and a buffer may be used again.
func TestOtherRecords(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "log"))
	g, err := l.Init("")
	must(t, err)
	b := batch(g, 0, "a", "bc")
	wants(t, l, "the first", b, producer.Decision{})
	copy(b.Records[0], "z")
	wants(t, l, "others", b, producer.Decision{Err: producer.ErrMismatch})
	wants(t, l, "others of the same bytes", batch(g, 0, "ab", "c"), producer.Decision{Err: producer.ErrMismatch})
	has(t, l, "a bc")
}

// A producer's batch arrives again after a restart, and is in the file once.
func Example() {
	dir, err := os.MkdirTemp("", "filelog")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	var grant producer.Grant
	for run := range 2 {
		log, err := filelog.Open(filepath.Join(dir, "log"))
		if err != nil {
			fmt.Println(err)
			return
		}
		if run == 0 {
			if grant, err = log.Init("billing"); err != nil {
				fmt.Println(err)
				return
			}
		}
		answer, err := log.Append(&filelog.Batch{Stream: "orders", Producer: grant.Producer, Epoch: grant.Epoch, Records: [][]byte{[]byte("a"), []byte("b")}})
		fmt.Println(answer.Position, answer.Duplicate, answer.Err.Or(), err, len(log.Read("orders", 0)))
		if err := log.Close(); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// 0 false <nil> <nil> 2
	// 0 true <nil> <nil> 2
}
