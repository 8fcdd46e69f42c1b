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
	// askTimeout bounds a question to a table.
	askTimeout = 5 * time.Second
	// waitForCount is how long those who read the figures wait for one. Ten tables of a database that does not answer hold
	// up a scrape by less than the ten seconds that Prometheus gives it.
	waitForCount = 500 * time.Millisecond
	// backlogFor is how long a figure is shown that is not counted again.
	backlogFor = 5 * time.Minute
)

// Backlog shows what waits in the table of an outbox, an inbox or of sagas, under the name given, until ctx ends. The table
// is counted each time that the figures are read: one process is enough for that. A count that takes longer than half a
// second is shown the next time, and the one before it until then, for five minutes at most. A count that fails, or takes
// longer than five seconds, is counted too, and the table's figures are missing until one succeeds.
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
	context.AfterFunc(ctx, func() { _ = reg.Unregister() }) //nolint:errcheck // it fails where the provider has ended, and it with that
	return nil
}

// tableCount counts a table beside those who read the figures: a database that does not answer holds up no page.
type tableCount struct {
	ctx     context.Context
	stats   func(context.Context) (backlog.Stats, error)
	failed  func()
	running chan struct{} // held by the count that runs
	last    atomic.Pointer[lastCount]
}

// lastCount is what a table was last counted to hold.
type lastCount struct {
	backlog.Stats
	at time.Time
}

// get begins a count, unless one runs since it was last called, waits a little for its end, and returns what is known.
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
