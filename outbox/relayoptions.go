package outbox

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
)

// RelayOptions are the options of a relay. The zero value of each field is its default.
type RelayOptions struct {
	// Batch is the largest number of events that are claimed and published together, at most half of InFlight. Default
	// 100.
	Batch int
	// InFlight is the largest number of events that the relay has claimed. Default 4 batches. A topic has at most half of
	// them, so that a slow one leaves room for others.
	InFlight int
	// Lease is how long a claim holds the events, unless it is renewed: after a relay was killed, another one publishes
	// them that much later. Default 30 s.
	Lease time.Duration
	// Poll is the longest pause between two reads of the table. The relay reads more often for some time after it has
	// found events; on PostgreSQL commits wake it too. An announcement may be missing: of transactions that publish within
	// 2 ms only the first announces, and it may be rolled back. Then Poll is the delay. Default 1 s.
	Poll time.Duration
	// NoListen makes the relay only poll. Otherwise, on PostgreSQL, it keeps a connection of the pool for LISTEN: the pool
	// needs one more. Set it where LISTEN cannot work, as through PgBouncer in transaction mode, or if outbox/replication
	// wakes the relay.
	NoListen bool
	// PublishTimeout is how long one call of the publisher may take. Default 10 s. A publisher that does not return even
	// then is left behind, and its events are tried again.
	PublishTimeout time.Duration
	// Retry is when an event that failed is tried again, and after how many retries it is set aside. Tries that fail
	// because the destination is unavailable are not counted.
	Retry consume.RetryPolicy
	// SkipFailed reports whether events of a topic go on after one with the same key was set aside. By default they wait
	// until an operator retries or discards that event.
	SkipFailed func(topic string) bool
	// Retention is how long a published event is kept. Default 24 h; negative removes it when it is published. See
	// [Outbox.Archive].
	Retention time.Duration
	// DrainTimeout is how long Run lets publishers finish after its context has ended. Default 15 s. A publisher that
	// ignores its context, or a database that does not answer, may hold Run longer.
	DrainTimeout time.Duration
	// Log receives warnings and errors. Default [slog.Default].
	Log *slog.Logger
	// Observe, if set, is called after each try of an event. It must not block.
	Observe func(ctx context.Context, e *Event, v Report)
}

// Report is how a relay's try of an event ended.
type Report struct {
	// How is the disposition of the event.
	How Disposition
	// Lag is the time since the event was inserted.
	Lag time.Duration
	// After is the delay until a Retried event is tried again.
	After time.Duration
	// Err is why it was not published.
	Err error
}

// Disposition is how a try of an event ended.
type Disposition uint8

// The dispositions.
const (
	// Published: the destination has it.
	Published Disposition = iota + 1
	// Retried: it is tried again later.
	Retried
	// SetAside: it failed permanently, or too often, and waits for an operator: see [Outbox.Backlog].
	SetAside
	// Lost: the lease was lost during the try; another relay has the event, and publishes it again.
	Lost
)

// String returns the disposition's name.
func (d Disposition) String() string {
	switch d {
	case Published:
		return "published"
	case Retried:
		return "retried"
	case SetAside:
		return "set_aside"
	case Lost:
		return "lost"
	}
	return "none"
}

func (o *RelayOptions) complete() (set RelayOptions, err error) {
	if o != nil {
		set = *o
	}
	if set.Batch < 0 || set.InFlight < 0 || set.Lease < 0 || set.Poll < 0 || set.PublishTimeout < 0 || set.Retry.Min < 0 || set.Retry.Max < 0 || set.DrainTimeout < 0 {
		return set, fmt.Errorf("outbox: %w: an option of the relay is negative", everonce.ErrInvalidArgument)
	}
	set.Batch = min(cmp.Or(set.Batch, 100), 5000)
	set.InFlight = cmp.Or(set.InFlight, 4*set.Batch)
	set.Batch = min(set.Batch, max(set.InFlight/2, 1)) // a topic has at most half of InFlight
	set.Lease = cmp.Or(set.Lease, 30*time.Second)
	set.Poll = cmp.Or(set.Poll, time.Second)
	set.PublishTimeout = cmp.Or(set.PublishTimeout, 10*time.Second)
	set.Retry = set.Retry.WithDefaults(10)
	set.Retention = cmp.Or(set.Retention, 24*time.Hour)
	set.DrainTimeout = cmp.Or(set.DrainTimeout, 15*time.Second)
	if set.SkipFailed == nil {
		set.SkipFailed = func(string) bool { return false }
	}
	if set.Log == nil {
		set.Log = slog.Default()
	}
	if set.Lease < 100*time.Millisecond {
		return set, fmt.Errorf("outbox: %w: a lease of %v is too short (100 ms is the least)", everonce.ErrInvalidArgument, set.Lease)
	}
	return set, nil
}
