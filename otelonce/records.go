package otelonce

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/retry"
	"github.com/everonce/everonce/janitor"
)

const (
	// countTimeout bounds one count.
	countTimeout = 5 * time.Minute
	// shownFor is how long a count is shown without a new one: an old figure would keep an alert from firing.
	shownFor = time.Hour
)

// count is the result of the last count of a store.
type count struct {
	health    driver.HealthResult
	at, until time.Time
}

// states returns the numbers by label of [driver.HealthResult].
func (c *count) states() map[string]int64 {
	h := &c.health
	return map[string]int64{"claimed": h.Claimed, "abandoned": h.Abandoned, "released": h.Released, "completed": h.Completed, "unreadable": h.Unreadable}
}

// oldest returns the age of the oldest record that waits to be settled.
func (c *count) oldest() time.Duration {
	if c.health.OldestAbandoned.IsZero() {
		return 0
	}
	return c.health.Now.Sub(c.health.OldestAbandoned) + time.Since(c.at)
}

// gauges registers the gauges, which are read at each collection.
func (f *figures) gauges() error {
	running, err1 := f.meter.Int64ObservableGauge("everonce.operations.running", metric.WithUnit("{operation}"), metric.WithDescription("Operations that run or wait."))
	records, err2 := f.meter.Int64ObservableGauge("everonce.records", metric.WithUnit("{record}"),
		metric.WithDescription("Records by state, at the last count. Abandoned records are unknown: they must be settled or, under Reexecute, repeated."))
	oldest, err3 := f.meter.Float64ObservableGauge("everonce.unknown.oldest", metric.WithUnit("s"), metric.WithDescription("Age of the oldest record that is unknown; 0 without one."))
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	_, err := f.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		to.ObserveInt64(running, f.running.Load())
		c := f.counted.Load()
		if c == nil || time.Now().After(c.until) { // unknown
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

// CountRecords counts the records of a store now, and then after each pause, until ctx ends. It may read every record
// for that: once a minute, in one process, is often enough. A count that fails, or takes longer than five minutes,
// increments the counter of failures. There are no figures of records then, nor when the next count is overdue, nor
// after the end of ctx. The pause is at least ten times as long as the count took. An observer shows the records of
// one store.
func (o *Observer) CountRecords(ctx context.Context, store driver.HealthChecker, pause time.Duration) {
	defer o.counted.Store(nil)
	for {
		began := time.Now()
		one, cancel := context.WithTimeout(ctx, countTimeout)
		h, err := store.Health(one, everonce.HealthRequest{})
		cancel()
		if ctx.Err() != nil {
			return
		}
		rest := max(pause, 10*time.Since(began))
		o.show(h, err, rest+countTimeout)
		if retry.Pause(ctx, rest) != nil {
			return
		}
	}
}

// Counted shows the result of a count by the caller, until it is called again, or for an hour. After an error the
// result is unknown, and nothing is shown.
func (o *Observer) Counted(h driver.HealthResult, err error) { o.show(h, err, shownFor) }

func (o *Observer) show(h driver.HealthResult, err error, within time.Duration) {
	if err != nil {
		o.countErrors.Add(context.Background(), 1)
		o.counted.Store(nil)
		return
	}
	now := time.Now()
	o.counted.Store(&count{h, now, now.Add(within)})
}

// Purged is for [janitor.Options].Report.
func (o *Observer) Purged(res janitor.Result, err error) {
	ctx := context.Background()
	o.purged.Add(ctx, int64(res.Records))
	if err != nil {
		o.janitorErrors.Add(ctx, 1)
	}
}
