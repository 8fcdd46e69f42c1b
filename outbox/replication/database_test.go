package replication_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/store/pgxstore"
)

// database is an outbox in a new schema.
type database struct {
	pool     *pgxpool.Pool
	receiver *everonce.TxReceiver[pgx.Tx]
	box      *outbox.Outbox[pgx.Tx]
}

func newDatabase(t testing.TB, url string) *database {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	name := "r_" + strings.ToLower(rand.Text()[:16])
	config.ConnConfig.RuntimeParams["search_path"] = name
	d := new(database)
	if d.pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.pool.Close)
	d.must(t, "CREATE SCHEMA "+name)
	d.must(t, "CREATE TABLE other (n bigint)")
	store, err := pgxstore.New(d.pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d.receiver, err = everonce.NewTxReceiver(store, nil); err != nil {
		t.Fatal(err)
	}
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.box = d.outbox(t, &outbox.Options{NoAnnounce: true})
	if err := d.box.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *database) outbox(t testing.TB, opts *outbox.Options) *outbox.Outbox[pgx.Tx] {
	t.Helper()
	box, err := outbox.New(d.receiver, opts)
	if err != nil {
		t.Fatal(err)
	}
	return box
}

func (d *database) must(t testing.TB, text string, args ...any) {
	t.Helper()
	if _, err := d.pool.Exec(context.Background(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func ask[T any](t testing.TB, d *database, text string, args ...any) (answer T) {
	t.Helper()
	if err := d.pool.QueryRow(context.Background(), text, args...).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return answer
}

// publish commits an event.
func (d *database) publish(t testing.TB) {
	t.Helper()
	if err := d.receiver.InTx(t.Context(), d.insert); err != nil {
		t.Fatal(err)
	}
}

func (d *database) insert(ctx context.Context, tx pgx.Tx) error {
	return d.box.Publish(ctx, tx, outbox.Event{Topic: "orders"})
}

// begin leaves a transaction open that has inserted an event.
func (d *database) begin(t testing.TB) pgx.Tx {
	t.Helper()
	tx, err := d.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if err := d.insert(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	return tx
}

// until polls until a condition holds: a condition of a server, which sends no notification.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.After(3 * time.Minute); !holds(); {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-end:
			t.Fatalf("%s: it did not come about", what)
		}
	}
}

// sink notes the IDs of what was published.
type sink struct {
	mu  sync.Mutex
	ids map[string]int
}

func (s *sink) Publish(_ context.Context, events []outbox.Event) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = make(map[string]int)
	}
	for i := range events {
		s.ids[events[i].ID]++
	}
	return nil
}

// await waits for n events, and fails if one came twice.
func (s *sink) await(t testing.TB, n int) {
	t.Helper()
	until(t, fmt.Sprint(n, " events"), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for id, times := range s.ids {
			if times > 1 {
				t.Fatalf("%s was published %d times", id, times)
			}
		}
		return len(s.ids) >= n
	})
}

// relaying runs a relay until the test ends, or stop is called.
func (d *database) relaying(t testing.TB, box *outbox.Outbox[pgx.Tx], to outbox.Publisher, opts outbox.RelayOptions) (relay *outbox.Relay, stop func()) {
	t.Helper()
	relay, err := box.Relay(to, &opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return relay, stop
}
