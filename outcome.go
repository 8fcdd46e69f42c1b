package everonce

import (
	"fmt"
)

// Outcome is how one call ended. The set is closed, without the zero value.
type Outcome uint8

// The outcomes.
const (
	// Executed: the work ran in this call, or a reconciler found its effect ([Result.Reconciled]).
	Executed Outcome = iota + 1
	// Replayed: this is the saved result of an earlier call.
	Replayed
	// Rejected: a permanent failure, saved now or earlier.
	Rejected
	// Failed: there is no result, and the key may be tried again. Nothing happened, the policy is [Reexecute], or the
	// context or lease ended before the work was called.
	Failed
	// InProgress: another attempt is running.
	InProgress
	// Mismatch: see [ErrMismatch].
	Mismatch
	// Unknown: it is not known whether the effect happened.
	Unknown
	// Expired: it was done, or refused for good ([Error.Refused]), and the result is no longer kept.
	Expired
	// Elided: it was done, but its result was not kept, because of size or encoding.
	Elided
	// NotRecorded: the work ended, but was not recorded: its effect happened ([ErrNotRecorded], with the value), or it
	// was refused for good (a [*PermanentError] in the error).
	NotRecorded
	// LeaseLost: see [ErrLeaseLost].
	LeaseLost
	// StoreFailed: the store failed, or a saved result cannot be read ([ErrUndecodable]). Nothing happened in this
	// call.
	StoreFailed
	// Invalid: the call was wrong (key, arguments, place). Nothing ran.
	Invalid

	outcomeEnd
)

var outcomeNames = [outcomeEnd]string{
	Executed: "executed", Replayed: "replayed", Rejected: "rejected", Failed: "failed", InProgress: "in_progress",
	Mismatch: "mismatch", Unknown: "unknown", Expired: "expired", Elided: "elided", NotRecorded: "not_recorded",
	LeaseLost: "lease_lost", StoreFailed: "store_failed", Invalid: "invalid",
}

// String returns the name for metrics and logs, such as "in_progress"; "none" outside the set.
func (o Outcome) String() string {
	if o == 0 || o >= outcomeEnd {
		return "none"
	}
	return outcomeNames[o]
}

// parseName sets dst to the value between first and last whose String is text.
func parseName[E interface {
	~uint8
	String() string
}](dst *E, text []byte, first, last E) error {
	for e := first; e <= last; e++ {
		if e.String() == string(text) {
			*dst = e
			return nil
		}
	}
	if string(text) == "none" {
		*dst = 0
		return nil
	}
	return fmt.Errorf("%w: %q is not a valid %T", ErrInvalidArgument, text, first)
}

// MarshalText returns String.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText parses String's text; the error wraps [ErrInvalidArgument].
func (o *Outcome) UnmarshalText(text []byte) error { return parseName(o, text, Executed, outcomeEnd-1) }

// MarshalText returns String.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses String's text; the error wraps [ErrInvalidArgument].
func (p *Policy) UnmarshalText(text []byte) error { return parseName(p, text, Reexecute, Reconcile) }
