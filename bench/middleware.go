package main

import (
	"context"
	"net/http"

	"github.com/gofiber/fiber/v3"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// inProcess is what the middleware itself costs: no network, and no disk.
func inProcess() []*contest {
	m := &middleware{name: "HTTP", bareName: "bare: 200 B of JSON in and out", body: sampleRequest, keys: memoryKeys, bare: pay, onFiber: payOnFiber}
	first, replay := m.contests()
	x, key := newExchange(sampleRequest), httpKey(0)
	first.ways = append(first.ways, &way{name: "the bench's own part of it", do: func(context.Context, int64) error {
		return x.do(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(sampleBytes) //nolint:errcheck // it does not fail
		}), key, false)
	}})
	first.targets = []target{
		first.ways[1].atMostAllocsOver(20, first.ways[0], "HTTP, first: allocations over bare"),
		first.ways[1].atMostTimes(2.2, first.ways[0], "HTTP, first: time × of bare"),
	}
	replay.targets = []target{replay.ways[1].atLeast(1, replay.ways[0], "HTTP, replay: rate × of bare")}
	all := []*contest{first, replay}
	for _, b := range []struct {
		name       string
		size, keys int
	}{{"0 B", 0, memoryKeys}, {"1 KiB", 1 << 10, memoryKeys}, {"64 KiB", 64 << 10, memoryKeys / 10}, {"1 MiB", 1 << 20, memoryKeys / 100}} {
		m := &middleware{name: "HTTP " + b.name, bareName: "bare: reads a body of " + b.name, body: make([]byte, b.size), keys: b.keys, bare: take, onFiber: takeOnFiber}
		first, replay := m.contests()
		all = append(all, first, replay)
	}
	return all
}

// middleware is ours around a bare handler, and fiber's around its own, for requests with one body.
type middleware struct {
	name, bareName string
	body           []byte
	keys           int // that are replayed, and the most in a turn
	bare           http.HandlerFunc
	onFiber        fiber.Handler

	ours http.Handler // with an empty store at the beginning of a turn
}

// contests returns the contest of new keys and the contest of replays.
func (m *middleware) contests() (first, replay *contest) {
	keys := make([]string, m.keys)
	for i := range keys {
		keys[i] = httpKey(int64(i))
	}
	x, p := newExchange(m.body), newPeer(m.body, m.onFiber)
	bare := func() *way {
		return &way{name: m.bareName, do: func(_ context.Context, n int64) error { return x.do(m.bare, keys[n%int64(m.keys)], false) }}
	}
	ours := func(name string, replayed bool) *way {
		return &way{name: name, do: func(_ context.Context, n int64) error { return x.do(m.ours, keys[n%int64(m.keys)], replayed) }}
	}
	execute, peerExecute := ours("ours, first", false), p.way("fiber, its idempotency, first", p.protected, keys)
	execute.before, peerExecute.before = m.protect, p.empty
	again, peerAgain := ours("ours, replay", true), p.way("fiber, its idempotency, replay", p.protected, keys)
	again.before, peerAgain.before = m.filled(m.protect, execute), m.filled(p.empty, peerExecute)
	first = &contest{
		store: "memory", mode: m.name + ", new keys", callers: 1, most: int64(m.keys),
		ways: []*way{bare(), execute, p.way("fiber, bare", p.bare, keys), peerExecute},
	}
	replay = &contest{
		store: "memory", mode: m.name + ", replay", callers: 1, most: 1 << 40,
		ways: []*way{bare(), again, p.way("fiber, bare", p.bare, keys), peerAgain},
	}
	return first, replay
}

// protect puts ours, with an empty store, around the handler.
func (m *middleware) protect() error {
	recv, err := everonce.NewReceiver(memstore.New(&memstore.Options{MaxRecords: 2 * memoryKeys}), everonce.Refuse, nil)
	if err != nil {
		return err
	}
	wrap, err := httponce.Middleware(recv, byAccount, nil)
	if err == nil {
		m.ours = wrap(m.bare)
	}
	return err
}

// filled returns what empties a store and executes each key, once.
func (m *middleware) filled(empty func() error, execute *way) func() error {
	do := execute.do // the contest of new keys is over by then, and has given it up
	return once(func() error {
		if err := empty(); err != nil {
			return err
		}
		for n := range int64(m.keys) {
			if err := do(context.Background(), n); err != nil {
				return err
			}
		}
		return nil
	})
}

// once returns a function that calls f the first time.
func once(f func() error) func() error {
	done := false
	return func() error {
		if done {
			return nil
		}
		done = true
		return f()
	}
}

// byAccount is the principal: what stands in front has checked the token.
func byAccount(r *http.Request) (string, error) { return r.Header.Get("Authorization"), nil }
