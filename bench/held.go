package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/outbox"
)

// held is a relay's throughput while another transaction holds an old snapshot: no row that was replaced since can be
// removed. Beside it, in turns, runs the same relay in a separate database, which that snapshot does not concern.
type held struct {
	b     *patternBench
	keys  int // 0 is no order
	loads []*heldLoad
}

const (
	heldKeys    = 1000
	offered     = 1000   // events a second at a steady rate, in transactions of
	offeredEach = 20     // events
	backlogMost = 10_000 // events that wait, at the maximum
	heldTurns   = 4      // of each side
)

// heldLoad is what was measured of one load.
type heldLoad struct {
	name       string
	rate       int // 0 is the maximum
	idle, held side
}

// side is one of the two databases.
type side struct {
	way
	lags []time.Duration // how long events waited to be claimed
	next int64           // number of the next transaction
}

func (h *held) name() string { return "PostgreSQL, outbox, an old snapshot" }

func (h *held) run(ctx context.Context, p pace) (err error) {
	other := h.b.schema + "_idle"
	if _, err := h.b.pool.Exec(ctx, "CREATE DATABASE "+other); err != nil {
		return err
	}
	idle, err := openPatterns(ctx, other)
	defer func() {
		_, dropped := h.b.pool.Exec(context.WithoutCancel(ctx), "DROP DATABASE "+other)
		err = errors.Join(err, dropped)
	}()
	if err != nil {
		return errors.Join(err, idle.close())
	}
	h.loads = []*heldLoad{{name: "at the maximum"}, {name: fmt.Sprintf("%d/s offered", offered), rate: offered}}
	for _, l := range h.loads {
		if err = h.turns(ctx, idle, l, p.held/heldTurns); err != nil {
			break
		}
	}
	return errors.Join(err, idle.close())
}

// turns measures one load, beside a snapshot that grows older.
func (h *held) turns(ctx context.Context, idle *patternBench, l *heldLoad, d time.Duration) error {
	for _, b := range []*patternBench{idle, h.b} {
		if err := b.exec("TRUNCATE {s}.everonce_outbox"); err != nil {
			return err
		}
	}
	old, err := h.b.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return err
	}
	defer old.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // it has only read
	if _, err := old.Exec(ctx, "SELECT 1"); err != nil {
		return err
	}
	for range heldTurns {
		if err := h.load(ctx, idle, &l.idle, d, l.rate); err != nil {
			return err
		}
		if err := h.load(ctx, h.b, &l.held, d, l.rate); err != nil {
			return err
		}
	}
	return nil
}

// load publishes for some time, and relays until nothing waits.
func (h *held) load(ctx context.Context, b *patternBench, s *side, d time.Duration, rate int) error {
	during, over := context.WithTimeout(ctx, d)
	defer over()
	ctx, end := context.WithCancel(ctx)
	defer end()
	var mu sync.Mutex
	var waiting, marked atomic.Int64
	start := time.Now()
	relay, err := b.box.Relay(nowhere, &outbox.RelayOptions{Batch: published, Log: silent, Observe: func(_ context.Context, _ *outbox.Event, v outbox.Report) {
		if waiting.Add(-1) == 0 && during.Err() != nil {
			end()
		}
		if marked.Add(1); rate > 0 { // at the maximum, they wait because there are so many
			mu.Lock()
			s.lags = append(s.lags, v.Lag)
			mu.Unlock()
		}
	}})
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	group.Go(func() {
		if err = h.publish(during, b, s, start, rate, &waiting); err != nil || waiting.Load() == 0 {
			end()
		}
	})
	relayErr := relay.Run(ctx)
	group.Wait()
	s.rates = append(s.rates, float64(marked.Load())/time.Since(start).Seconds())
	return errors.Join(err, relayErr)
}

// publish publishes at a rate, or as long as not too many events wait, until ctx ends.
func (h *held) publish(ctx context.Context, b *patternBench, s *side, start time.Time, rate int, waiting *atomic.Int64) error {
	size := int64(offeredEach)
	if rate == 0 {
		size = published
	}
	for n := int64(0); ; {
		pause := time.Duration(0)
		switch {
		case rate > 0:
			pause = time.Until(start.Add(time.Duration(n * size * int64(time.Second) / int64(rate))))
		case waiting.Load() > backlogMost:
			pause = time.Millisecond
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
		list := events(s.next, int(size), h.keys)
		n, s.next = n+1, s.next+1
		whole := context.WithoutCancel(ctx)
		if err := b.inTx(whole, func(tx pgx.Tx) error { return b.box.Publish(whole, tx, list...) }); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
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
	fmt.Printf(format, "PostgreSQL", h.mode(), "an old snapshot is held", "ops/s", "× idle", "lag p50", "lag p99", "by turn")
	for _, l := range h.loads {
		row := func(name string, s *side) {
			var list []string
			for _, rate := range s.rates {
				list = append(list, thousands(rate))
			}
			lag50, lag99 := "–", "–"
			if len(s.lags) > 0 {
				lag50, lag99 = milliseconds(quantile(s.lags, 0.5)), milliseconds(quantile(s.lags, 0.99))
			}
			fmt.Printf(format, "", "", l.name+", "+name, thousands(s.rate()), fmt.Sprintf("%.2f", s.per(&l.idle.way)), lag50, lag99, strings.Join(list, "  "))
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
			return l.held.per(&l.idle.way)
		}})
	}
	return all
}
