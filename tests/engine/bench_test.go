package engine

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// guardedMap is the least that deduplicates: the hash of a key, and a map behind a lock.
type guardedMap struct {
	mu sync.Mutex
	m  map[everonce.RecordID][]byte
}

func (g *guardedMap) once(key everonce.Key, value []byte) []byte {
	id := key.RecordID()
	g.mu.Lock()
	defer g.mu.Unlock()
	if v, ok := g.m[id]; ok {
		return v
	}
	g.m[id] = append([]byte{}, value...)
	return value
}

func benchKeys(n int) []everonce.Key {
	keys := make([]everonce.Key, n)
	for i := range keys {
		keys[i] = keyOf("order-" + strconv.Itoa(i))
	}
	return keys
}

var receipt = []byte(`{"id":"r-1","amount":1250,"currency":"EUR"}`)

// benchOver runs op for every key and reports its time as a multiple of the guarded map's, which is
// measured in the same run, before and after it.
func benchOver(b *testing.B, bare func(everonce.Key), op func(b *testing.B, key everonce.Key)) {
	b.Helper()
	keys := benchKeys(b.N)
	round := func(n int, f func(everonce.Key)) time.Duration {
		start := time.Now()
		for _, key := range keys[:n] {
			f(key)
		}
		return time.Since(start)
	}
	half := (b.N + 1) / 2
	before := round(half, bare)
	b.ReportAllocs()
	b.ResetTimer()
	for _, key := range keys {
		op(b, key)
	}
	b.StopTimer()
	per := float64(b.Elapsed()) / float64(b.N)
	after := round(half, bare)
	b.ReportMetric(per/(float64(before+after)/float64(2*half)), "×map")
}

func bareNew(b *testing.B) func(everonce.Key) {
	b.Helper()
	g := &guardedMap{m: map[everonce.RecordID][]byte{}}
	seen := 0
	return func(key everonce.Key) { // the second half finds the first one's keys: it takes others
		seen++
		key.ID += strconv.Itoa(seen & 1)
		g.once(key, receipt)
	}
}

func bareReplay(b *testing.B, keys int) func(everonce.Key) {
	b.Helper()
	g := &guardedMap{m: map[everonce.RecordID][]byte{}}
	known := benchKeys(keys)
	for _, key := range known {
		g.once(key, receipt)
	}
	i := 0
	return func(everonce.Key) {
		g.once(known[i%len(known)], nil)
		i++
	}
}

func benchDo(b *testing.B, r *everonce.Receiver, key everonce.Key, want everonce.Outcome) {
	b.Helper()
	res, err := everonce.Do(context.Background(), r, key, func(context.Context, *everonce.Attempt) ([]byte, error) { return receipt, nil })
	if err != nil || res.Outcome != want {
		b.Fatal(res.Outcome, err)
	}
}

// BenchmarkNewKey is an operation that was never seen, in memory: at most 6 times a guarded map.
func BenchmarkNewKey(b *testing.B) {
	for name, codec := range map[string]everonce.Codec{"raw": everonce.Raw(), "json": everonce.JSON()} {
		b.Run(name, func(b *testing.B) {
			r := newReceiver(b, memstore.New(&memstore.Options{MaxRecords: b.N + 1}), everonce.Refuse, &everonce.Options{Codec: codec})
			benchOver(b, bareNew(b), func(b *testing.B, key everonce.Key) {
				b.Helper()
				benchDo(b, r, key, everonce.Executed)
			})
		})
	}
}

// BenchmarkReplay is an operation that is done, in memory: at most 2 times a guarded map.
func BenchmarkReplay(b *testing.B) {
	const known = 1000
	for name, codec := range map[string]everonce.Codec{"raw": everonce.Raw(), "json": everonce.JSON()} {
		b.Run(name, func(b *testing.B) {
			r := newReceiver(b, memstore.New(nil), everonce.Refuse, &everonce.Options{Codec: codec})
			keys := benchKeys(known)
			for _, key := range keys {
				benchDo(b, r, key, everonce.Executed)
			}
			i := 0
			benchOver(b, bareReplay(b, known), func(b *testing.B, _ everonce.Key) {
				b.Helper()
				benchDo(b, r, keys[i%known], everonce.Replayed)
				i++
			})
		})
	}
}

// BenchmarkReplayParallel is the same key from all processors: what a storm of duplicates costs.
func BenchmarkReplayParallel(b *testing.B) {
	r := newReceiver(b, memstore.New(nil), everonce.Refuse, &everonce.Options{Codec: everonce.Raw()})
	key := keyOf("x")
	benchDo(b, r, key, everonce.Executed)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			benchDo(b, r, key, everonce.Replayed)
		}
	})
}

// BenchmarkFourSteps is an operation of four steps.
func BenchmarkFourSteps(b *testing.B) {
	r := newReceiver(b, memstore.New(&memstore.Options{MaxRecords: b.N + 1}), everonce.Refuse, &everonce.Options{Codec: everonce.Raw()})
	keys := benchKeys(b.N)
	step := func(context.Context) ([]byte, error) { return receipt, nil }
	b.ReportAllocs()
	b.ResetTimer()
	for _, key := range keys {
		_, err := everonce.Do(context.Background(), r, key, func(ctx context.Context, a *everonce.Attempt) ([]byte, error) {
			for _, name := range [...]string{"charge", "mail", "webhook", "metric"} {
				if _, err := everonce.Step(ctx, a, name, step); err != nil {
					return nil, err
				}
			}
			return receipt, nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRecordID(b *testing.B) {
	key := keyOf("order-1234567")
	b.ReportAllocs()
	for b.Loop() {
		_ = key.RecordID()
	}
}

func BenchmarkFingerprintOf(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_ = everonce.FingerprintOf("EUR", int64(1250), receipt)
	}
}
