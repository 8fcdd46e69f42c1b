package rabbitonce_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/pgxstore"
)

// books is a database of the test's own: what is booked commits with the records.
type books struct {
	t    *testing.T
	pool *pgxpool.Pool
	recv *everonce.TxReceiver[pgx.Tx]
}

func newBooks(t *testing.T) *books {
	t.Helper()
	address := os.Getenv("EVERONCE_TEST_POSTGRES_URL")
	if address == "" {
		t.Fatal(`no PostgreSQL to test with: run scripts/services up, then eval "$(scripts/services env)", or set EVERONCE_TEST_POSTGRES_URL`)
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal("EVERONCE_TEST_POSTGRES_URL is no URL")
	}
	schema := "rabbitonce_" + strings.ToLower(rand.Text())
	query := u.Query()
	query.Set("search_path", schema)
	query.Set("pool_max_conns", "6")
	u.RawQuery = query.Encode()
	b := &books{t: t}
	if b.pool, err = pgxpool.New(t.Context(), u.String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.pool.Close)
	b.exec("CREATE SCHEMA " + schema)
	t.Cleanup(func() { b.exec("DROP SCHEMA " + schema + " CASCADE") })
	b.exec("CREATE TABLE booked (id text NOT NULL)") // no unique index: what is booked twice must show
	// Named, and not only found by the search_path: the locks of keys are of the whole database.
	store, err := pgxstore.New(b.pool, &pgxstore.Options{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b.recv, err = everonce.NewTxReceiver(store, nil); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *books) exec(text string) {
	b.t.Helper()
	if _, err := b.pool.Exec(context.Background(), text); err != nil {
		b.t.Fatal(err)
	}
}

// wants checks that so many messages were booked, each once, in so many commits; 0 is any number of them.
func (b *books) wants(messages, commits int) {
	b.t.Helper()
	var rows, distinct, in int
	err := b.pool.QueryRow(b.t.Context(), `SELECT count(*), count(DISTINCT id), count(DISTINCT xmin::text) FROM booked`).Scan(&rows, &distinct, &in)
	if err != nil {
		b.t.Fatal(err)
	}
	if rows != messages || distinct != messages || commits > 0 && in != commits {
		b.t.Errorf("%d rows of %d messages in %d commits, want each of %d messages once in %d", rows, distinct, in, messages, commits)
	}
}

type bookTx = consume.TxSpec[order, pgx.Tx]

// bookAll books the messages of a batch by one statement, after before was called.
func bookAll(before func(ctx context.Context, tx pgx.Tx, ids []string) error) bookTx {
	spec := bookTx{Consumer: "billing", Key: consume.ProducerID(), Retry: specOf(nothing).Retry}
	spec.HandleAll = func(ctx context.Context, tx pgx.Tx, batch []consume.Received[order]) error {
		ids := make([]string, len(batch))
		for i, r := range batch {
			ids[i] = r.Payload.ID
		}
		if _, err := tx.Exec(ctx, `INSERT INTO booked SELECT * FROM unnest($1::text[])`, ids); err != nil {
			return err
		}
		return before(ctx, tx, ids)
	}
	return spec
}

// runTx runs a consumer of batches on the bench's queue.
func (b *bench) runTx(books *books, address string, spec bookTx, workers consume.Workers) *running {
	b.t.Helper()
	opts, _ := connections(&rabbitonce.Options{Workers: workers})
	return b.runWith(address, opts, func(observe observer) (*consume.Consumer, error) {
		spec.Observe = observe
		return consume.NewTx(books.recv, spec)
	})
}

func (b *bench) sendMany(from, to int) {
	b.t.Helper()
	for i := from; i < to; i++ {
		b.send(message(fmt.Sprint("m-", i)))
	}
}

// outcomes counts the outcomes of so many messages.
func (r *running) outcomes(n int) map[everonce.Outcome]int {
	r.t.Helper()
	counted := map[everonce.Outcome]int{}
	for range n {
		counted[r.verdict().Outcome]++
	}
	return counted
}

func (r *running) wantsOnly(n int, outcome everonce.Outcome) {
	r.t.Helper()
	if got := r.outcomes(n); got[outcome] != n {
		r.t.Errorf("%v, want %d of %v", got, n, outcome)
	}
}

func allWell(context.Context, pgx.Tx, []string) error { return nil }

// Batches fill up from what the broker has sent ahead, and are one commit each; all messages are acknowledged, and a
// second delivery of them books nothing.
func TestBatchesFillUp(t *testing.T) {
	t.Parallel()
	b, books := newBench(t), newBooks(t)
	b.declare()
	b.sendMany(0, 120)
	var mu sync.Mutex
	var sizes []int
	r := b.runTx(books, b.url, bookAll(func(_ context.Context, _ pgx.Tx, ids []string) error {
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, len(ids))
		return nil
	}), consume.Workers{Batch: 40, BatchWithin: soon, Concurrency: 2})
	r.wantsOnly(120, everonce.Executed)
	b.sendMany(0, 120)
	r.wantsOnly(120, everonce.Replayed)
	b.wantLength(b.queue.Name, 0)
	r.stop()
	b.wantLength(b.queue.Name, 0)
	books.wants(120, 3)
	if !slices.Equal(sizes, []int{40, 40, 40}) {
		t.Errorf("batches of %v, want three of 40", sizes)
	}
}

// A batch that does not fill up is handled all the same; so is a message that is there twice, and one without a key.
func TestAnIncompleteBatchIsHandled(t *testing.T) {
	t.Parallel()
	b, books := newBench(t), newBooks(t)
	b.declare()
	b.send(message("m-1"), message("m-2"), message("m-1"), message(""))
	r := b.runTx(books, b.url, bookAll(allWell), consume.Workers{Batch: 100})
	if got := r.outcomes(4); got[everonce.Executed] != 2 || got[everonce.Replayed] != 1 || got[0] != 1 {
		t.Errorf("%v", got)
	}
	if d := b.letter(); d.Headers["x-everonce-reason"] != "no_key" {
		t.Errorf("%v", d.Headers)
	}
	b.wantLength(b.queue.Name, 0)
	books.wants(2, 0)
}

// A message that fails is retried, and becomes a dead letter, alone; so is one that is refused. Their neighbours commit.
func TestAFailingMessageOfABatchIsAlone(t *testing.T) {
	t.Parallel()
	b, books := newBench(t), newBooks(t)
	b.declare()
	b.sendMany(0, 10)
	b.send(message("fails"), message("refused"))
	b.sendMany(10, 20)
	r := b.runTx(books, b.url, bookAll(func(_ context.Context, _ pgx.Tx, ids []string) error {
		switch {
		case slices.Contains(ids, "fails"):
			return everonce.NotDone(errClosed)
		case slices.Contains(ids, "refused"):
			return everonce.Permanent("no_such_account", errClosed, nil)
		}
		return nil
	}), consume.Workers{Batch: 22, BatchWithin: 0, Concurrency: 1})
	reasons := []any{b.letter().Headers["x-everonce-reason"], b.letter().Headers["x-everonce-reason"]}
	if !slices.Equal(reasons, []any{"rejected", "exhausted"}) {
		t.Errorf("dead letters: %v", reasons)
	}
	if got := r.outcomes(20 + 1 + 4); got[everonce.Executed] != 20 || got[everonce.Rejected] != 1 || got[everonce.Failed] != 4 {
		t.Errorf("%v", got)
	}
	for _, q := range b.queues() {
		b.wantLength(q, 0)
	}
	books.wants(20, 0)
}

// The connection to the broker is cut while a batch is open: it commits, its acknowledgements go nowhere, and what
// the broker delivers again is in progress first, and replayed in the end.
func TestABatchWhoseConnectionIsCut(t *testing.T) {
	t.Parallel()
	b, books := newBench(t), newBooks(t)
	b.declare()
	b.sendMany(0, 20)
	w := newWire(t, b.url)
	begun, end := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r := b.runTx(books, w.url, bookAll(func(context.Context, pgx.Tx, []string) error {
		once.Do(func() { close(begun); <-end })
		return nil
	}), consume.Workers{Batch: 20, BatchWithin: soon, Concurrency: 2})
	wait(t, "the batch", begun)
	w.cut()
	r.wantsOnly(20, everonce.InProgress) // by the next connection
	close(end)
	for done := map[everonce.Outcome]int{}; done[everonce.Executed] < 20 || done[everonce.Replayed] < 20; {
		done[r.verdict().Outcome]++
	}
	for _, q := range b.queues() {
		b.wantLength(q, 0)
	}
	r.stop()
	books.wants(20, 1)
}

// The connection to the database is ended while a batch is open: nothing of it has taken hold, nothing is acknowledged
// or counted as a failure, and it is handled anew.
func TestABatchWhoseTransactionIsKilled(t *testing.T) {
	t.Parallel()
	b, books := newBench(t), newBooks(t)
	b.declare()
	b.sendMany(0, 20)
	killed := false
	spec := bookAll(func(ctx context.Context, tx pgx.Tx, _ []string) error {
		if killed {
			return nil
		}
		killed = true
		_, err := tx.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
		return err
	})
	spec.Retry.Limit = -1 // a failure that counts would be a dead letter
	r := b.runTx(books, b.url, spec, consume.Workers{Batch: 20, BatchWithin: soon, Concurrency: 1})
	for executed := 0; executed < 20; {
		if r.verdict().Outcome == everonce.Executed {
			executed++
		}
	}
	b.wantLength(b.queue.Name, 0)
	r.stop()
	b.wantLength(b.queue.DeadLetters, 0)
	books.wants(20, 0)
}

// The end comes while a batch is open and another is being collected: what was begun is finished and acknowledged,
// the rest is given back, and nothing of it is booked.
func TestDrainInABatch(t *testing.T) {
	t.Parallel()
	b, books := newBench(t), newBooks(t)
	b.declare()
	b.sendMany(0, 25)
	begun, end := make(chan struct{}), make(chan struct{})
	r := b.runTx(books, b.url, bookAll(func(context.Context, pgx.Tx, []string) error {
		close(begun)
		<-end
		return nil
	}), consume.Workers{Batch: 10, BatchWithin: soon, Concurrency: 1})
	wait(t, "the batch", begun)
	b.wantLength(b.queue.Name, 5) // twenty were sent ahead
	r.end()
	b.wantLength(b.queue.Name, 15)
	close(end)
	r.wantsOnly(10, everonce.Executed)
	r.stop()
	b.wantLength(b.queue.Name, 15)
	books.wants(10, 1)
}

// The end comes while a batch waits for more messages: each of them is either booked and acknowledged, or given back.
func TestDrainWhileABatchIsCollected(t *testing.T) {
	t.Parallel()
	b, books := newBench(t), newBooks(t)
	b.declare()
	b.sendMany(0, 3)
	r := b.runTx(books, b.url, bookAll(allWell), consume.Workers{Batch: 10, BatchWithin: soon, Concurrency: 1})
	b.wantLength(b.queue.Name, 0) // they were sent
	r.stop()
	close(r.verdicts)
	booked := 0
	for v := range r.verdicts {
		if v.Outcome != everonce.Executed {
			t.Errorf("%v, %v", v.Outcome, v.Err)
		}
		booked++
	}
	b.wantLength(b.queue.Name, 3-booked)
	books.wants(booked, 0)
}

// A prefetch that no batch fits into would make each of them wait for messages that do not come.
func TestAPrefetchBelowTheBatchIsRefused(t *testing.T) {
	t.Parallel()
	books := newBooks(t)
	h, err := consume.NewTx(books.recv, bookAll(allWell))
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	b.declare()
	for _, tc := range []struct {
		prefetch int
		refused  bool
	}{{49, true}, {50, false}, {0, false}} {
		c, err := rabbitonce.Dial(b.url, b.queue, h, &rabbitonce.Options{Prefetch: tc.prefetch, Workers: consume.Workers{Batch: 50}})
		if refused := errors.Is(err, everonce.ErrInvalidArgument) && strings.Contains(err.Error(), "Prefetch"); refused != tc.refused {
			t.Errorf("Prefetch %d: %v", tc.prefetch, err)
		}
		if err == nil {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
