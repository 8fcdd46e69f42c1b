package driver

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"time"
)

// FormatVersion is the version of the records that this package writes. Stores and the engine return [ErrNewerRecord]
// for a record of a higher version.
const FormatVersion = 1

// State is where a record stands in its life.
type State uint8

// The states. A store keeps one of the first four. Whether a claim has lapsed depends on the time: see
// [Record.StateAt].
const (
	// StateClaimed: an attempt is running, or its process died.
	StateClaimed State = iota + 1
	// StateReleased: an attempt ended, and the next delivery runs. Either nothing happened, or the outcome is unknown and
	// the policy is Reexecute. See [Record.LastError].
	StateReleased
	// StateAbandoned: an attempt ended, and its outcome is unknown.
	StateAbandoned
	// StateCompleted: done; the result is saved.
	StateCompleted
	// StateTombstone: done; the result's retention is over. It is never stored, but follows from the time.
	StateTombstone
)

// String returns the state's name.
func (s State) String() string {
	switch s {
	case StateClaimed:
		return "claimed"
	case StateReleased:
		return "released"
	case StateAbandoned:
		return "abandoned"
	case StateCompleted:
		return "completed"
	case StateTombstone:
		return "tombstone"
	}
	return "none"
}

// Token is the fencing token of an attempt. It is positive and strictly increases with every claim of a key, also
// after a release or purge. Pass it to a downstream system that rejects tokens lower than the highest it has seen.
type Token int64

// Nonce is 128 random bits that an attempt chooses. A store uses it to recognise the attempt's repeated calls.
type Nonce [16]byte

// NewNonce returns a new nonce. A nonce is unique but not secret, so NewNonce makes no system call.
func NewNonce() Nonce {
	var n Nonce
	binary.LittleEndian.PutUint64(n[:8], rand.Uint64()) //nolint:gosec // unique, not secret: ChaCha8 seeded by the system
	binary.LittleEndian.PutUint64(n[8:], rand.Uint64()) //nolint:gosec // as above
	return n
}

// String returns the nonce in hexadecimal.
func (n Nonce) String() string { return hex.EncodeToString(n[:]) }

// Record is what a store keeps for a key.
type Record struct {
	ID    RecordID
	Scope Scope
	// Name is the raw ID of the key, for operators. It never goes into logs, labels or errors.
	Name string

	State   State
	Token   Token
	Nonce   Nonce
	Owner   string // Options.Owner of the latest claim
	Attempt int    // 1 for the first attempt; 0 if a release by nonce came before any claim
	// LeaseUntil is when the claim lapses, by the store's clock. It is zero unless the state is claimed.
	LeaseUntil time.Time
	// Fingerprint is the fingerprint of the latest attempt that had one.
	Fingerprint Fingerprint

	// Result is the result of the operation. It is the zero value unless the state is completed.
	Result SavedResult
	// Steps are the steps that have begun, in the order in which they began.
	Steps []StepRecord
	// UnknownStep is the step whose unknown outcome made the record abandoned. It is empty if no step did.
	UnknownStep string
	// Previous is what the latest claim found.
	Previous Previous
	// LastError is the class of the error that ended the latest attempt without a result: a word of a closed list, never
	// the error's text. "error", "deadline", "canceled", "panic", "not_done", "step_unknown" and "lease_lost" are how the
	// work ended. "claim" is a claim that was released before the work was called, "settled" a settlement, and "settle" a
	// settlement that could not be finished. LastError is cleared when a lapsed claim is taken over.
	LastError string

	Format      int
	CreatedAt   time.Time // when this record was inserted
	ClaimedAt   time.Time // the latest claim
	UpdatedAt   time.Time // the latest write
	CompletedAt time.Time
	// ResultUntil is when the result's retention ends, PurgeAt when the record may be removed, both by the store's clock.
	// Zero means never.
	ResultUntil time.Time
	PurgeAt     time.Time
}

// Previous is what a claim found. It is kept so that a repeated claim gets the same answer.
type Previous struct {
	// State is zero for a new record, StateReleased for a released one, StateAbandoned for one that was taken over
	// (including a lapsed claim), or StateClaimed for one that was taken over by force.
	State State
	// Owner and ClaimedAt are copied from the previous claim.
	Owner     string
	ClaimedAt time.Time
}

// StateAt returns the state at a time of the store's clock: a lapsed claim is abandoned, and a completed record whose
// retention is over is a tombstone.
func (r *Record) StateAt(now time.Time) State {
	switch {
	case r.State == StateClaimed && !now.Before(r.LeaseUntil):
		return StateAbandoned
	case r.State == StateCompleted && !r.ResultUntil.IsZero() && !now.Before(r.ResultUntil):
		return StateTombstone
	}
	return r.State
}

// GoneAt reports whether the record is gone at a time of the store's clock: it may then be removed and counts as
// absent. A live claim is never gone.
func (r *Record) GoneAt(now time.Time) bool {
	if r.PurgeAt.IsZero() || now.Before(r.PurgeAt) {
		return false
	}
	return r.State != StateClaimed || !now.Before(r.LeaseUntil)
}

// Step returns the record of the step with that name.
func (r *Record) Step(name string) (StepRecord, bool) {
	for _, s := range r.Steps {
		if s.Name == name {
			return s, true
		}
	}
	return StepRecord{}, false
}

// ResultKind is the kind of a saved result.
type ResultKind uint8

// The kinds.
const (
	// ResultValue: the work's value, encoded.
	ResultValue ResultKind = iota + 1
	// ResultFailure: a permanent error (everonce.PermanentError).
	ResultFailure
	// ResultElided: the work was done, but its value could not be kept.
	ResultElided
)

// String returns the kind's name.
func (k ResultKind) String() string {
	switch k {
	case ResultValue:
		return "value"
	case ResultFailure:
		return "failure"
	case ResultElided:
		return "elided"
	}
	return "none"
}

// SavedResult is the stored result of an operation or a step. Its slices are read-only.
type SavedResult struct {
	Kind  ResultKind
	Codec string // the name of the codec that wrote Data
	Data  []byte
	// Summary is the part of the result that an elided result and a tombstone keep. It has at most [MaxSummaryLen] bytes.
	Summary []byte
}

// MaxSummaryLen is the longest summary, in bytes.
const MaxSummaryLen = 4096

// StepState is the state of a step.
type StepState uint8

// The states of a step.
const (
	// StepOpen: the step has begun, and is not known to have ended.
	StepOpen StepState = iota + 1
	// StepDone: the step has ended, and its result is saved.
	StepDone
	// StepNotDone: the step has ended without an effect. It may begin again.
	StepNotDone
)

// String returns the state's name.
func (s StepState) String() string {
	switch s {
	case StepOpen:
		return "open"
	case StepDone:
		return "done"
	case StepNotDone:
		return "not_done"
	}
	return "none"
}

// StepRecord is one step in the record of its operation.
type StepRecord struct {
	Name    string
	State   StepState
	Attempt int // the operation's attempt that wrote it last
	Result  SavedResult
	// BeganAt is the store's time of the first write, EndedAt the time of the write that ended the step. EndedAt is
	// zero while the step is open.
	BeganAt time.Time
	EndedAt time.Time
}

// Readable reports whether this version can read the step: its state is a defined one, and it has a result if and only
// if it is done. A step that is not readable counts as unknown: see [Store].Claim.
func (s *StepRecord) Readable() bool {
	return s.State >= StepOpen && s.State <= StepNotDone && s.Result.Kind <= ResultElided && (s.State == StepDone) == (s.Result.Kind != 0)
}

// Limits of steps.
const (
	// MaxStepNameLen is the longest name of a step, in bytes.
	MaxStepNameLen = 128
	// MaxSteps is the largest number of steps of an operation.
	MaxSteps = 256
)
