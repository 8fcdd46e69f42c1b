package everonce

import (
	"fmt"
)

// Outcome is what became of one call. The set is closed; the zero value is not in it.
type Outcome uint8

// The outcomes.
const (
	// Executed: the work ran in this call, or asking found that it had run before ([Result.Reconciled]), and the
	// result is recorded.
	Executed Outcome = iota + 1
	// Replayed: an earlier call executed it; this is its saved result.
	Replayed
	// Rejected: a permanent failure, saved now or earlier.
	Rejected
	// Failed: there is no result, and the key may be tried again. Nothing happened, or the policy is [Reexecute], or
	// the context or the lease ended before the work was called.
	Failed
	// InProgress: another attempt is running.
	InProgress
	// Mismatch: the key was used with another fingerprint.
	Mismatch
	// Unknown: nobody knows whether the effect happened.
	Unknown
	// Expired: it was done, or refused for good ([Error.Kind]), and the result is no longer kept.
	Expired
	// Elided: it was done, but the result was not kept, because of its size or encoding.
	Elided
	// NotRecorded: the work ended, but that could not be saved. Either the effect happened ([ErrNotRecorded], with
	// the value), or it was refused for good (a [*PermanentError] in the error).
	NotRecorded
	// LeaseLost: another attempt, a reconciler or a settlement took the record; its answer counts.
	LeaseLost
	// StoreFailed: the store failed, or a saved result cannot be read ([ErrUndecodable]). Nothing happened in this
	// call: the work was not called, or what it wrote in a transaction was undone.
	StoreFailed
	// Invalid: the call itself was wrong (key, arguments, place); nothing ran.
	Invalid

	outcomeEnd
)

var outcomeNames = [outcomeEnd]string{
	Executed: "executed", Replayed: "replayed", Rejected: "rejected", Failed: "failed", InProgress: "in_progress",
	Mismatch: "mismatch", Unknown: "unknown", Expired: "expired", Elided: "elided", NotRecorded: "not_recorded",
	LeaseLost: "lease_lost", StoreFailed: "store_failed", Invalid: "invalid",
}

// String returns the outcome as metrics and logs spell it: "executed", "in_progress", and so on; "none" for a value
// that is not in the set.
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
	return fmt.Errorf("%w: %q is no %T", ErrInvalidArgument, text, first)
}

// MarshalText returns the name of String.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText parses that name; the error wraps [ErrInvalidArgument].
func (o *Outcome) UnmarshalText(text []byte) error { return parseName(o, text, Executed, outcomeEnd-1) }

// MarshalText returns the name of String.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses that name; the error wraps [ErrInvalidArgument].
func (p *Policy) UnmarshalText(text []byte) error { return parseName(p, text, Reexecute, Reconcile) }
