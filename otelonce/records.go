package otelonce

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/janitor"
)

// askWithin bounds a question to a table.
const askWithin = 5 * time.Second

// count is what a store was last counted to hold.
type count struct {
	health driver.HealthResult
	at     time.Time
}

// states are the labels of [driver.HealthResult].
func (c *count) states() map[string]int64 {
	h := &c.health
	return map[string]int64{"claimed": h.Claimed, "abandoned": h.Abandoned, "released": h.Released, "completed": h.Completed, "unreadable": h.Unreadable}
}

// oldest is the age of the oldest record that waits to be settled.
func (c *count) oldest() time.Duration {
	if c.health.OldestAbandoned.IsZero() {
		return 0
	}
	return c.health.Now.Sub(c.health.OldestAbandoned) + time.Since(c.at)
}

// gauges are read when they are asked for.
func (f *figures) gauges() error {
	running, err1 := f.meter.Int64ObservableGauge("everonce.operations.running", metric.WithUnit("{operation}"), metric.WithDescription("Operations that run or wait."))
	records, err2 := f.meter.Int64ObservableGauge("everonce.records", metric.WithUnit("{record}"),
		metric.WithDescription("Records by state, as they were last counted. Those that are abandoned are unknown: they wait for somebody to settle them or, under Reexecute, for a repetition."))
	oldest, err3 := f.meter.Float64ObservableGauge("everonce.unknown.oldest", metric.WithUnit("s"), metric.WithDescription("Age of the oldest record that is unknown; 0 if there is none."))
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	_, err := f.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		to.ObserveInt64(running, f.running.Load())
		c := f.counted.Load()
		if c == nil { // nobody knows
			return nil
		}
		for state, n := range c.states() {
			to.ObserveInt64(records, n, metric.WithAttributes(keyState.String(state)))
		}
		to.ObserveFloat64(oldest, c.oldest().Seconds())
		return nil
	}, running, records, oldest)
	return err
}

// CountRecords counts the records of a store now, and then after each pause, until ctx ends. It may read every record for
// that: once a minute, in one process, is often enough. A count that fails is counted too, and until one succeeds there are
// no figures of records. The pause is at least ten times as long as the count took.
func (o *Observer) CountRecords(ctx context.Context, store driver.HealthChecker, pause time.Duration) {
	for {
		began := time.Now()
		h, err := store.Health(ctx, everonce.HealthRequest{})
		if ctx.Err() != nil {
			return
		}
		o.Counted(h, err)
		t := time.NewTimer(max(pause, 10*time.Since(began)))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// Counted shows what a store holds, for those who count themselves. After an error nobody knows, and nothing is shown.
func (o *Observer) Counted(h driver.HealthResult, err error) {
	if err != nil {
		o.countErrors.Add(context.Background(), 1)
		o.counted.Store(nil)
		return
	}
	o.counted.Store(&count{h, time.Now()})
}

// Purged is for [janitor.Options].Report.
func (o *Observer) Purged(res janitor.Result, err error) {
	ctx := context.Background()
	o.purged.Add(ctx, int64(res.Records))
	if err != nil {
		o.janitorErrors.Add(ctx, 1)
	}
}

// Backlog shows what waits in the table of an outbox, an inbox or of sagas, under the name given, until ctx ends. The table
// is counted each time that the figures are read: one process is enough for that. If that fails, its figures are missing.
func (o *Observer) Backlog(ctx context.Context, name string, table *backlog.Table) error {
	entries, err1 := o.meter.Int64ObservableGauge("everonce.backlog.entries", metric.WithUnit("{entry}"), metric.WithDescription("Entries of a table that are not done, by state."))
	lag, err2 := o.meter.Float64ObservableGauge("everonce.backlog.lag", metric.WithUnit("s"), metric.WithDescription("Age of the oldest entry of a table that is due and not done."))
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("otelonce: the meter refuses an instrument: %w", err)
	}
	its := keyTable.String(name)
	reg, err := o.meter.RegisterCallback(func(asked context.Context, to metric.Observer) error {
		one, cancel := context.WithTimeout(asked, askWithin)
		defer cancel()
		s, err := table.Stats(one)
		if err != nil {
			return err
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
