package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/everonce/everonce/outbox"
)

// flat is a relay's rate on tables with more and more delivered rows: it should not matter.
type flat struct {
	b    *patternBench
	rows []int
	ways []*way // by rows
}

func (*flat) name() string { return "PostgreSQL, outbox, delivered rows" }

func (f *flat) run(ctx context.Context, p pace) error {
	there := 0
	for n := 0; n <= p.delivered; n = max(100_000, 10*n) {
		for ; there < n; there += min(n-there, 1_000_000) {
			if err := f.b.fillDelivered(there, min(n-there, 1_000_000)); err != nil {
				return err
			}
		}
		f.rows, f.ways = append(f.rows, n), append(f.ways, &way{})
		w := f.ways[len(f.ways)-1]
		w.size, w.before = published, func() error {
			if err := f.b.exec("DELETE FROM {s}.everonce_outbox WHERE id LIKE 'event-0-%'"); err != nil {
				return err
			}
			if err := f.b.fillOutbox(relayed, 0, 0); err != nil {
				return err
			}
			return f.b.vacuum("everonce_outbox")
		}
		w.whole = func(ctx context.Context) (int64, error) {
			return f.b.drain(ctx, relayed, outbox.RelayOptions{Batch: published})
		}
		c := &contest{callers: 1, ways: []*way{w}}
		if err := c.run(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// fillDelivered adds delivered rows.
func (b *patternBench) fillDelivered(there, n int) error {
	_, err := b.pool.Exec(context.Background(), "INSERT INTO "+b.schema+`.everonce_outbox
		(id, topic, order_key, type, content_type, headers, payload, state, attempts, rank, due_at, created_at, done_at, token, error)
		SELECT 'delivered-' || $1::int + g, 'orders', '', 'order.placed', 'application/json', '', $3, 4, 1, c.now + g, c.now, c.now, c.now, 0, ''
		FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 300000000 AS now) AS c, generate_series(1, $2::int) AS g ORDER BY g`, there, n, payload)
	return err
}

func (f *flat) print() {
	format := "%-10s %-34s %-36s %10s %7s\n"
	fmt.Printf(format, "PostgreSQL", "outbox, relay", "delivered rows in the table", "ops/s", "× empty")
	for i, w := range f.ways {
		fmt.Printf(format, "", "", strconv.Itoa(f.rows[i]), thousands(w.rate()), fmt.Sprintf("%.2f", w.rate()/f.ways[0].rate()))
	}
	fmt.Println()
}

func (f *flat) promised() []target {
	last := len(f.ways) - 1
	return []target{{what: fmt.Sprintf("relay beside %d delivered rows: rate × of an empty table", f.rows[last]), want: 0.9, measured: func() float64 {
		return f.ways[last].rate() / f.ways[0].rate()
	}}}
}
