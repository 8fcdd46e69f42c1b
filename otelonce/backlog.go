package otelonce

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/everonce/everonce/backlog"
)

const (
	// askTimeout bounds one count of a table.
	askTimeout = 5 * time.Second
	// waitForCount is how long a reader of the metrics waits for a count. So ten tables of a database that does not
	// answer delay a scrape by less than the ten seconds that Prometheus allows.
	waitForCount = 500 * time.Millisecond
	// backlogFor is how long a figure is shown without a new count.
	backlogFor = 5 * time.Minute
)

// Backlog shows what waits in the table of an outbox, an inbox or sagas, under the given name, until ctx ends. The
// table is counted each time the metrics are read: do that in one process only. If a count takes longer than half a
// second, the previous one is shown for up to five minutes, and the new one the next time. A count that fails, or
// takes longer than five seconds, increments the counter of failures, and the table's figures are missing until one
// succeeds.
func (o *Observer) Backlog(ctx context.Context, name string, table *backlog.Table) error {
	return o.backlog(ctx, name, table.Stats)
}

func (o *Observer) backlog(ctx context.Context, name string, stats func(context.Context) (backlog.Stats, error)) error {
	entries, err1 := o.meter.Int64ObservableGauge("everonce.backlog.entries", metric.WithUnit("{entry}"), metric.WithDescription("Entries of a table that are not done, by state."))
	lag, err2 := o.meter.Float64ObservableGauge("everonce.backlog.lag", metric.WithUnit("s"), metric.WithDescription("Age of the oldest entry of a table that is due and not done."))
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("otelonce: the meter refuses an instrument: %w", err)
	}
	its := keyTable.String(name)
	failed := metric.WithAttributeSet(attribute.NewSet(its))
	o.countErrors.Add(ctx, 0, failed)
	table := &tableCount{ctx: ctx, stats: stats, failed: func() { o.countErrors.Add(ctx, 1, failed) }, running: make(chan struct{}, 1)}
	reg, err := o.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		s, known := table.get()
		if !known {
			return nil
		}
		for state, n := range map[string]int{"waiting": s.Waiting, "in_hand": s.InHand, "delayed": s.Delayed, "blocked": s.Blocked, "dead": s.Dead} {
			to.ObserveInt64(entries, int64(n), metric.WithAttributes(its, keyState.String(state)))
		}
		to.ObserveFloat64(lag, s.Lag.Seconds(), metric.WithAttributes(its))
		return nil
	}, entries, lag)
	if err != nil {
		return fmt.Errorf("otelonce: the meter refuses a callback: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = reg.Unregister() }) //nolint:errcheck // it fails only if the provider has ended, which also unregisters
	return nil
}

// tableCount counts a table in the background, so that a database that does not answer does not block readers of the
// metrics.
type tableCount struct {
	ctx     context.Context
	stats   func(context.Context) (backlog.Stats, error)
	failed  func()
	running chan struct{} // held by the running count
	last    atomic.Pointer[lastCount]
}

// lastCount is the result of the last count of a table.
type lastCount struct {
	backlog.Stats
	at time.Time
}

// get starts a count, unless one has been running since the last call. It waits a little for its end, and returns the
// last result.
func (t *tableCount) get() (s backlog.Stats, known bool) {
	select {
	case t.running <- struct{}{}:
		ended := make(chan struct{})
		go func() {
			t.count()
			<-t.running
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(waitForCount):
		}
	default:
	}
	if last := t.last.Load(); last != nil && time.Since(last.at) < backlogFor {
		return last.Stats, true
	}
	return s, false
}

func (t *tableCount) count() {
	ctx, cancel := context.WithTimeout(t.ctx, askTimeout)
	defer cancel()
	switch s, err := t.stats(ctx); {
	case err == nil:
		t.last.Store(&lastCount{s, time.Now()})
	case t.ctx.Err() == nil:
		t.failed()
		t.last.Store(nil)
	}
}
