package consume

import (
	"time"

	"github.com/everonce/everonce"
)

// Disposition says what becomes of a delivery at the broker.
type Disposition uint8

const (
	// Ack: done, now or earlier. Outcomes executed, replayed, expired and elided; and rejected under DropRejected. A
	// refusal that has expired counts as rejected.
	Ack Disposition = iota + 1
	// Retry: it comes again after a delay, and that counts. Outcome failed; and unknown if another delivery asks or goes
	// on ([everonce.Error].RetryAfter), as under [everonce.Reconcile]. If the broker takes no copy of it ([ErrNoCopy]), it
	// is a dead letter instead.
	Retry
	// Later: it comes again after a delay, and that does not count. Outcomes in_progress and lease_lost; and a record
	// that a newer version wrote. If the broker takes no copy of it, as above.
	Later
	// Bury: it goes to the dead letters. Outcomes rejected, mismatch and unknown; a message that failed, or was asked
	// about, once too often; a record that cannot be read; and a message that cannot be handled at all. If the dead
	// letters take no more, it comes again after the longest delay instead, to be handled and buried then.
	Bury
	// Keep: it stays in hand and is handled again after a pause, during which nothing else is begun either. Outcomes
	// not_recorded and store_failed; failed if the store failed before the handler was called; unknown if the answer to a
	// commit was lost; and invalid, which is the fault of the consumer and not of the message: the broker
	// would only deliver it to a consumer that cannot handle it.
	Keep
)

// String returns the disposition's name.
func (d Disposition) String() string {
	switch d {
	case Ack:
		return "ack"
	case Retry:
		return "retry"
	case Later:
		return "later"
	case Bury:
		return "bury"
	case Keep:
		return "keep"
	}
	return "none"
}

// Verdict is what a consumer decided about one delivery.
type Verdict struct {
	Disposition Disposition
	// After is the delay of Retry and Later.
	After time.Duration
	// Letter goes with Bury.
	Letter DeadLetter
	// Outcome is the core's; zero if the message got no further than its key or its payload.
	Outcome everonce.Outcome
	// KeyHash is [everonce.RecordID.Short]; empty if no key was found.
	KeyHash string
	// Err is the reason if it is not Ack. An Ack has one only if a refusal is dropped, under DropRejected: the refusal,
	// of which there is no dead letter.
	Err error
}

// DeadLetter is what a dead letter says about itself, in addition to the message's own headers and body.
type DeadLetter struct {
	Reason Reason
	// Detail is for a person.
	Detail string
	// Consumer is the one that buried it, and Source is where it came from.
	Consumer, Source string
	// KeyHash is [everonce.RecordID.Short], and the dead letter's message ID; empty if no key was found.
	KeyHash string
	// Attempts counts the deliveries that were handled and counted, including this one.
	Attempts int
	// First is when it was first sent or first given back, if that is known; Last is when it was buried.
	First, Last time.Time
}

// Reason says why a message is a dead letter. The set is closed.
type Reason string

// The reasons.
const (
	Rejected    Reason = "rejected"    // refused for good, now or earlier
	Exhausted   Reason = "exhausted"   // failed too often
	Mismatch    Reason = "mismatch"    // its key was used for another message
	Unknown     Reason = "unknown"     // nobody knows whether it took effect: settle it, then replay it
	NoKey       Reason = "no_key"      // it has no key, or one that cannot be used
	Undecodable Reason = "undecodable" // its payload, or a header of its fingerprint, is not what the consumer reads
	TooLarge    Reason = "too_large"
	BadRecord   Reason = "bad_record" // the record of its key cannot be read
)
