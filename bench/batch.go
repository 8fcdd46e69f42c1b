package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/consume"
)

// batchSize is how many messages share a transaction.
const batchSize = 100

// bill is the payload of a message, and the row that it becomes.
type bill struct {
	Order string `json:"order"`
	Cents int64  `json:"cents"`
}

// billMessages are n messages that never came before.
func billMessages(turn int64, n int) ([]*consume.Message, error) {
	ms := make([]*consume.Message, n)
	for i := range ms {
		id := orderKey(turn).ID + "-" + strconv.Itoa(i)
		body, err := json.Marshal(bill{Order: id, Cents: int64(i)})
		if err != nil {
			return nil, err
		}
		ms[i] = &consume.Message{ID: id, Body: body}
	}
	return ms, nil
}

// batches: the messages of a consumer, each of which writes a separate row, one by one and a hundred in a transaction.
// An operation is a message. Allocations include the message's.
func (b *pgBench) batches() *contest {
	table := b.schema + ".bill"
	one := "INSERT INTO " + table + " (order_id, cents) VALUES ($1, $2)"
	many := "INSERT INTO " + table + " (order_id, cents) SELECT * FROM unnest($1::text[], $2::bigint[])"
	insertOne := func(ctx context.Context, tx pgx.Tx, _ *consume.Message, v bill) error {
		_, err := tx.Exec(ctx, one, v.Order, v.Cents)
		return err
	}
	insertAll := func(ctx context.Context, tx pgx.Tx, batch []consume.Received[bill]) error {
		orders, cents := make([]string, len(batch)), make([]int64, len(batch))
		for i, r := range batch {
			orders[i], cents[i] = r.Payload.Order, r.Payload.Cents
		}
		_, err := tx.Exec(ctx, many, orders, cents)
		return err
	}
	empty := func() error {
		_, err := b.pool.Exec(context.Background(), "TRUNCATE "+table)
		return err
	}
	handled := func(name string, size int, spec consume.TxSpec[bill, pgx.Tx]) *way {
		spec.Consumer, spec.Key = name, consume.ProducerID()
		c, err := consume.NewTx(b.tx, spec)
		return &way{name: name, size: int64(size), before: empty, do: func(ctx context.Context, n int64) error {
			if err != nil {
				return err
			}
			ms, err := billMessages(n, size)
			if err != nil {
				return err
			}
			var verdicts []consume.Decision
			if size == 1 {
				verdicts = []consume.Decision{c.Handle(ctx, ms[0])}
			} else {
				verdicts = c.HandleBatch(ctx, ms)
			}
			for _, v := range verdicts {
				if v.Disposition != consume.Ack {
					return fmt.Errorf("%v: %w", v.Disposition, errors.Join(v.Err, errors.New("a message was not handled")))
				}
			}
			return nil
		}}
	}
	bare := func(name string, size int) *way {
		return &way{name: name, size: int64(size), before: empty, do: func(ctx context.Context, n int64) error {
			ms, err := billMessages(n, size)
			if err != nil {
				return err
			}
			return b.inTx(ctx, func(tx pgx.Tx) error {
				batch := make([]consume.Received[bill], size)
				for i, m := range ms {
					if err := json.Unmarshal(m.Body, &batch[i].Payload); err != nil {
						return err
					}
				}
				if size == 1 {
					return insertOne(ctx, tx, ms[0], batch[0].Payload)
				}
				return insertAll(ctx, tx, batch)
			})
		}}
	}
	bareOne, bareAll := bare("bare: one by one", 1), bare("bare: 100 in one INSERT", batchSize)
	oneByOne := handled("ours, one by one", 1, consume.TxSpec[bill, pgx.Tx]{Handle: insertOne})
	each := handled("ours, 100, a statement for each", batchSize, consume.TxSpec[bill, pgx.Tx]{Handle: insertOne})
	together := handled("ours, 100 in one INSERT", batchSize, consume.TxSpec[bill, pgx.Tx]{HandleAll: insertAll})
	return &contest{
		store: "PostgreSQL", mode: "messages", callers: postgresConns, trips: &b.trips,
		ways: []*way{bareOne, oneByOne, each, together, bareAll},
		targets: []target{
			together.atLeast(8, oneByOne, "PostgreSQL, a batch of 100 messages in one transaction: of one by one"),
			together.atLeast(0.5, bareAll, "PostgreSQL, a batch of 100 messages in one transaction: of a bare INSERT of 100 and commit"),
		},
	}
}
