package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Report is what a run printed by -json.
type Report struct {
	Orders      int     `json:"orders"`
	Shipped     int     `json:"shipped"`     // by their status in the order service's database
	Compensated int     `json:"compensated"` // by the same
	Kills       int     `json:"kills"`       // of processes, by SIGKILL
	Doubled     int     `json:"doubled"`     // lines of the ledgers beside the first of their kind for an order
	HalfDone    int     `json:"half_done"`   // orders that have not ended, or of which only a part was done, or taken back
	Seconds     float64 `json:"seconds"`
}

// books are what the four databases hold.
type books struct {
	status map[string]string         // by order
	lines  map[string]map[string]int // how many lines the ledgers have: by order, by what was done
	sums   map[string]int64          // of what was done
	free   int64                     // what is left in stock
}

// audit reads the databases, and counts what has become of the orders.
func audit(ctx context.Context, places map[string]string, orders []Order) (Report, error) {
	b, err := readBooks(ctx, places)
	if err != nil {
		return Report{}, err
	}
	return b.count(orders)
}

// pairs are each action with its compensation.
var pairs = [][2]string{{"reserve", "release"}, {"charge", "refund"}, {"ship", "cancel"}}

func (b *books) count(orders []Order) (Report, error) {
	rep := Report{Orders: len(orders)}
	var goods, cents int64 // of what was shipped
	for i := range orders {
		o := &orders[i]
		status, lines := b.status[o.ID], b.lines[o.ID]
		half := false
		switch status {
		case "shipped":
			rep.Shipped++
			goods += o.Quantity
			cents += o.Cents
		case "cancelled":
			rep.Compensated++
		default:
			half = true
		}
		for _, p := range pairs {
			done, undone := lines[p[0]], lines[p[1]]
			rep.Doubled += max(0, done-1) + max(0, undone-1)
			if status == "shipped" {
				half = half || done == 0 || undone > 0
			} else {
				half = half || (done > 0) != (undone > 0)
			}
		}
		if half {
			rep.HalfDone++
		}
		delete(b.lines, o.ID)
	}
	if len(b.lines) > 0 {
		return rep, fmt.Errorf("the ledgers have %d orders that were never sent", len(b.lines))
	}
	reserved, paid, shipped := b.sums["reserve"]-b.sums["release"], b.sums["charge"]-b.sums["refund"], b.sums["ship"]-b.sums["cancel"]
	if rep.clean() && (reserved != goods || shipped != goods || paid != cents || b.free != int64(len(items))*inStock-goods) {
		return rep, fmt.Errorf("%d things and %d cents belong to orders that were shipped: %d are reserved, %d shipped, %d left, and %d cents paid",
			goods, cents, reserved, shipped, b.free, paid)
	}
	return rep, nil
}

// readBooks reads the databases, whose services have ended.
func readBooks(ctx context.Context, places map[string]string) (*books, error) {
	b := &books{status: map[string]string{}, lines: map[string]map[string]int{}, sums: map[string]int64{}}
	err := read(ctx, places["order"], `SELECT id, status, 0 FROM orders`, func(id, status string, _ int64) { b.status[id] = status })
	for name := range works {
		err = errors.Join(err, read(ctx, places[name], `SELECT order_id, what, amount FROM ledger`, func(id, what string, amount int64) {
			if b.lines[id] == nil {
				b.lines[id] = map[string]int{}
			}
			b.lines[id][what]++
			b.sums[what] += amount
		}))
	}
	err = errors.Join(err, read(ctx, places["stock"], `SELECT item, '', free FROM stock`, func(_, _ string, free int64) { b.free += free }))
	return b, err
}

func read(ctx context.Context, place, query string, each func(a, b string, n int64)) error {
	d, err := openDatabase(ctx, place, nil)
	if err != nil {
		return err
	}
	rows, err := d.QueryContext(ctx, query)
	if err != nil {
		return errors.Join(err, d.close())
	}
	return errors.Join(scan(rows, each), d.close())
}

func scan(rows *sql.Rows, each func(a, b string, n int64)) error {
	defer rows.Close() //nolint:errcheck // its Err says it
	for rows.Next() {
		var a, b string
		var n int64
		if err := rows.Scan(&a, &b, &n); err != nil {
			return err
		}
		each(a, b, n)
	}
	return rows.Err()
}
