package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/outbox"
)

// held is a relay's throughput while another transaction holds an old snapshot: no row that was replaced since can be
// removed. Beside it, the same without that transaction.
type held struct {
	b     *patternBench
	keys  int // 0 is no order
	loads []heldLoad
}

const (
	heldKeys    = 1000
	offered     = 2000   // events a second at a steady rate, in transactions of
	offeredEach = 20     // events
	backlogMost = 10_000 // events that wait, at the maximum
	quarters    = 4
)

// heldLoad is what was measured of one load.
type heldLoad struct {
	name       string
	rate       int // 0 is the maximum
	idle, held throughput
}

// throughput is events a second in each quarter of the time, and how long they waited to be claimed.
type throughput struct {
	quarters [quarters]float64
	lags     []time.Duration
}

func (t *throughput) all() (sum float64) {
	for _, q := range t.quarters {
		sum += q / quarters
	}
	return sum
}

func (h *held) name() string { return "PostgreSQL, outbox, an old snapshot" }

func (h *held) run(ctx context.Context, p pace) (err error) {
	h.loads = []heldLoad{{name: "at the maximum"}, {name: fmt.Sprintf("%d/s offered", offered), rate: offered}}
	for i := range h.loads {
		l := &h.loads[i]
		if l.idle, err = h.load(ctx, p.held, l.rate); err != nil {
			return err
		}
		tx, err := h.b.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT 1"); err != nil {
			return err
		}
		l.held, err = h.load(ctx, p.held, l.rate)
		if err := errors.Join(err, tx.Rollback(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// load publishes and relays for some time.
func (h *held) load(ctx context.Context, d time.Duration, rate int) (t throughput, err error) {
	if err := errors.Join(h.b.exec("TRUNCATE {s}.everonce_outbox"), h.b.vacuum("everonce_outbox")); err != nil {
		return t, err
	}
	ctx, end := context.WithTimeout(ctx, d)
	defer end()
	start := time.Now()
	var mu sync.Mutex
	var waiting atomic.Int64
	relay, err := h.b.box.Relay(nowhere, &outbox.RelayOptions{Batch: published, Log: silent, Observe: func(_ context.Context, _ *outbox.Event, v outbox.Verdict) {
		waiting.Add(-1)
		mu.Lock()
		defer mu.Unlock()
		if at := int(time.Since(start) * quarters / d); at < quarters {
			t.quarters[at] += quarters / d.Seconds()
			t.lags = append(t.lags, v.Lag)
		}
	}})
	if err != nil {
		return t, err
	}
	var group sync.WaitGroup
	group.Go(func() { err = errors.Join(err, h.publish(ctx, start, rate, &waiting)) })
	relayErr := relay.Run(ctx)
	group.Wait()
	return t, errors.Join(err, relayErr)
}

// publish publishes at a rate, or as long as not too many events wait, until ctx ends.
func (h *held) publish(ctx context.Context, start time.Time, rate int, waiting *atomic.Int64) error {
	size := int64(offeredEach)
	if rate == 0 {
		size = published
	}
	for n := int64(0); ; n++ {
		pause := time.Duration(0)
		switch {
		case rate > 0:
			pause = time.Until(start.Add(time.Duration(n * size * int64(time.Second) / int64(rate))))
		case waiting.Load() > backlogMost:
			pause, n = time.Millisecond, n-1
		}
		if pause > 0 {
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return nil
			}
			if rate == 0 {
				continue
			}
		}
		waiting.Add(size)
		err := h.b.inTx(ctx, func(tx pgx.Tx) error { return h.b.box.Publish(ctx, tx, events(n, int(size), h.keys)...) })
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (h *held) mode() string {
	if h.keys > 0 {
		return fmt.Sprintf("outbox, relay, %d order keys", h.keys)
	}
	return "outbox, relay"
}

func (h *held) print() {
	format := "%-10s %-34s %-36s %10s %7s %9s %9s   %s\n"
	fmt.Printf(format, "PostgreSQL", h.mode(), "an old snapshot is held", "ops/s", "× idle", "lag p50", "lag p99", "by quarter")
	for _, l := range h.loads {
		row := func(name string, t *throughput) {
			list := ""
			for _, q := range t.quarters {
				list += thousands(q) + "  "
			}
			fmt.Printf(format, "", "", l.name+", "+name, thousands(t.all()), fmt.Sprintf("%.2f", t.all()/l.idle.all()),
				milliseconds(quantile(t.lags, 0.5)), milliseconds(quantile(t.lags, 0.99)), list)
		}
		row("idle", &l.idle)
		row("held", &l.held)
	}
	fmt.Println()
}

func (h *held) promised() []target {
	var all []target
	for _, l := range h.loads {
		all = append(all, target{what: h.mode() + ", an old snapshot, " + l.name + ": rate × of idle", want: 0.9, measured: func() float64 {
			return l.held.all() / l.idle.all()
		}})
	}
	return all
}
