package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// State says where an event stands.
type State string

// The states.
const (
	Pending   State = "pending"   // it waits for its time, or for a later try
	InHand    State = "in_hand"   // a relay has it
	Blocked   State = "blocked"   // set aside; events behind it with the same key wait
	Dead      State = "dead"      // set aside; events behind it go on
	Done      State = "published" // kept until its retention ends
	Discarded State = "discarded" // an operator gave it up
)

// Filter chooses events. The zero Filter chooses all.
type Filter struct {
	// States, if not empty, are the states to choose from. [InHand] counts as [Pending].
	States []State
	// Topic, Key and ID, if not empty, are those of the events.
	Topic, Key, ID string
	// OlderThan, if not 0, chooses events that were inserted longer ago.
	OlderThan time.Duration
	// After chooses events with a larger [Entry.Seq]; Limit is how many, at most: 0 is no limit.
	After int64
	Limit int
}

func (f *Filter) queue() (q sqlqueue.Filter, err error) {
	q = sqlqueue.Filter{Lane: f.Topic, OrderKey: f.Key, ID: f.ID, OlderThan: f.OlderThan, After: f.After, Limit: f.Limit}
	for _, s := range f.States {
		state, ok := map[State]sqlqueue.State{
			Pending: sqlqueue.Pending, InHand: sqlqueue.Pending, Blocked: sqlqueue.Blocked, Dead: sqlqueue.Dead, Done: sqlqueue.Done, Discarded: sqlqueue.Discarded,
		}[s]
		if !ok {
			return q, fmt.Errorf("outbox: %w: there is no state %q", everonce.ErrInvalidArgument, s)
		}
		q.States = append(q.States, state)
	}
	return q, nil
}

// Entry is an event as the table keeps it.
type Entry struct {
	Event
	// Seq is its number in the order of insertion.
	Seq   int64
	State State
	// DueAt is when it is tried next, or when the lease of its relay ends. DoneAt is when it was published, or discarded.
	DueAt, DoneAt time.Time
	// Error is why it failed last.
	Error string
}

// List returns events in the order of their insertion, at most filter.Limit of them; go on with filter.After.
func (o *Outbox[Tx]) List(ctx context.Context, filter Filter) ([]Entry, error) {
	f, err := filter.queue()
	if err != nil {
		return nil, err
	}
	rows, err := sqlqueue.List(ctx, o.queue, f, (*row).places)
	if err != nil {
		return nil, o.failed("list", err)
	}
	entries := make([]Entry, len(rows))
	for i := range rows {
		r := &rows[i]
		e, err := r.read()
		if err != nil {
			r.common.Error = err.Error()
		}
		entries[i] = Entry{
			Event: *e, Seq: r.common.Seq, State: stateOf(&r.common),
			DueAt: sqlqueue.Time(r.common.DueAt), DoneAt: sqlqueue.Time(r.common.DoneAt), Error: r.common.Error,
		}
	}
	return entries, nil
}

func stateOf(r *sqlqueue.Row) State {
	switch r.State {
	case sqlqueue.Pending:
		if r.InHand() {
			return InHand
		}
		return Pending
	case sqlqueue.Blocked:
		return Blocked
	case sqlqueue.Dead:
		return Dead
	case sqlqueue.Discarded:
		return Discarded
	}
	return Done
}

// Count returns how many events the filter chooses.
func (o *Outbox[Tx]) Count(ctx context.Context, filter Filter) (int, error) {
	return o.change(ctx, filter, "count", o.queue.Count)
}

// Retry has events that were set aside, or that wait for a later try, tried at once, with no attempts counted. It returns
// how many. Events in the hands of a relay are left alone.
func (o *Outbox[Tx]) Retry(ctx context.Context, filter Filter) (int, error) {
	return o.change(ctx, filter, "retry", o.queue.Retry)
}

// Discard gives events up that are pending or set aside, and returns how many: they are never published, and kept as
// [Discarded] until the retention ends. Events in the hands of a relay are left alone.
func (o *Outbox[Tx]) Discard(ctx context.Context, filter Filter) (int, error) {
	return o.change(ctx, filter, "discard", o.queue.Discard)
}

func (o *Outbox[Tx]) change(ctx context.Context, filter Filter, what string, do func(context.Context, sqlqueue.Filter) (int, error)) (int, error) {
	f, err := filter.queue()
	if err != nil {
		return 0, err
	}
	n, err := do(ctx, f)
	return n, o.failed(what, err)
}

// Purge removes events that were published or discarded longer ago than the retention, at most limit of them, in batches,
// and returns how many. A running [Relay] does so by itself.
func (o *Outbox[Tx]) Purge(ctx context.Context, retention time.Duration, limit int) (int, error) {
	n, err := o.queue.Purge(ctx, retention, limit)
	return n, o.failed("purge", err)
}

// Stats are the figures of an outbox.
type Stats struct {
	// Waiting are due, or wait for a later try; InHand are in the hands of relays; Delayed wait for their NotBefore.
	Waiting, InHand, Delayed int
	// Blocked and Dead were set aside: see [State].
	Blocked, Dead int
	// Lag is the age of the oldest event that is due and not published.
	Lag time.Duration
}

// Stats counts what is not published. It takes longer the more there is.
func (o *Outbox[Tx]) Stats(ctx context.Context) (Stats, error) {
	s, err := o.queue.Stats(ctx)
	return Stats{s.Waiting, s.InHand, s.Delayed, s.Blocked, s.Dead, s.Oldest}, o.failed("stats", err)
}
