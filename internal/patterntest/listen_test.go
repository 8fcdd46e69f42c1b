package patterntest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/inbox"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/outbox"
)

func TestTrapAListenerIsLost(t *testing.T) {
	t.Parallel()
	t.Run("pgx", func(t *testing.T) { t.Parallel(); testTrapAListenerIsLost(t, onPgx(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); testTrapAListenerIsLost(t, onPostgres(t)) })
}

// A relay that polls once in an hour is woken by each commit, also after the server has ended the connection on which
// it listens; and it polls when it listens again, for commits that it has missed.
func testTrapAListenerIsLost[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := limited(t)
	box, to := newOutbox(t, h), newArrivals()
	var heard, claims atomic.Int64
	watched := h.on(t, &tamperedStore[Tx]{h.store, &hearingDB[Tx]{&tamperedDB[Tx]{h.sqldb(t), &tampering{around: func(_ context.Context, what string, call func() error) error {
		if what == "outbox_claim" {
			claims.Add(1)
		}
		return call()
	}}}, &heard}})
	relaying(t, newOutbox(t, watched), to.publisher(), &outbox.RelayOptions{Poll: time.Hour})
	hears := func(what string, n int64) {
		t.Helper()
		must(t, within(ctx, what, func() (bool, error) { return heard.Load() >= n, nil }))
	}
	hears("it listens", 1)
	h.publish(t, box, outbox.Event{ID: "1", Topic: "orders"})
	hears("a commit", 2)
	must(t, to.await(ctx, 1))

	query := "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query = 'LISTEN \"" + channelOf(t, h) + "\"'"
	if n := h.number(t, query); n != 1 {
		t.Fatalf("%d connections listen", n)
	}
	hears("it listens again", 3)
	before := claims.Load()
	must(t, within(ctx, "a look", func() (bool, error) { return claims.Load() > before, nil }))
	h.publish(t, box, outbox.Event{ID: "2", Topic: "orders"})
	hears("a commit", 4)
	must(t, to.await(ctx, 2))
}

// A worker hears of what is taken in.
func TestTrapAWorkerIsWoken(t *testing.T) {
	t.Parallel()
	h, ctx := onPgx(t), limited(t)
	newInbox(t, h, nil)
	var heard atomic.Int64
	watched := h.on(t, &tamperedStore[pgx.Tx]{h.store, &hearingDB[pgx.Tx]{&tamperedDB[pgx.Tx]{h.sqldb(t), &tampering{}}, &heard}})
	in := newInbox(t, watched, nil)
	told, _ := working(t, in, &inbox.WorkerOptions{Poll: time.Hour}, nothing[pgx.Tx]())
	must(t, within(ctx, "it listens", func() (bool, error) { return heard.Load() == 1, nil }))
	receive(t, in, message("1"))
	must(t, within(ctx, "a commit", func() (bool, error) { return heard.Load() == 2, nil }))
	told.await(t, 1)
}

// hearingDB counts what its listeners hear.
type hearingDB[Tx any] struct {
	*tamperedDB[Tx]
	heard *atomic.Int64
}

func (d *hearingDB[Tx]) Listen(ctx context.Context, channel string, heard func()) error {
	l, ok := d.DB.(sqldb.Listener)
	if !ok {
		return errors.ErrUnsupported
	}
	return l.Listen(ctx, channel, func() { heard(); d.heard.Add(1) })
}

func channelOf[Tx any](t testing.TB, h *handle[Tx]) string {
	t.Helper()
	return queueOf(t, h).Channel()
}
