package session_test

import (
	"bytes"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/everonce/everonce/session"
)

func crowd(b testing.TB, n int) *session.Machine {
	b.Helper()
	m, err := session.New(session.Config{Lease: time.Hour, MaxSessions: n})
	if err != nil {
		b.Fatal(err)
	}
	result := []byte("done")
	for i := range n {
		c := session.Command{Op: session.Register, Nonce: session.Nonce{byte(i), byte(i >> 8), byte(i >> 16)}, Principal: "p"}
		a := m.Apply(int64(i), &c, nil)
		c = session.Command{Op: session.Request, Session: a.Session, Nonce: c.Nonce, Number: 1}
		m.Apply(int64(i), &c, func() []byte { return result })
	}
	return m
}

// BenchmarkApply is the check and the record of a request, by clients that acknowledge each answer with the next one.
func BenchmarkApply(b *testing.B) {
	const clients = 1000
	m, result := crowd(b, clients), []byte("done")
	b.ReportAllocs()
	number := uint64(1)
	for i := 0; b.Loop(); i++ {
		if i%clients == 0 {
			number++
		}
		c := session.Command{Op: session.Request, Session: session.ID(i%clients + 1), Nonce: session.Nonce{byte(i % clients), byte(i % clients >> 8)}, Number: number, Mark: number - 1}
		if a := m.Apply(int64(clients+i), &c, func() []byte { return result }); a.Err != 0 {
			b.Fatalf("%+v", a)
		}
	}
}

// BenchmarkReplay is the answer of a duplicate.
func BenchmarkReplay(b *testing.B) {
	m := crowd(b, 1000)
	c := session.Command{Op: session.Request, Session: 500, Nonce: session.Nonce{499 & 255, 499 >> 8}, Number: 1}
	b.ReportAllocs()
	for b.Loop() {
		if a := m.Apply(0, &c, nil); !a.Replayed {
			b.Fatalf("%+v", a)
		}
	}
}

// BenchmarkSnapshot writes and restores a million sessions, and says what each costs in memory and in the snapshot.
func BenchmarkSnapshot(b *testing.B) {
	const n = 1_000_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	m := crowd(b, n)
	runtime.GC()
	runtime.ReadMemStats(&after)
	heap := float64(after.HeapAlloc-before.HeapAlloc) / n
	var size int64
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			s, err := m.Snapshot()
			if err != nil {
				b.Fatal(err)
			}
			if size, err = s.WriteTo(io.Discard); err != nil {
				b.Fatal(err)
			}
			s.Release()
		}
		b.ReportMetric(heap, "heap-B/session")
		b.ReportMetric(float64(size)/n, "snapshot-B/session")
	})
	var buf bytes.Buffer
	s, err := m.Snapshot()
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.WriteTo(&buf); err != nil {
		b.Fatal(err)
	}
	s.Release()
	b.Run("restore", func(b *testing.B) {
		for b.Loop() {
			if _, err := session.Restore(bytes.NewReader(buf.Bytes()), ""); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkExpiry ends a session among many that live.
func BenchmarkExpiry(b *testing.B) {
	const lease = int64(time.Hour)
	m := crowd(b, 100_000)
	now := int64(0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		now += lease / 100_000 // one is due
		c := session.Command{Op: session.Register, Nonce: session.Nonce{15: 1, 14: byte(i), 13: byte(i >> 8), 12: byte(i >> 16)}}
		if a := m.Apply(now, &c, nil); a.Session == 0 && a.Err != session.ErrFull {
			b.Fatalf("%+v", a)
		}
	}
}
