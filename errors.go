package everonce

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/everonce/everonce/driver"
)

// Sentinels, for errors.Is. Each says that nothing ran, or what did.
var (
	// ErrInvalidKey: the key cannot name an operation. Nothing ran.
	ErrInvalidKey = driver.ErrInvalidKey
	// ErrInvalidArgument: a call or a constructor was given something that cannot work. Nothing ran.
	ErrInvalidArgument = driver.ErrInvalidArgument
	// ErrLeaseLost: another attempt, a reconciler or a settlement has the record. What the record says is the answer.
	ErrLeaseLost = driver.ErrLeaseLost
	// ErrTxDoomed: the caller's transaction did not survive an error of the work. Roll it back.
	ErrTxDoomed = driver.ErrTxDoomed
	// ErrTxTooLong: a transaction exceeded Options.TxTimeout, or the bound of its store. It was rolled back.
	ErrTxTooLong = driver.ErrTxTooLong
	// ErrAttemptEnded: a step or a repeated claim came after the attempt had ended. It is the cause of the work's context then.
	ErrAttemptEnded = driver.ErrAttemptEnded
	// ErrInProgress: another attempt of the operation is running. Try again after [Error.RetryAfter].
	ErrInProgress = errors.New("everonce: operation in progress")
	// ErrMismatch: the key was used before with another fingerprint. The record is untouched.
	ErrMismatch = errors.New("everonce: key reused with a different request")
	// ErrOutcomeUnknown: an attempt ended and nobody knows whether its effect happened. If [Error.RetryAfter] is set,
	// calling again finds out, asks or goes on; if not, it stays so until settled.
	ErrOutcomeUnknown = errors.New("everonce: outcome unknown")
	// ErrExpired: the operation was completed, done or refused for good, and its result is no longer kept.
	// [Error.Kind] says which of the two, and [Error.Summary] has what is left; of a refusal, that is its code.
	ErrExpired = errors.New("everonce: completed, result expired")
	// ErrResultElided: the operation was done, but its result was not kept. [Error.Summary] has what is left.
	ErrResultElided = errors.New("everonce: done, result elided")
	// ErrNotRecorded: the effect happened, but its record could not be saved. The value comes with the error.
	ErrNotRecorded = errors.New("everonce: effect happened, record not saved")
	// ErrUndecodable: the operation was done, but its saved result cannot be decoded. It is not run again for that.
	ErrUndecodable = errors.New("everonce: saved result cannot be decoded")
	// ErrNested: an operation called itself, that is, the same key inside its own work.
	ErrNested = errors.New("everonce: operation nested in itself")
	// ErrInTransaction: a call on a store inside the work of a transaction on it, other than a [DoTx] in that transaction. It
	// could wait for itself.
	ErrInTransaction = errors.New("everonce: inside a transaction on the same store")
	// ErrNotFound: there is no record of the key.
	ErrNotFound = errors.New("everonce: no record of this key")
	// ErrReleased: the last attempt ended, and nothing happened. The operation may be sent again.
	ErrReleased = errors.New("everonce: not done, may be sent again")
	// ErrNotUnknown: a settlement met a record, or a step, that is not unknown.
	ErrNotUnknown = errors.New("everonce: nothing to settle")
)

// What a store says, for errors.Is. Every failure of a store, these included, also is [ErrStore].
var (
	// ErrStore: the store failed or cannot be reached. It never means "not a duplicate".
	ErrStore = driver.ErrStore
	// ErrSchema: the store's tables are missing or of another version. The text says what to run.
	ErrSchema = driver.ErrSchema
	// ErrTooLarge: a value is larger than the store, or an option, allows.
	ErrTooLarge = driver.ErrTooLarge
	// ErrNewerRecord: a newer version of everonce wrote the record. Upgrade this process.
	ErrNewerRecord = driver.ErrNewerRecord
	// ErrCorruptRecord: the record cannot be read.
	ErrCorruptRecord = driver.ErrCorruptRecord
)

// ofStore returns what a store said as one that also is [ErrStore]: a store need not say so itself.
func ofStore(err error) error {
	if errors.Is(err, ErrStore) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrStore, err)
}

// Error is the typed error of a call that did not end with a value. It wraps a sentinel and, if there is one, the
// cause. Its text holds the key's hash, never the key.
type Error struct {
	Outcome Outcome
	// KeyHash is [RecordID.Short] of the key.
	KeyHash string
	// RetryAfter is how long to wait before trying again; zero if that is not known or pointless. Of an unknown outcome
	// it is set where the next call of the operation does more than say so again: it finds out about a commit, asks
	// ([Reconcile]), or goes on ([EffectsInSteps], [Reexecute]).
	RetryAfter time.Duration
	// Step is the name of the step concerned, if any.
	Step string
	// Summary is what is left of an expired or elided result, and Kind what that result was. Kind is also set, to
	// ResultValue, for a value that cannot be decoded.
	Summary []byte
	Kind    driver.ResultKind
	// Sentinel is for errors.Is, and Cause is the underlying error. Either may be nil.
	Sentinel error
	Cause    error
}

// Refused reports whether the operation was refused for good: what [ErrExpired] leaves open.
func (e *Error) Refused() bool { return e.Kind == driver.ResultFailure }

// Error returns a text without key or secret.
func (e *Error) Error() string {
	var b strings.Builder
	switch {
	case e.Sentinel != nil:
		b.WriteString(e.Sentinel.Error())
	default:
		b.WriteString("everonce: " + e.Outcome.String())
	}
	if e.Step != "" {
		fmt.Fprintf(&b, ": step %q", e.Step)
	}
	if e.KeyHash != "" {
		fmt.Fprintf(&b, " (key %s)", e.KeyHash)
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, ", retry after %v", e.RetryAfter)
	}
	if e.Cause != nil {
		cause := e.Cause.Error()
		if e.Sentinel != nil { // a store's own error may begin with the same words
			cause = strings.TrimPrefix(cause, e.Sentinel.Error()+": ")
		}
		b.WriteString(": " + cause)
	}
	return b.String()
}

// Unwrap returns the sentinel and the cause.
func (e *Error) Unwrap() []error {
	switch {
	case e.Sentinel == nil && e.Cause == nil:
		return nil
	case e.Sentinel == nil:
		return []error{e.Cause}
	case e.Cause == nil:
		return []error{e.Sentinel}
	}
	return []error{e.Sentinel, e.Cause}
}
