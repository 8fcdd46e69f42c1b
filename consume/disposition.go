package consume

import (
	"time"

	"github.com/everonce/everonce"
)

// Disposition says what to do with a delivery at the broker.
type Disposition uint8

const (
	// Ack acknowledges it: the message is done. Outcomes: executed, replayed, expired, elided; rejected with DropRejected.
	// An expired rejection counts as rejected.
	Ack Disposition = iota + 1
	// Retry delivers it again after a delay, and counts towards [RetryPolicy.Limit]. Outcomes: failed; unknown if another
	// delivery can resolve it ([everonce.Error].RetryAfter is set), as with [everonce.Reconcile]. If the broker accepts
	// no copy ([ErrNoCopy]), the message becomes a dead letter.
	Retry
	// Defer delivers it again after a delay, without using up a retry. Outcomes: in_progress, lease_lost; store_failed if
	// a newer version wrote the record. If the broker accepts no copy, as with Retry.
	Defer
	// SetAside puts it into the dead-letter queue. Outcomes: rejected, mismatch, unknown; failed or unknown after the
	// last retry; store_failed if the record cannot be read. A message without key or with an unreadable payload has no
	// outcome. If the dead-letter queue refuses it, the message is delivered again after the longest delay.
	SetAside
	// Hold neither acknowledges nor returns it, and handles it again after a pause, during which the consumer starts no
	// other message. Outcomes: not_recorded, store_failed; failed if the store failed before the handler was called, or
	// [Offsets] after it; unknown if the answer to a commit was lost; invalid, because the consumer is wrong and not the
	// message.
	Hold
)

// String returns the disposition's name.
func (d Disposition) String() string {
	switch d {
	case Ack:
		return "ack"
	case Retry:
		return "retry"
	case Defer:
		return "defer"
	case SetAside:
		return "set_aside"
	case Hold:
		return "hold"
	}
	return "none"
}

// Decision is what a consumer decided about one delivery.
type Decision struct {
	Disposition Disposition
	// After is the delay of Retry and Defer.
	After time.Duration
	// Death goes with SetAside.
	Death Death
	// Outcome is the outcome of the operation; zero if the message has no usable key or payload.
	Outcome everonce.Outcome
	// KeyHash is [everonce.RecordID.Short]; empty without a key.
	KeyHash string
	// Err is the reason for every disposition but Ack. With Ack it is nil, or the rejection that DropRejected dropped.
	Err error
}

// Death describes why a message was dead-lettered. The dead letter has the message's own headers and body too.
type Death struct {
	Reason Reason
	// Detail is the reason as text for people.
	Detail string
	// Consumer is the name of the consumer that set the message aside, and Source the queue or topic that it came from.
	Consumer, Source string
	// KeyHash is [everonce.RecordID.Short], and the message ID of the dead letter; empty without a key.
	KeyHash string
	// Attempts counts the deliveries that count towards the limit of retries, including this one.
	Attempts int
	// First is when the message was first sent or first retried, if known; Last is when it was set aside.
	First, Last time.Time
}

// Reason says why a message is a dead letter.
type Reason string

// The reasons.
const (
	Rejected    Reason = "rejected"    // the handler rejected it permanently, now or earlier
	Exhausted   Reason = "exhausted"   // it failed, and has no retries left
	Mismatch    Reason = "mismatch"    // its key was used for another message
	Unknown     Reason = "unknown"     // its outcome is unknown: settle it, then replay it
	NoKey       Reason = "no_key"      // it has no valid key
	Undecodable Reason = "undecodable" // its payload, or a header of its fingerprint, cannot be read
	TooLarge    Reason = "too_large"
	BadRecord   Reason = "bad_record" // the record of its key cannot be read
)
