package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

const memoryKeys = 100_000

// receipt is the work's result, where it is a value.
type receipt struct {
	ID       string `json:"id"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

var (
	sample      = receipt{ID: "r-0123456789", Amount: 4200, Currency: "EUR"}
	sampleBytes = []byte(`{"id":"r-0123456789","amount":4200,"currency":"EUR"}`)
)

// guardedMap is the least that one could do: a hash of the key, and a map behind a lock.
type guardedMap struct {
	mu sync.RWMutex
	m  map[everonce.RecordID][]byte
}

func (g *guardedMap) empty() error {
	g.m = map[everonce.RecordID][]byte{}
	return nil
}

func (g *guardedMap) put(k everonce.Key, v []byte) {
	id := k.RecordID()
	g.mu.Lock()
	g.m[id] = v
	g.mu.Unlock()
}

func (g *guardedMap) get(k everonce.Key) ([]byte, bool) {
	id := k.RecordID()
	g.mu.RLock()
	v, ok := g.m[id]
	g.mu.RUnlock()
	return v, ok
}

// memory is what the library itself costs: nothing waits for a disk or a network.
func memory() []*contest {
	keys := make([]everonce.Key, memoryKeys)
	for i := range keys {
		keys[i] = everonce.Key{Scope: "tenant/charge", ID: "order-" + strconv.Itoa(i)}
	}
	receiver := func(c everonce.Codec, r **everonce.Receiver) func() error {
		return func() (err error) {
			store := memstore.New(&memstore.Options{MaxRecords: 2 * memoryKeys})
			*r, err = everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{Codec: c})
			return err
		}
	}
	rawWork := func(context.Context, *everonce.Attempt) ([]byte, error) { return sampleBytes, nil }
	jsonWork := func(context.Context, *everonce.Attempt) (receipt, error) { return sample, nil }
	var raw, json *everonce.Receiver
	doRaw := func(want everonce.Outcome) func(context.Context, int64) error {
		return func(ctx context.Context, n int64) error {
			res, err := everonce.Do(ctx, raw, keys[n%memoryKeys], rawWork)
			return expect(res.Outcome, want, err)
		}
	}
	doJSON := func(want everonce.Outcome) func(context.Context, int64) error {
		return func(ctx context.Context, n int64) error {
			res, err := everonce.Do(ctx, json, keys[n%memoryKeys], jsonWork)
			return expect(res.Outcome, want, err)
		}
	}
	var g guardedMap
	bareNew := &way{name: "bare: key hash + guarded map", before: g.empty, do: func(_ context.Context, n int64) error {
		g.put(keys[n], sampleBytes)
		return nil
	}}
	naive := &way{name: "naive: check, then insert", before: g.empty, do: func(_ context.Context, n int64) error {
		if _, ok := g.get(keys[n]); !ok {
			g.put(keys[n], sampleBytes)
		}
		return nil
	}}
	newRaw := &way{name: "ours, raw", before: receiver(everonce.Raw(), &raw), do: doRaw(everonce.Executed)}
	newJSON := &way{name: "ours, JSON", before: receiver(everonce.JSON(), &json), do: doJSON(everonce.Executed)}

	// Replays: the same keys again and again, all of them known.
	filled := func(prepare func() error, do func(context.Context, int64) error) func() error {
		done := false
		return func() error {
			if done {
				return nil
			}
			if err := prepare(); err != nil {
				return err
			}
			for n := range int64(memoryKeys) {
				if err := do(context.Background(), n); err != nil {
					return err
				}
			}
			done = true
			return nil
		}
	}
	bareReplay := &way{name: "bare: key hash + guarded map", before: filled(g.empty, bareNew.do), do: func(_ context.Context, n int64) error {
		if _, ok := g.get(keys[n%memoryKeys]); !ok {
			return fmt.Errorf("key %d is missing", n)
		}
		return nil
	}}
	replayRaw := &way{name: "ours, raw", before: filled(receiver(everonce.Raw(), &raw), doRaw(everonce.Executed)), do: doRaw(everonce.Replayed)}
	replayJSON := &way{name: "ours, JSON", before: filled(receiver(everonce.JSON(), &json), doJSON(everonce.Executed)), do: doJSON(everonce.Replayed)}
	return []*contest{
		{
			store: "memory", mode: "guarded, new keys", callers: 1, most: memoryKeys,
			ways: []*way{bareNew, naive, newRaw, newJSON},
			targets: []target{
				newRaw.atMostAllocs(8, "memory, new key, raw: allocations"),
				newRaw.atMostTimes(6, bareNew, "memory, new key, raw: time × of hash + map"),
			},
		},
		{
			store: "memory", mode: "guarded, replay", callers: 1, most: 1 << 40,
			ways: []*way{bareReplay, replayRaw, replayJSON},
			targets: []target{
				replayRaw.atMostAllocs(2, "memory, replay, raw: allocations"),
				replayRaw.atMostTimes(2, bareReplay, "memory, replay, raw: time × of hash + map"),
			},
		},
	}
}

func expect(got, want everonce.Outcome, err error) error {
	if err == nil && got != want {
		err = fmt.Errorf("the outcome is %v, want %v", got, want)
	}
	return err
}
