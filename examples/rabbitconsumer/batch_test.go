package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
)

var errClosed = errors.New("the bank is closed")

// spec books the orders of a batch by one statement; after is called behind it, with their IDs.
func (b *bench) spec(after func(ctx context.Context, tx pgx.Tx, ids []string) error) orderSpec {
	return orderSpec{
		Consumer: "billing", Key: consume.ProducerID(), Retry: consume.RetryPolicy{Limit: 3, Min: time.Millisecond, Max: 100 * time.Millisecond},
		HandleAll: func(ctx context.Context, tx pgx.Tx, batch []consume.Received[Order]) error {
			if err := insertInvoices(ctx, tx, batch); err != nil {
				return err
			}
			ids := make([]string, len(batch))
			for i, r := range batch {
				ids[i] = r.Payload.ID
			}
			return after(ctx, tx, ids)
		},
	}
}

func allWell(context.Context, pgx.Tx, []string) error { return nil }

// Batches fill up from what the broker has sent ahead, and are one commit each; all messages are acknowledged, and a
// second delivery of them books nothing.
func TestBatchesFillUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.sendMany(0, 120)
	var mu sync.Mutex
	var sizes []int
	r := b.run(b.broker, b.spec(func(_ context.Context, _ pgx.Tx, ids []string) error {
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, len(ids))
		return nil
	}), consume.Workers{Batch: 40, BatchDelay: soon, Concurrency: 2})
	r.wantsOnly(120, everonce.Executed)
	b.sendMany(0, 120)
	r.wantsOnly(120, everonce.Replayed)
	b.wantLength(b.queue.Name, 0)
	r.stop()
	b.wantLength(b.queue.Name, 0)
	b.wants(120, 3)
	if !slices.Equal(sizes, []int{40, 40, 40}) {
		t.Errorf("batches of %v, want three of 40", sizes)
	}
}

// A batch that does not fill up is handled too; so is a message that is in the queue twice, and one without a key.
func TestAnIncompleteBatchIsHandled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send("o-1", "o-2", "o-1", "")
	r := b.run(b.broker, b.spec(allWell), consume.Workers{Batch: 100})
	if got := r.outcomes(4); got[everonce.Executed] != 2 || got[everonce.Replayed] != 1 || got[0] != 1 {
		t.Errorf("%v", got)
	}
	if reason := b.letter(); reason != "no_key" {
		t.Errorf("a dead letter with the reason %v", reason)
	}
	b.wantLength(b.queue.Name, 0)
	b.wants(2, 0)
}

// A message that fails is retried, and becomes a dead letter, alone; so is one that is refused. Their neighbours
// commit.
func TestAFailingMessageOfABatchIsAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.sendMany(0, 10)
	b.send("fails", "refused")
	b.sendMany(10, 20)
	r := b.run(b.broker, b.spec(func(_ context.Context, _ pgx.Tx, ids []string) error {
		switch {
		case slices.Contains(ids, "fails"):
			return everonce.NotDone(errClosed)
		case slices.Contains(ids, "refused"):
			return everonce.Permanent("no_such_account", errClosed, nil)
		}
		return nil
	}), consume.Workers{Batch: 22, BatchDelay: 0, Concurrency: 1})
	reasons := []any{b.letter(), b.letter()}
	if !slices.Equal(reasons, []any{"rejected", "exhausted"}) {
		t.Errorf("dead letters: %v", reasons)
	}
	if got := r.outcomes(20 + 1 + 4); got[everonce.Executed] != 20 || got[everonce.Rejected] != 1 || got[everonce.Failed] != 4 {
		t.Errorf("%v", got)
	}
	for _, q := range b.queues() {
		b.wantLength(q, 0)
	}
	b.wants(20, 0)
}

// The connection to the broker is cut while a batch is open: it commits, its acknowledgements go nowhere, and what
// the broker delivers again is in progress first, and replayed in the end.
func TestABatchWhoseConnectionIsCut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.sendMany(0, 20)
	w := newWire(t, b.broker)
	begun, end := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r := b.run(w.url, b.spec(func(context.Context, pgx.Tx, []string) error {
		once.Do(func() { close(begun); <-end })
		return nil
	}), consume.Workers{Batch: 20, BatchDelay: soon, Concurrency: 2})
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
	b.wants(20, 1)
}

// The connection to the database is ended while a batch is open: nothing of it has taken hold, nothing is acknowledged
// or counted as a failure, and it is handled anew.
func TestABatchWhoseTransactionIsKilled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.sendMany(0, 20)
	killed := false
	spec := b.spec(func(ctx context.Context, tx pgx.Tx, _ []string) error {
		if killed {
			return nil
		}
		killed = true
		_, err := tx.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
		return err
	})
	spec.Retry.Limit = -1 // a failure that counts would be a dead letter
	r := b.run(b.broker, spec, consume.Workers{Batch: 20, BatchDelay: soon, Concurrency: 1})
	for executed := 0; executed < 20; {
		if r.verdict().Outcome == everonce.Executed {
			executed++
		}
	}
	b.wantLength(b.queue.Name, 0)
	r.stop()
	b.wantLength(b.queue.DeadLetters, 0)
	b.wants(20, 0)
}

// The end comes while a batch is open and another is being collected: what was begun is finished and acknowledged,
// the rest is given back, and nothing of it is booked.
func TestDrainInABatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.sendMany(0, 25)
	begun, end := make(chan struct{}), make(chan struct{})
	r := b.run(b.broker, b.spec(func(context.Context, pgx.Tx, []string) error {
		close(begun)
		<-end
		return nil
	}), consume.Workers{Batch: 10, BatchDelay: soon, Concurrency: 1})
	wait(t, "the batch", begun)
	b.wantLength(b.queue.Name, 5) // twenty were sent ahead
	r.end()
	b.wantLength(b.queue.Name, 15)
	close(end)
	r.wantsOnly(10, everonce.Executed)
	r.stop()
	b.wantLength(b.queue.Name, 15)
	b.wants(10, 1)
}

// The end comes while a batch waits for more messages: each of them is either booked and acknowledged, or given back.
func TestDrainWhileABatchIsCollected(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.sendMany(0, 3)
	r := b.run(b.broker, b.spec(allWell), consume.Workers{Batch: 10, BatchDelay: soon, Concurrency: 1})
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
	b.wants(booked, 0)
}

// A prefetch that no batch fits into would make each of them wait for messages that do not come.
func TestAPrefetchBelowTheBatchIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h, err := consume.NewTx(b.recv, b.spec(allWell))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		prefetch int
		refused  bool
	}{{49, true}, {50, false}, {0, false}} {
		c, err := rabbitonce.Dial(t.Context(), b.broker, b.queue, h, &rabbitonce.Options{Prefetch: tc.prefetch, Workers: consume.Workers{Batch: 50}})
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

// The consumer of the example handles a queue that is full of duplicates.
func TestManyInvoices(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	queue := b.queue.Name + ".many"
	c, err := manyInvoices(t.Context(), b.broker, queue, b.recv)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, suffix := range []string{"", ".dead", ".retry.1s", ".retry.5s", ".retry.30s", ".retry.2m", ".retry.10m"} {
			if _, err := b.ch.QueueDelete(queue+suffix, false, false, false); err != nil {
				t.Error(err)
			}
		}
	}()
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	for i := range 300 {
		if err := published(b.ch, queue, fmt.Sprint("o-", i%100), fmt.Sprintf(`{"id":"o-%d","cents":1200}`, i%100)); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, done, func() bool {
		var invoices int
		err := b.pool.QueryRow(t.Context(), `SELECT count(*) FROM invoice`).Scan(&invoices)
		return err == nil && invoices >= 100
	})
	b.wantLength(queue, 0) // all were sent ahead; what is not handled yet is given back at the end
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
	b.wants(100, 0)
}
