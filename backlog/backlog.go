// Package backlog lists the rows of an outbox, an inbox or a table of sagas for operators, who can retry rows that were
// set aside, or give them up.
package backlog

import (
	"context"
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// State is the state of an entry.
type State string

// The states.
const (
	Pending   State = "pending"   // waiting for its time, or for its next try
	InHand    State = "in_hand"   // claimed by a process
	Blocked   State = "blocked"   // set aside; later entries with the same order key wait
	Dead      State = "dead"      // set aside; later entries go on
	Done      State = "done"      // kept until its retention ends
	Discarded State = "discarded" // given up
)

// states are the states of the table.
var states = map[State]sqlqueue.State{
	Pending: sqlqueue.Pending, InHand: sqlqueue.InHand, Blocked: sqlqueue.Blocked, Dead: sqlqueue.Dead,
	Done: sqlqueue.Done, Discarded: sqlqueue.Discarded,
}

// Filter chooses entries. The zero Filter chooses all.
type Filter struct {
	// States, if not empty, are the states to choose from.
	States []State
	// Seq, if not 0, chooses only the entry with this number: see [Entry].
	Seq int64
	// Kind is an event's topic, a message's type, or a saga's definition; OrderKey and ID are as in [Entry]. Empty fields
	// choose all entries.
	Kind, OrderKey, ID string
	// OlderThan, if not 0, chooses entries that were inserted longer ago.
	OlderThan time.Duration
	// After chooses entries with a larger [Entry.Seq]. Limit is the largest number of entries; 0 is no limit.
	After int64
	Limit int
}

func (f *Filter) queue() (q sqlqueue.Filter, err error) {
	q = sqlqueue.Filter{Seq: f.Seq, Lane: f.Kind, OrderKey: f.OrderKey, ID: f.ID, OlderThan: f.OlderThan, After: f.After, Limit: f.Limit}
	for _, s := range f.States {
		state, ok := states[s]
		if !ok {
			return q, fmt.Errorf("backlog: %w: unknown state %q (use pending, in_hand, blocked, dead, done or discarded)", everonce.ErrInvalidArgument, s)
		}
		q.States = append(q.States, state)
	}
	return q, nil
}

// Entry is one row: an event, a message, or a saga.
type Entry struct {
	// Seq is the entry's number in the order of insertion.
	Seq int64
	// ID is the ID of the event, message or saga.
	ID string
	// Group is an event's topic, a message's consumer, or a saga's definition; Kind is as in [Filter].
	Group, Kind string
	// OrderKey is the key that orders the entry, if any.
	OrderKey string
	State    State
	// Attempts is how often the entry was tried, the current try included.
	Attempts int
	// CreatedAt is when the entry was inserted. DueAt is when it is tried next, or when its lease ends. DoneAt is when it
	// was done or given up. All times are the database's.
	CreatedAt, DueAt, DoneAt time.Time
	// Error is why the last try failed, or why the entry cannot be read.
	Error string
}

// Stats are the figures of a table.
type Stats struct {
	// Waiting entries are due, or wait for a later try. InHand entries are claimed by a process. Delayed entries are not
	// yet due for their first try.
	Waiting, InHand, Delayed int
	// Blocked and Dead entries were set aside: see [State].
	Blocked, Dead int
	// Lag is the age of the oldest entry that is due and not done.
	Lag time.Duration
}

// Table is the table of an outbox, of a consumer's inbox, or of sagas: see their Backlog methods. It is safe for
// concurrent use. Errors of the database wrap [everonce.ErrStore].
type Table struct {
	queue *sqlqueue.Queue
	wrap  func(what string, err error) error
}

// The packages that have tables make a Table by a hook, so that no exported function takes an internal type.
func init() {
	sqlqueue.NewBacklog = func(queue *sqlqueue.Queue, wrap func(what string, err error) error) any {
		return &Table{queue, wrap}
	}
}

// List returns entries in the order of their insertion, at most filter.Limit of them. Set filter.After to continue.
func (t *Table) List(ctx context.Context, filter Filter) ([]Entry, error) {
	f, err := filter.queue()
	if err != nil {
		return nil, err
	}
	rows, err := t.queue.Common(ctx, f)
	if err != nil {
		return nil, t.wrap("list", err)
	}
	entries := make([]Entry, len(rows))
	for i := range rows {
		r := &rows[i]
		entries[i] = Entry{
			Seq: r.Seq, ID: r.ID, Group: r.Group, Kind: r.Lane, OrderKey: r.OrderKey, State: stateOf(r), Attempts: int(r.Attempts),
			CreatedAt: sqlqueue.Time(r.CreatedAt), DueAt: sqlqueue.Time(r.DueAt), DoneAt: sqlqueue.Time(r.DoneAt), Error: r.Error,
		}
		if r.Corrupt != nil && r.Error == "" {
			entries[i].Error = sqlqueue.ErrorText(r.Corrupt)
		}
	}
	return entries, nil
}

func stateOf(r *sqlqueue.Row) State {
	if r.InHand() {
		return InHand
	}
	for name, s := range states {
		if s == r.State {
			return name
		}
	}
	return State(r.State.String())
}

// Count returns the number of entries that the filter chooses.
func (t *Table) Count(ctx context.Context, filter Filter) (int, error) {
	return t.change(ctx, filter, "count", t.queue.Count)
}

// Retry makes entries due at once that were set aside or wait for a later try, and resets their attempts. It returns
// how many there were. Entries that a process has claimed are unchanged.
func (t *Table) Retry(ctx context.Context, filter Filter) (int, error) {
	return t.change(ctx, filter, "retry", t.queue.Retry)
}

// Discard gives up entries that are pending or set aside, and returns how many there were. They are not tried again,
// and are kept as [Discarded] until the retention ends. Entries that a process has claimed are unchanged.
func (t *Table) Discard(ctx context.Context, filter Filter) (int, error) {
	return t.change(ctx, filter, "discard", t.queue.Discard)
}

func (t *Table) change(ctx context.Context, filter Filter, what string, do func(context.Context, sqlqueue.Filter) (int, error)) (int, error) {
	f, err := filter.queue()
	if err != nil {
		return 0, err
	}
	n, err := do(ctx, f)
	return n, t.wrap(what, err)
}

// Purge removes entries that were done or given up longer ago than the retention, in batches, at most limit of them,
// and returns how many it removed. Relays, workers and runners purge their tables automatically.
func (t *Table) Purge(ctx context.Context, retention time.Duration, limit int) (int, error) {
	n, err := t.queue.Purge(ctx, retention, limit)
	return n, t.wrap("purge", err)
}

// Stats counts the entries that are not done. Its cost grows with their number.
func (t *Table) Stats(ctx context.Context) (Stats, error) {
	s, err := t.queue.Stats(ctx)
	return Stats{s.Waiting, s.InHand, s.Delayed, s.Blocked, s.Dead, s.Oldest}, t.wrap("stats", err)
}

// KindStats are the figures of the entries of one kind: see [Filter.Kind].
type KindStats struct {
	Kind string
	// Waiting entries are due, or wait for a later try, as in [Stats]. Untried of them are due and were never tried.
	Waiting, Untried int
	// UntriedFor is how long the oldest untried entry has been due. If it grows while other kinds go on, no running
	// process takes this kind: for example, no worker of an inbox has a handler of this type.
	UntriedFor time.Duration
}

// Kinds counts the waiting entries by kind, sorted by name. Its cost grows with their number.
func (t *Table) Kinds(ctx context.Context) ([]KindStats, error) {
	lanes, err := t.queue.Lanes(ctx)
	if err != nil {
		return nil, t.wrap("kinds", err)
	}
	kinds := make([]KindStats, len(lanes))
	for i, l := range lanes {
		kinds[i] = KindStats{l.Lane, l.Waiting, l.Untried, l.UntriedFor}
	}
	return kinds, nil
}
