package everonce

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/everonce/everonce/driver"
)

// Sentinels, for errors.Is.
var (
	// ErrInvalidKey: the key is empty, too long or malformed. Nothing ran.
	ErrInvalidKey = driver.ErrInvalidKey
	// ErrInvalidArgument: an argument or an option is invalid. Nothing ran.
	ErrInvalidArgument = driver.ErrInvalidArgument
	// ErrLeaseLost: another attempt, a reconciler or a settlement took over the record. Its answer is the valid
	// one.
	ErrLeaseLost = driver.ErrLeaseLost
	// ErrTxDoomed: the caller's transaction did not survive an error of the work. Roll it back.
	ErrTxDoomed = driver.ErrTxDoomed
	// ErrTxTooLong: a transaction exceeded Options.TxTimeout or its store's limit, and was rolled back.
	ErrTxTooLong = driver.ErrTxTooLong
	// ErrOtherStore: the receiver of a transactional step has another store, or the transaction of DoTx is on another
	// database.
	ErrOtherStore = driver.ErrOtherStore
	// ErrAttemptEnded: a step or a repeated claim came after the attempt had ended. Also the cause of its context.
	ErrAttemptEnded = driver.ErrAttemptEnded
	// ErrInProgress: another attempt is running. Retry after [Error.RetryAfter].
	ErrInProgress = errors.New("everonce: operation in progress")
	// ErrMismatch: the key was used before with another fingerprint. The record is unchanged.
	ErrMismatch = errors.New("everonce: key reused with a different request")
	// ErrOutcomeUnknown: an attempt ended, and it is unknown whether its effect happened. If [Error.RetryAfter] is
	// set, call again; otherwise settle it.
	ErrOutcomeUnknown = driver.ErrOutcomeUnknown
	// ErrExpired: the operation was done, or refused for good ([Error.Refused]), and its result is no longer kept.
	ErrExpired = errors.New("everonce: completed, result expired")
	// ErrResultElided: the operation was done, but its result was not kept. See [Error.Summary].
	ErrResultElided = errors.New("everonce: done, result elided")
	// ErrNotRecorded: the effect happened, but was not recorded. The value comes with the error.
	ErrNotRecorded = errors.New("everonce: effect happened, record not saved")
	// ErrUndecodable: the operation was done, but its saved result cannot be decoded. It is not rerun.
	ErrUndecodable = errors.New("everonce: saved result cannot be decoded")
	// ErrNested: the work of an operation called the same operation.
	ErrNested = errors.New("everonce: operation nested in itself")
	// ErrInTransaction: a call on a store inside a transaction on it, other than a [DoTx] with that transaction. It
	// could deadlock.
	ErrInTransaction = errors.New("everonce: inside a transaction on the same store")
	// ErrNotFound: the key has no record.
	ErrNotFound = errors.New("everonce: no record of this key")
	// ErrReleased: the last attempt ended without an effect.
	ErrReleased = errors.New("everonce: not done, may be sent again")
	// ErrNotUnknown: the operation or step to settle is not unknown.
	ErrNotUnknown = errors.New("everonce: nothing to settle")
)

// Failures of a store. An error that is one of these also is [ErrStore], as is every other failure of a store.
var (
	// ErrStore: the store failed or is unreachable. It never means "not a duplicate".
	ErrStore = driver.ErrStore
	// ErrSchema: the store's tables are missing or of another version. The text says what to run.
	ErrSchema = driver.ErrSchema
	// ErrTooLarge: a value is larger than the store, or an option, allows.
	ErrTooLarge = driver.ErrTooLarge
	// ErrNewerRecord: a newer version of everonce wrote the record. Upgrade this process.
	ErrNewerRecord = driver.ErrNewerRecord
	// ErrCorruptRecord: the record cannot be read.
	ErrCorruptRecord = driver.ErrCorruptRecord
	// ErrStoreFull: the store has no room for another record.
	ErrStoreFull = driver.ErrStoreFull
	// ErrIdentity: the store was set up with another identity secret.
	ErrIdentity = driver.ErrIdentity
	// ErrConflict: another transaction had the key of a [DoTx] first. Roll back and rerun the transaction.
	ErrConflict = driver.ErrConflict
)

// ofStore returns an error of a store as one that also is [ErrStore]. A store need not add that itself.
func ofStore(err error) error {
	if errors.Is(err, ErrStore) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrStore, err)
}

// Error is the error of a call that ended without a value. It wraps a sentinel and, if there is one, the cause. Its
// text has the key's hash, never the key.
type Error struct {
	Outcome Outcome
	// KeyHash is [RecordID.Short] of the key.
	KeyHash string
	// RetryAfter is how long to wait before a retry; zero if unknown or pointless. An unknown outcome has it if the
	// next call finds out about a commit, asks ([Reconcile]), or continues ([EffectsInSteps], [Reexecute]).
	RetryAfter time.Duration
	// Step names the step concerned.
	Step string
	// Summary is the part that is kept of an expired or elided result: the code, if it was refused. Kind is the
	// kind of that result; it is also set, to ResultValue, for a value that cannot be decoded.
	Summary []byte
	Kind    driver.ResultKind
	// Sentinel and Cause may be nil.
	Sentinel error
	Cause    error
}

// Refused reports whether an [ErrExpired] operation was refused for good.
func (e *Error) Refused() bool { return e.Kind == driver.ResultFailure }

// Error returns a text without keys or secrets.
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
