package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/retry"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// Relay publishes the events of an outbox. Several relays, in several processes, share the work.
type Relay struct {
	queue     *sqlqueue.Queue
	publisher Publisher
	set       RelayOptions
	pool      sqlqueue.Pool[row]
	ready     func(context.Context) error

	mu    sync.Mutex
	gates map[lane]*gate
}

// row is an event in the table.
type row struct {
	common sqlqueue.Row
	event  Event
	header string

	lane  lane
	held  error // why it is not published now, or nil
	probe bool  // its call probes the destination
}

func (r *row) places() (*sqlqueue.Row, []any) {
	return &r.common, []any{&r.event.Type, &r.event.ContentType, &r.header, &r.event.Payload}
}

// read completes the event from the scanned columns.
func (r *row) read() (*Event, error) {
	e := &r.event
	e.ID, e.Topic, e.Key = r.common.ID, r.common.Group, r.common.OrderKey
	e.CreatedAt, e.Attempts = sqlqueue.Time(r.common.CreatedAt), int(r.common.Attempts)
	var err error
	if e.Headers, err = sqlqueue.ReadHeaders("outbox", r.header); err != nil {
		return e, fmt.Errorf("%w (row %d)", err, r.common.Seq)
	}
	return e, r.common.Readable(e.Type, e.ContentType)
}

// Relay returns a relay that publishes the outbox's events. The error wraps [everonce.ErrInvalidArgument].
func (o *Outbox[Tx]) Relay(publisher Publisher, opts *RelayOptions) (*Relay, error) {
	if publisher == nil {
		return nil, fmt.Errorf("outbox: %w: the publisher is nil", everonce.ErrInvalidArgument)
	}
	set, err := opts.complete()
	if err != nil {
		return nil, err
	}
	r := &Relay{queue: o.table.Queue, publisher: publisher, set: set, gates: make(map[lane]*gate)}
	r.ready = func(ctx context.Context) error { return o.table.Check(ctx, "relay") }
	r.pool = sqlqueue.Pool[row]{
		Queue: o.table.Queue, Row: (*row).places, Size: set.InFlight, Batch: set.Batch, Lease: set.Lease, Poll: set.Poll,
		Channel: o.table.Queue.Channel(), Lanes: r.lanes, Taken: r.admitAll, Work: r.work, DrainTimeout: set.DrainTimeout, Retention: set.Retention, Name: "outbox", Log: set.Log,
	}
	if set.NoListen {
		r.pool.Channel = ""
	}
	r.pool.Start()
	return r, nil
}

// Wake makes the relay look for events at once. On a database without notifications, call it after a commit that
// published.
func (r *Relay) Wake() { r.pool.Wake() }

// Run publishes events until ctx ends, then lets publishers finish for [RelayOptions.DrainTimeout], and returns nil. It
// returns an error at once if the table is missing or has another version ([everonce.ErrSchema]). Later failures of the
// database are logged, and Run goes on. Call it once.
func (r *Relay) Run(ctx context.Context) error {
	if err := r.ready(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	r.pool.Run(ctx)
	return nil
}

// work publishes the claimed events, each lane in a separate call.
func (r *Relay) work(ctx context.Context, token int64, rows []row) {
	parts := make(map[lane][]row)
	var held []row
	for i := range rows {
		if w := &rows[i]; w.held != nil {
			held = append(held, *w)
		} else {
			parts[w.lane] = append(parts[w.lane], *w)
		}
	}
	var publishing sync.WaitGroup
	for l, part := range parts {
		publishing.Go(func() {
			defer r.release(l, part)
			r.send(ctx, token, l, part)
		})
	}
	if len(held) > 0 {
		errs := make([]error, len(held))
		for i := range held {
			errs[i] = held[i].held
		}
		r.end(ctx, token, held, errs)
	}
	publishing.Wait()
}

// send publishes events of one lane, and ends them.
func (r *Relay) send(ctx context.Context, token int64, l lane, rows []row) {
	events := make([]Event, len(rows))
	for i := range rows {
		events[i] = rows[i].event
	}
	r.end(ctx, token, rows, r.finalErrors(l, rows, r.publish(ctx, events)))
}

// finalErrors returns the errors with which events of one lane end, given the errors of a publisher's call.
func (r *Relay) finalErrors(l lane, rows []row, errs []error) []error {
	silent := r.recordCall(l, rows[0].probe, errs)
	ended := make([]error, len(rows))
	behind := map[string]bool{} // the keys of events that failed
	for i, err := range errs {
		key := rows[i].event.Key
		if err != nil && behind[key] { // not the event's own failure
			err = errBehind
		}
		if l.destination != "" && errors.Is(err, ErrUnavailable) {
			err = RetryAfter(err, max(askedFor(err), halfOf(silent)))
		}
		ended[i] = err
		behind[key] = behind[key] || err != nil && key != ""
	}
	return ended
}

// end ends events in the table, given the errors of their publication.
func (r *Relay) end(ctx context.Context, token int64, rows []row, errs []error) {
	ends, reports := make([]sqlqueue.End, len(rows)), make([]Report, len(rows))
	for i := range rows {
		ends[i] = r.report(&rows[i], errs[i], &reports[i])
	}
	lost, err := r.queue.EndSurely(ctx, r.set.Lease, token, ends...)
	switch {
	case err != nil: // they are published again after the lease
		r.set.Log.Warn("outbox: events could not be marked as published; they are published again, with the same IDs", "events", len(rows), "error", err)
		for i := range reports {
			reports[i] = Report{How: Lost, Lag: reports[i].Lag, Err: err}
		}
	case lost > 0:
		r.set.Log.Warn("outbox: events are no longer claimed: their lease was lost and another relay publishes them again, with the same IDs, or an earlier commit whose answer was lost has ended them", "events", lost)
	}
	if r.set.Observe == nil {
		return
	}
	for i := range rows {
		r.set.Observe(ctx, &rows[i].event, reports[i])
	}
}

// report returns how an event ends in the table, and completes its report.
func (r *Relay) report(row *row, err error, v *Report) sqlqueue.End {
	c := &row.common
	v.Lag, v.Err = time.Duration(c.Now-c.CreatedAt)*time.Microsecond, err
	end := sqlqueue.End{Seq: c.Seq, Error: sqlqueue.ErrorText(err)}
	var permanent *everonce.PermanentError
	switch {
	case err == nil:
		v.How = Published
		if r.set.Retention < 0 {
			end.How = sqlqueue.Drop
		}
	case errors.Is(err, errBehind):
		v.How, end.How = Retried, sqlqueue.Release
	case errors.Is(err, ErrUnavailable):
		v.How, v.After, end.How = Retried, max(r.backoff(1), askedFor(err)), sqlqueue.Later
	case errors.As(err, &permanent), r.set.Retry.Limit >= 0 && int(c.Attempts) > r.set.Retry.Limit:
		v.How, end.How = SetAside, sqlqueue.Block
		if r.set.SkipFailed(c.Group) {
			end.How = sqlqueue.SetAside
		}
		r.set.Log.Error("outbox: an event was set aside (everonce outbox list, retry, discard)", "event", c.ID, "seq", c.Seq, "topic", c.Group, "attempts", c.Attempts, "error", err)
	default:
		v.How, v.After, end.How = Retried, max(r.backoff(int(c.Attempts)), askedFor(err)), sqlqueue.Again
	}
	end.After = v.After
	return end
}

func (r *Relay) backoff(attempts int) time.Duration {
	return retry.Within(r.set.Retry.Min, r.set.Retry.Max, attempts)
}

// leftBehind is how long after the end of its context a publisher may return.
const leftBehind = time.Second

// publish calls the publisher. It returns even if the publisher does not.
func (r *Relay) publish(ctx context.Context, events []Event) []error {
	if len(events) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, r.set.PublishTimeout)
	done := make(chan []error, 1)
	go func() {
		defer cancel()
		var errs []error
		if err := safely(func() error { errs = r.publisher.Publish(limited, events); return nil }); err != nil {
			errs = all(len(events), err)
		}
		done <- errorPerEvent(errs, len(events))
	}()
	<-limited.Done()
	bound := time.NewTimer(leftBehind)
	defer bound.Stop()
	select {
	case errs := <-done:
		return errs
	case <-bound.C:
		return all(len(events), fmt.Errorf("outbox: the publisher did not return after its context ended: %w", context.Cause(limited)))
	}
}
