package consume

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/everonce/everonce"
)

// ErrUnreadable says that a dead letter cannot be read. The results and effects of the method that returns it are
// valid; the error says where the dead letter is.
var ErrUnreadable = errors.New("consume: a dead letter cannot be read")

// DeadLetters shows, replays and discards the dead letters of one queue or topic. Adapters implement it; the program
// everonce dlq uses it. Its methods must not be called concurrently.
type DeadLetters interface {
	// All returns an iterator over the selected dead letters, and removes none. It ends with the first error. An error
	// that wraps ErrUnreadable comes after the dead letters that can be read.
	All(ctx context.Context, filter Filter) iter.Seq2[DeadLetter, error]
	// Replay sends copies of the selected dead letters to where they were consumed, with the original key and headers and
	// zero retries. It removes each dead letter once the broker has confirmed its copy. If the message was already
	// handled, the copy is a duplicate. An interrupted replay may leave a dead letter beside its copy. Replay returns the
	// number of replayed dead letters.
	Replay(ctx context.Context, filter Filter) (replayed int, err error)
	// Discard deletes the selected dead letters and returns their number.
	Discard(ctx context.Context, filter Filter) (discarded int, err error)
	// Consumers returns the current number of other consumers that may hold dead letters, which the methods then do not
	// see; 0 if the broker does not hide dead letters.
	Consumers(ctx context.Context) (int, error)
	// Close closes the connection.
	Close() error
}

// DeadLetter is one dead letter.
type DeadLetter struct {
	// Death describes why the message was dead-lettered. If the broker did it (delivery limit, maximum length,
	// TTL), the reason begins with "broker_", and there is no key hash.
	Death
	// Message is the message as the handler saw it.
	Message *Message
	// Queue is the queue or topic that a replay sends to.
	Queue string
	// Replays counts its earlier replays.
	Replays int
	// ID identifies the dead letter, which may have no key or share it with others. It is a hash of the whole dead
	// letter, in 16 hexadecimal digits. It is stable: neither reading the dead letter nor another version of this package
	// changes it. Dead letters that are equal in everything, including their times, have the same ID.
	ID string
}

// Filter selects dead letters. The zero value selects all.
type Filter struct {
	// Reasons are the reasons to select; none means any.
	Reasons []Reason
	// Queue is the queue or topic that a replay sends to: several may share their dead letters. Empty means any.
	Queue string
	// ID and KeyHash are prefixes of the fields of the dead letter. Empty means any.
	ID, KeyHash string
	// Before and After bound the time when it became a dead letter. The zero time means no bound.
	Before, After time.Time
	// Only, if set, is called once for each dead letter that the fields above select, and selects those for which it
	// returns true.
	Only func(*DeadLetter) bool
	// Limit is the largest number of dead letters to select. 0 means no limit; a negative value is an error.
	Limit int
}

// Validate returns an error that wraps [everonce.ErrInvalidArgument] if f is invalid.
func (f *Filter) Validate() error {
	if f.Limit < 0 {
		return fmt.Errorf("%w: consume: Filter.Limit must not be negative", everonce.ErrInvalidArgument)
	}
	return nil
}

// Matches reports whether f selects l, regardless of Limit.
func (f *Filter) Matches(l *DeadLetter) bool {
	return (len(f.Reasons) == 0 || slices.Contains(f.Reasons, l.Reason)) &&
		(f.Queue == "" || l.Queue == f.Queue) && strings.HasPrefix(l.ID, f.ID) && strings.HasPrefix(l.KeyHash, f.KeyHash) &&
		(f.Before.IsZero() || l.Last.Before(f.Before)) &&
		(f.After.IsZero() || l.Last.After(f.After)) &&
		(f.Only == nil || f.Only(l))
}
