package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/session/producer/sqlproducer"
)

const (
	producers    = 8
	batchRecords = 10
)

// appending: batches of 10 records, by 8 producers to a stream each. Bare gives dense positions too, from a row of the
// stream, and detects no duplicate. A copy is a batch that is stored already.
func (b *patternBench) appending(ctx context.Context) (*contest, error) {
	store, err := sqlproducer.New(b.tx, nil)
	if err == nil {
		err = store.Migrate(ctx)
	}
	if err == nil {
		err = b.exec(`CREATE TABLE {s}.bare_stream (name text PRIMARY KEY, next bigint NOT NULL);
			CREATE TABLE {s}.bare_log (stream text NOT NULL, last bigint NOT NULL, data bytea NOT NULL, PRIMARY KEY (stream, last))`)
	}
	if err != nil {
		return nil, err
	}
	batches := make(chan *sqlproducer.Batch, producers) // the next of each producer
	for i := range producers {
		batch := &sqlproducer.Batch{Stream: "orders-" + strconv.Itoa(i)}
		for range batchRecords {
			batch.Records = append(batch.Records, payload)
		}
		if _, err := b.pool.Exec(ctx, "INSERT INTO "+b.schema+".bare_stream VALUES ($1, 0)", batch.Stream); err != nil {
			return nil, err
		}
		if err := store.CreateStream(ctx, batch.Stream); err != nil {
			return nil, err
		}
		grant, err := store.InitProducer(ctx, "")
		if err != nil {
			return nil, err
		}
		batch.Producer = grant.Producer
		batches <- batch
	}
	data := bytes.Repeat(payload, batchRecords)
	each := func(do func(batch *sqlproducer.Batch) error) error {
		batch := <-batches
		defer func() { batches <- batch }()
		return do(batch)
	}
	send := func(ctx context.Context, batch *sqlproducer.Batch) error {
		a, err := store.Append(ctx, batch)
		if err == nil && a.Err != 0 {
			err = fmt.Errorf("%w, and %d is next", a.Err, a.Expected)
		}
		return err
	}
	bare := &way{name: "bare: UPDATE, INSERT"}
	bare.do = func(ctx context.Context, _ int64) error {
		return each(func(batch *sqlproducer.Batch) error {
			return b.inTx(ctx, func(tx pgx.Tx) error {
				var next int64
				if err := tx.QueryRow(ctx, "UPDATE "+b.schema+".bare_stream SET next = next + $2 WHERE name = $1 RETURNING next", batch.Stream, batchRecords).Scan(&next); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, "INSERT INTO "+b.schema+".bare_log VALUES ($1, $2, $3)", batch.Stream, next-1, data)
				return err
			})
		})
	}
	ours := &way{name: "ours: Append"}
	ours.do = func(ctx context.Context, _ int64) error {
		return each(func(batch *sqlproducer.Batch) error {
			err := send(ctx, batch)
			if err == nil {
				batch.First += batchRecords
			}
			return err
		})
	}
	copies := &way{name: "ours: a copy"}
	copies.do = func(ctx context.Context, _ int64) error {
		return each(func(batch *sqlproducer.Batch) error {
			if batch.First == 0 {
				return nil
			}
			before := *batch
			before.First -= batchRecords
			return send(ctx, &before)
		})
	}
	return &contest{
		store: "PostgreSQL", mode: "producers, append", callers: producers, trips: &b.trips, ways: []*way{bare, ours, copies},
		targets: []target{ours.atLeast(0.8, bare, "append of a producer's batch: rate × of a bare append")},
	}, nil
}
