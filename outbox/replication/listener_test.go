package replication_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/everonce/everonce/outbox/replication"
)

// testListener is a listener under test.
type testListener struct {
	t     testing.TB
	woken chan struct{}
	stop  func()
	ended chan error

	mu  sync.Mutex
	all []replication.Status
}

// listening runs Listen until the test ends, or stop is called.
func (d *database) listening(t testing.TB, opts *replication.Options) *testListener {
	t.Helper()
	e := &testListener{t: t, woken: make(chan struct{}, 1000), ended: make(chan error, 1)}
	set := replication.Options{Heartbeat: 20 * time.Millisecond, CheckEvery: 20 * time.Millisecond}
	if opts != nil {
		set = *opts
	}
	set.Log = slog.New(slog.DiscardHandler)
	set.Observe = func(s replication.Status) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.all = append(e.all, s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.ended <- replication.Listen(ctx, d.pool.Config().ConnConfig, d.box.Table(), func() { e.woken <- struct{}{} }, &set)
	}()
	e.stop = func() { cancel(); <-done }
	t.Cleanup(e.stop)
	return e
}

// ready waits for the wake at the beginning.
func (e *testListener) ready() *testListener {
	e.t.Helper()
	e.wake("the connection")
	return e
}

func (e *testListener) wake(after string) {
	e.t.Helper()
	select {
	case <-e.woken:
	case err := <-e.ended:
		e.t.Fatalf("no wake after %s; it ended: %v", after, err)
	case <-time.After(3 * time.Minute):
		e.t.Fatalf("no wake after %s; it stands so: %+v", after, e.status())
	}
}

func (e *testListener) end() error {
	e.t.Helper()
	select {
	case err := <-e.ended:
		return err
	case <-time.After(3 * time.Minute):
		e.t.Fatalf("it does not end; it stands so: %+v", e.status())
		return nil
	}
}

func (e *testListener) status() replication.Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.all) == 0 {
		return replication.Status{}
	}
	return e.all[len(e.all)-1]
}

// passed waits until the server may forget all that has been written by now.
func (d *database) passed(t testing.TB, slot string) {
	t.Helper()
	now := ask[string](t, d, "SELECT pg_current_wal_lsn()::text")
	until(t, "the slot advances", func() bool {
		return ask[bool](t, d, "SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name = $1 AND confirmed_flush_lsn >= $2::text::pg_lsn", slot, now)
	})
}
