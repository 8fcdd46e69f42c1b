package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/outbox"
)

const (
	published = 500    // events in one call
	relayed   = 30_000 // events in one turn of the relay
)

// publishing: 500 events in one transaction. Bare is the same bytes in one INSERT, without what a relay needs to know.
func (b *patternBench) publishing() *contest {
	rows := make([]string, published)
	for i := range rows {
		at := i * 7
		rows[i] = fmt.Sprintf("($%d, $%d, $%d, $%d, $%d, $%d, $%d)", at+1, at+2, at+3, at+4, at+5, at+6, at+7)
	}
	insert := "INSERT INTO " + b.schema + ".bare (id, topic, order_key, type, content_type, headers, payload) VALUES " + strings.Join(rows, ", ")
	bare := &way{name: "bare: 500 in one INSERT", size: published, before: func() error { return b.exec("TRUNCATE {s}.bare") }}
	bare.do = func(ctx context.Context, n int64) error {
		list := events(n, published, 0)
		return b.inTx(ctx, func(tx pgx.Tx) error {
			args := make([]any, 0, published*7)
			for i := range list {
				e := &list[i]
				args = append(args, e.ID, e.Topic, e.Key, e.Type, "application/json", "", e.Payload)
			}
			_, err := tx.Exec(ctx, insert, args...)
			return err
		})
	}
	ours := &way{name: "ours: Publish of 500", size: published, before: func() error { return b.exec("TRUNCATE {s}.everonce_outbox") }}
	ours.do = func(ctx context.Context, n int64) error {
		return b.inTx(ctx, func(tx pgx.Tx) error { return b.box.Publish(ctx, tx, events(n, published, 0)...) })
	}
	return &contest{
		store: "PostgreSQL", mode: "outbox, publish", callers: 1, trips: &b.trips, ways: []*way{bare, ours},
		targets: []target{
			ours.atMostTimes(3, bare, "Publish of 500 events: time × of a bare INSERT"),
			ours.atMostTrips(4, published, "Publish of 500 events, BEGIN and COMMIT: round trips"),
		},
	}
}

// atMostTrips is a target for the round trips of n operations.
func (w *way) atMostTrips(want, n float64, what string) target {
	return target{what: what, want: want, atMost: true, measured: func() float64 { return w.tripsPerOp() * n }}
}

// fillOutbox inserts events of a state, without their publishing.
func (b *patternBench) fillOutbox(n, state, keys int) error {
	key := "''"
	if keys > 0 {
		key = "'customer-' || g % " + strconv.Itoa(keys)
	}
	done := "NULL"
	if state != 0 {
		done = "c.now"
	}
	_, err := b.pool.Exec(context.Background(), strings.NewReplacer("{s}", b.schema, "{key}", key, "{done}", done).Replace(
		`INSERT INTO {s}.everonce_outbox (id, topic, order_key, type, content_type, headers, payload, state, attempts, rank, due_at, created_at, done_at, token, error)
		SELECT 'event-' || $2 || '-' || g, 'orders', {key}, 'order.placed', 'application/json', '', $3, $2::bigint, 0, c.now + g, c.now, c.now, {done}, 0, ''
		FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 100000000 AS now) AS c, generate_series(1, $1::int) AS g ORDER BY g`),
		n, strconv.Itoa(state), payload)
	return err
}

// nowhere is a publisher that publishes nothing.
var nowhere = outbox.PublisherFunc(func(context.Context, []outbox.Event) []error { return nil })

// drain runs a relay until it has published and marked n events.
func (b *patternBench) drain(ctx context.Context, n int64, opts outbox.RelayOptions) (int64, error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var marked atomic.Int64
	opts.Log = silent
	opts.Observe = func(_ context.Context, _ *outbox.Event, v outbox.Report) {
		if v.How == outbox.Published && marked.Add(1) >= n {
			end()
		}
	}
	relay, err := b.box.Relay(nowhere, &opts)
	if err == nil {
		err = relay.Run(ctx)
	}
	return marked.Load(), err
}

// drainBare does the same with some loops of what somebody would write by hand.
func (b *patternBench) drainBare(ctx context.Context, loops int) (int64, error) {
	claim := "SELECT seq, id, topic, order_key, type, content_type, headers, payload FROM " + b.schema +
		".bare WHERE state = 0 ORDER BY seq LIMIT $1 FOR UPDATE SKIP LOCKED"
	mark := "UPDATE " + b.schema + ".bare SET state = 4, done_at = now() WHERE seq = ANY ($1)"
	var marked atomic.Int64
	var failed atomic.Pointer[error]
	var group sync.WaitGroup
	for range loops {
		group.Go(func() {
			for {
				seqs := make([]int64, 0, published)
				err := b.inTx(ctx, func(tx pgx.Tx) error {
					rows, err := tx.Query(ctx, claim, published)
					if err != nil {
						return err
					}
					list := make([]outbox.Event, 0, published)
					for rows.Next() {
						var e outbox.Event
						var seq int64
						var headers string
						if err := rows.Scan(&seq, &e.ID, &e.Topic, &e.Key, &e.Type, &e.ContentType, &headers, &e.Payload); err != nil {
							return err
						}
						list, seqs = append(list, e), append(seqs, seq)
					}
					if err := rows.Err(); err != nil {
						return err
					}
					nowhere(ctx, list)
					_, err = tx.Exec(ctx, mark, seqs)
					return err
				})
				if err != nil {
					failed.CompareAndSwap(nil, &err)
				}
				if err != nil || len(seqs) == 0 {
					return
				}
				marked.Add(int64(len(seqs)))
			}
		})
	}
	group.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return marked.Load(), nil
}

// relaying: a full table is published to nowhere and marked, 500 at a time.
func (b *patternBench) relaying() *contest {
	bareWay := func(name string, loops int) *way {
		return &way{name: name, size: published, before: func() error {
			if err := b.exec("TRUNCATE {s}.bare"); err != nil {
				return err
			}
			if _, err := b.pool.Exec(context.Background(), "INSERT INTO "+b.schema+`.bare (id, topic, order_key, type, content_type, headers, payload)
				SELECT 'event-' || g, 'orders', '', 'order.placed', 'application/json', '', $2 FROM generate_series(1, $1::int) AS g`, relayed, payload); err != nil {
				return err
			}
			return b.vacuum("bare")
		}, whole: func(ctx context.Context) (int64, error) { return b.drainBare(ctx, loops) }}
	}
	oursWay := func(name string, keys int, opts outbox.RelayOptions) *way {
		return &way{name: name, size: published, before: func() error {
			if err := b.exec("TRUNCATE {s}.everonce_outbox"); err != nil {
				return err
			}
			if err := b.fillOutbox(relayed, 0, keys); err != nil {
				return err
			}
			return b.vacuum("everonce_outbox")
		}, whole: func(ctx context.Context) (int64, error) { return b.drain(ctx, relayed, opts) }}
	}
	bare, four := bareWay("bare: SKIP LOCKED, UPDATE", 1), bareWay("bare, 4 loops", 4)
	single := oursWay("ours, one batch in flight", 0, outbox.RelayOptions{Batch: published, InFlight: published})
	ours := oursWay("ours", 0, outbox.RelayOptions{Batch: published})
	keyed := oursWay("ours, 1000 order keys", 1000, outbox.RelayOptions{Batch: published})
	return &contest{
		store: "PostgreSQL", mode: "outbox, relay", callers: 1, trips: &b.trips, ways: []*way{bare, four, single, ours, keyed},
		targets: []target{
			ours.atLeast(0.5, bare, "relay, claim and mark at 500: rate × of a bare loop"),
			ours.atMostTrips(2, published, "relay, claim and mark of 500: round trips"),
		},
	}
}
