package patterntest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/inbox"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/outbox"
)

// errCrash is the failure of a call at which something ends.
var errCrash = errors.New("crash point")

// crashPoint fails one call of all that are made from its making on.
type crashPoint struct {
	at    int64
	after bool // the call is made, and its answer is lost
	n     atomic.Int64
}

// fails reports whether this call is the one.
func (c *crashPoint) fails() bool { return c.n.Add(1) == c.at }

func (c *crashPoint) reached() bool { return c.n.Load() >= c.at }

func (c *crashPoint) around(_ context.Context, _ string, call func() error) error {
	switch {
	case !c.fails():
		return call()
	case c.after:
		return errors.Join(errCrash, call())
	}
	return errCrash
}

// plan is the same for the core's calls.
func (c *crashPoint) plan(oncetest.Call) oncetest.Fault {
	switch {
	case !c.fails():
		return oncetest.Pass
	case c.after:
		return oncetest.FailAfter
	}
	return oncetest.FailBefore
}

// everyPoint runs a life with each of its calls failing, before and after it is made, until every call has failed once.
// With -short each call fails in one way, by chance.
func everyPoint(t *testing.T, life func(c *crashPoint, name string)) {
	t.Helper()
	points := 0
	for at := int64(1); !t.Failed(); at++ {
		ways := []string{"before", "after"}
		if testing.Short() {
			ways = ways[rand.IntN(2):][:1]
		}
		reached := true
		for _, way := range ways {
			c := &crashPoint{at: at, after: way == "after"}
			life(c, fmt.Sprintf("%d %s", at, way))
			reached = reached && c.reached()
		}
		if !reached {
			break
		}
		points++
	}
	if points < 5 {
		t.Errorf("%d calls in all: the test is blind", points)
	}
	t.Logf("%d calls", points)
}

// whatever runs something that ends with a failure again, until the context ends.
func whatever(ctx context.Context, run func() (interface{ Run(context.Context) error }, error)) <-chan error {
	done := make(chan error, 1)
	go func() {
		for {
			r, err := run()
			if err == nil {
				err = r.Run(ctx)
			}
			if ctx.Err() != nil || err != nil && !errors.Is(err, errCrash) {
				done <- err
				return
			}
		}
	}()
	return done
}

// onEachDatabase is onAll, but with -short without PostgreSQL through database/sql.
func onEachDatabase(t *testing.T, pgxTest func(*testing.T, *handle[pgx.Tx]), sqlTest func(*testing.T, *handle[*sql.Tx])) {
	if !testing.Short() {
		onAll(t, pgxTest, sqlTest)
		return
	}
	t.Parallel()
	t.Run("pgx", func(t *testing.T) { t.Parallel(); pgxTest(t, onPgx(t)) })
	onMySQLs(t, sqlTest)
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); sqlTest(t, onSQLite(t)) })
}

func TestCrashPointsOfARelay(t *testing.T) {
	onEachDatabase(t, testCrashPointsOfARelay[pgx.Tx], testCrashPointsOfARelay[*sql.Tx])
}

// Whatever call of a relay fails, done or not, all is published in the end, with the same IDs and in order.
func testCrashPointsOfARelay[Tx any](t *testing.T, h *handle[Tx]) {
	plain := newOutbox(t, h)
	ctx, cancel := context.WithTimeout(t.Context(), hung)
	defer cancel()
	everyPoint(t, func(c *crashPoint, name string) {
		to := newArrivals()
		events := line("orders", name, 3)
		h.publish(t, plain, events...)
		renewed := make(chan struct{})
		var once sync.Once
		box, err := outbox.New(tampered(t, h, &tampering{around: func(ctx context.Context, what string, call func() error) error {
			if what == "outbox_renew" {
				defer once.Do(func() { close(renewed) })
			}
			return c.around(ctx, what, call)
		}}).receiver, nil)
		must(t, err)
		living, end := context.WithCancel(ctx)
		done := whatever(living, func() (interface{ Run(context.Context) error }, error) {
			return box.Relay(outbox.PublisherFunc(func(ctx context.Context, events []outbox.Event) []error {
				select {
				case <-renewed: // so that a renewal is one of the calls
				case <-ctx.Done():
				}
				return to.publisher().Publish(ctx, events)
			}), &outbox.RelayOptions{Lease: 150 * time.Millisecond, Poll: 20 * time.Millisecond, Retry: quick, NoListen: true})
		})
		err = errors.Join(to.await(ctx, len(events)), within(ctx, "all marked", func() (bool, error) {
			s, err := plain.Backlog().Stats(ctx)
			return s.Waiting+s.InHand+s.Delayed+s.Blocked == 0, err
		}))
		end()
		if err := errors.Join(err, <-done); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, e := range events {
			if !to.has(e.ID) {
				t.Errorf("%s: %s is lost", name, e.ID)
			}
		}
		if n, _, err := to.distinct(); n != len(events) || err != nil {
			t.Errorf("%s: %d different events: %v", name, n, err)
		}
	})
}

func TestCrashPointsOfAWorker(t *testing.T) {
	onEachDatabase(t, testCrashPointsOfAWorker[pgx.Tx], testCrashPointsOfAWorker[*sql.Tx])
}

// Whatever call of a worker fails, the core's in its transaction included, each message takes effect once in the end.
func testCrashPointsOfAWorker[Tx any](t *testing.T, h *handle[Tx]) {
	plain := newInbox(t, h, killInbox())
	newOutbox(t, h)
	ctx, cancel := context.WithTimeout(t.Context(), hung)
	defer cancel()
	retry := quick
	retry.Limit = 100
	everyPoint(t, func(c *crashPoint, name string) {
		for i := range 2 {
			m := message(fmt.Sprint(name, " ", i))
			m.Subject = name
			receive(t, plain, m)
		}
		faulty := h.on(t, &tamperedStore[Tx]{oncetest.FaultTxStore[Tx](h.store, c.plan), tampered(t, h, &tampering{around: c.around}).sqldb(t)})
		in, err := inbox.New(faulty.receiver, "billing", killInbox())
		must(t, err)
		box, err := outbox.New(faulty.receiver, nil)
		must(t, err)
		living, end := context.WithCancel(ctx)
		done := whatever(living, func() (interface{ Run(context.Context) error }, error) {
			return in.Worker(inbox.Handler[Tx]{Handle: func(ctx context.Context, tx Tx, m *consume.Message) error {
				if err := h.exec(ctx, tx, "INSERT INTO effects (name) VALUES ($1)", m.ID); err != nil {
					return err
				}
				return box.Publish(ctx, tx, outbox.Event{Topic: "billed", Payload: []byte(m.ID)})
			}}, &inbox.WorkerOptions{Lease: 150 * time.Millisecond, Poll: 20 * time.Millisecond, Retry: retry, NoListen: true})
		})
		err = within(ctx, "all handled", func() (bool, error) {
			s, err := plain.Backlog().Stats(ctx)
			return s.Waiting+s.InHand+s.Delayed+s.Blocked == 0, err
		})
		end()
		if err := errors.Join(err, <-done); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i := range 2 {
			id := fmt.Sprint(name, " ", i)
			if n := h.number(t, "SELECT count(*) FROM effects WHERE name = $1", id); n != 1 {
				t.Errorf("%s: %d effects", id, n)
			}
			if n := h.number(t, "SELECT count(*) FROM everonce_outbox WHERE payload = $1", []byte(id)); n != 1 {
				t.Errorf("%s: %d events", id, n)
			}
		}
	})
}
