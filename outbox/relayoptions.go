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
	// Batch is how many events are claimed and published together, at most half of InFlight. Default 100.
	Batch int
	// InFlight is how many events the relay has in its hands, at most. Default 4 batches. A topic has half of them at
	// most, so that a slow one leaves room for others.
	InFlight int
	// Lease is for how long a claim holds the events, unless it is renewed: after a relay was killed, another one
	// publishes them that much later. Default 30 s.
	Lease time.Duration
	// Poll is the longest pause between two looks into the table. The relay looks more often for some time after it has
	// found something; on PostgreSQL it is also woken by commits. An announcement may be missing:
	// of transactions that publish within 2 ms only the first announces, and may be rolled back. Then this is the delay.
	// Default 1 s.
	Poll time.Duration
	// NoListen has the relay only poll. Otherwise it keeps a connection of the pool to
	// itself on PostgreSQL: the pool needs one more. Set it where LISTEN cannot work, as through PgBouncer in transaction mode, or
	// where outbox/replication wakes it.
	NoListen bool
	// PublishTimeout is how long one call of the publisher may take. Default 10 s. A publisher that does not return even
	// then is left behind, and its events are tried again.
	PublishTimeout time.Duration
	// Retry says when an event that failed is tried again, and after how many retries it is set aside. An unavailable
	// destination does not count.
	Retry consume.RetryPolicy
	// SkipFailed says of which topics events with the key of one that was set aside go on. By default they wait until somebody
	// retries or discards it.
	SkipFailed func(topic string) bool
	// Retention is how long a published event is kept. Default 24 h; negative removes it when it is published. See
	// [Outbox.Archive].
	Retention time.Duration
	// DrainTimeout is how long Run lets publishers end after its context has ended. Default 15 s. What does not heed its
	// context, and a database that does not answer, may hold Run for longer.
	DrainTimeout time.Duration
	// Log gets what needs attention. Default [slog.Default].
	Log *slog.Logger
	// Observe, if set, is called with what became of each event. It must not block.
	Observe func(ctx context.Context, e *Event, v Report)
}

// Report is what became of an event in the hands of a relay.
type Report struct {
	// How is what became of it.
	How Disposition
	// Lag is how long after its insertion.
	Lag time.Duration
	// After is when a Retried event is tried again.
	After time.Duration
	// Err is why it was not published.
	Err error
}

// Disposition says what became of an event.
type Disposition uint8

// The dispositions.
const (
	// Published: the destination has it.
	Published Disposition = iota + 1
	// Retried: it is tried again later.
	Retried
	// SetAside: it failed for good, or too often, and waits for an operator: see [Outbox.Backlog].
	SetAside
	// Lost: the lease was lost while it was published; another relay has it, and publishes it again.
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
	set.Batch = min(set.Batch, max(set.InFlight/2, 1)) // more would be more of a topic than half
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
