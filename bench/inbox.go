package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/inbox"
)

const (
	worked  = 3000 // messages in one turn
	workers = 8
)

// working: a full table of messages, each of which charges an account.
func (b *patternBench) working() *contest {
	bare := &way{name: "bare: SKIP LOCKED, work, UPDATE", before: func() error {
		if err := b.exec("TRUNCATE {s}.bare"); err != nil {
			return err
		}
		if _, err := b.pool.Exec(context.Background(), "INSERT INTO "+b.schema+`.bare (id, topic, order_key, type, content_type, headers, payload)
			SELECT 'message-' || g, 'billing', '', 'order.placed', 'application/json', '', $2 FROM generate_series(1, $1::int) AS g`, worked, payload); err != nil {
			return err
		}
		return b.vacuum("bare")
	}, whole: b.workBare}
	var turn atomic.Int64
	ours := &way{name: "ours", before: func() error {
		if err := b.exec("TRUNCATE {s}.everonce_inbox"); err != nil {
			return err
		}
		if _, err := b.pool.Exec(context.Background(), "INSERT INTO "+b.schema+`.everonce_inbox
			(consumer, id, type, order_key, source, content_type, headers, body, priority, expires_at, state, attempts, rank, due_at, created_at, token, error)
			SELECT 'billing', 'message-' || $3::bigint || '-' || g, 'order.placed', '', 'orders', 'application/json', '', $2, 0, 0, 0, 0, c.now + g, c.now, c.now, 0, ''
			FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 100000000 AS now) AS c, generate_series(1, $1::int) AS g ORDER BY g`,
			worked, payload, turn.Add(1)); err != nil {
			return err
		}
		return b.vacuum("everonce_inbox")
	}, whole: b.workOurs}
	return &contest{
		store: "PostgreSQL", mode: "inbox, work", callers: workers, trips: &b.trips, ways: []*way{bare, ours},
		targets: []target{ours.atLeast(0.6, bare, "inbox worker: rate × of a bare worker loop")},
	}
}

// workBare takes one message after the other, in a transaction with its effect.
func (b *patternBench) workBare(ctx context.Context) (int64, error) {
	claim := "SELECT seq, id, topic, type, content_type, headers, payload FROM " + b.schema +
		".bare WHERE state = 0 ORDER BY seq LIMIT 1 FOR UPDATE SKIP LOCKED"
	mark := "UPDATE " + b.schema + ".bare SET state = 4, done_at = now() WHERE seq = $1"
	var done atomic.Int64
	var failed atomic.Pointer[error]
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for {
				err := b.inTx(ctx, func(tx pgx.Tx) error {
					var m consume.Message
					var seq int64
					var headers string
					if err := tx.QueryRow(ctx, claim).Scan(&seq, &m.ID, &m.Source, &m.Subject, &m.ContentType, &headers, &m.Body); err != nil {
						return err
					}
					if _, err := b.work(ctx, tx); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, mark, seq)
					return err
				})
				if err != nil {
					if !errors.Is(err, pgx.ErrNoRows) {
						failed.CompareAndSwap(nil, &err)
					}
					return
				}
				done.Add(1)
			}
		})
	}
	group.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return done.Load(), nil
}

func (b *patternBench) workOurs(ctx context.Context) (int64, error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var done atomic.Int64
	worker, err := b.in.Worker(inbox.Handler[pgx.Tx]{Handle: func(ctx context.Context, tx pgx.Tx, _ *consume.Message) error {
		_, err := b.work(ctx, tx)
		return err
	}}, &inbox.WorkerOptions{Concurrency: workers, Log: silent, Observe: func(_ context.Context, _ *consume.Message, v inbox.Report) {
		if v.How == inbox.Handled && done.Add(1) >= worked {
			end()
		}
	}})
	if err == nil {
		err = worker.Run(ctx)
	}
	return done.Load(), err
}
