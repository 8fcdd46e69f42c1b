package driver

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"time"
)

// FormatVersion is the version of the records that this package writes. A record with a higher version is refused
// with [ErrNewerRecord].
const FormatVersion = 1

// State is where a record stands in its life.
type State uint8

// The states. A store keeps one of the first four; whether a claim's lease has run out depends on the time alone: see
// [Record.StateAt].
const (
	// StateClaimed: an attempt is running, or its process died.
	StateClaimed State = iota + 1
	// StateReleased: an attempt ended, and the next delivery runs. Nothing happened; or the policy is Reexecute, and
	// nobody knows. See [Record.LastError].
	StateReleased
	// StateAbandoned: an attempt ended in the unknown.
	StateAbandoned
	// StateCompleted: done; the result is saved.
	StateCompleted
	// StateTombstone: done; the result's retention is over. Never stored: it follows from the time.
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

// Token is the fencing token of an attempt. It is positive and grows strictly with every claim of a key, across
// release and purge too. Pass it to a downstream system that refuses lower tokens than it has seen.
type Token int64

// Nonce is 128 random bits that an attempt chooses, so that a store recognises the attempt's repeated calls.
type Nonce [16]byte

// NewNonce returns a new nonce. It must be unique, not secret, so it does not cost a system call.
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
	Owner   string // who claimed it last: Options.Owner
	Attempt int    // 1 for the first attempt; 0 if a release by nonce came before any claim
	// LeaseUntil is when the claim lapses, by the store's clock; zero unless the state is claimed.
	LeaseUntil time.Time
	// Fingerprint is that of the latest attempt that gave one.
	Fingerprint Fingerprint

	// Result is the result of the operation; the zero value unless the state is completed.
	Result SavedResult
	// Steps are the steps that were begun, in the order in which they began.
	Steps []StepRecord
	// UnknownStep is the step whose unknown outcome made the record abandoned, if it was one.
	UnknownStep string
	// Previous is what the latest claim found.
	Previous Previous
	// LastError is the class of the error that ended the latest attempt without completing: a word of a closed list,
	// never the error's text. "error", "deadline", "canceled", "panic", "not_done", "step_unknown" and "lease_lost"
	// say how the work ended. "claim" is set by a claim that was taken back before the work was called, "settled" by
	// a settlement, and "settle" by a settlement that could not be finished. It is cleared when a claim whose lease
	// ran out is taken over.
	LastError string

	Format      int
	CreatedAt   time.Time // when this record was inserted
	ClaimedAt   time.Time // the latest claim
	UpdatedAt   time.Time // the latest write
	CompletedAt time.Time
	// ResultUntil is when the result's retention ends, PurgeAt when the record may be removed, both by the store's
	// clock. Zero is never.
	ResultUntil time.Time
	PurgeAt     time.Time
}

// Previous is what a claim found, kept so that the claim gets the same answer when it is repeated.
type Previous struct {
	// State is zero for a new record, StateReleased, StateAbandoned for a record that was taken over (a lapsed claim
	// too), or StateClaimed for one that was taken over by force.
	State State
	// Owner and ClaimedAt say who had claimed it before, and when.
	Owner     string
	ClaimedAt time.Time
}

// StateAt returns the state at a time of the store's clock: a claim whose lease has run out is abandoned, and a
// completed record whose retention is over is a tombstone.
func (r *Record) StateAt(now time.Time) State {
	switch {
	case r.State == StateClaimed && !now.Before(r.LeaseUntil):
		return StateAbandoned
	case r.State == StateCompleted && !r.ResultUntil.IsZero() && !now.Before(r.ResultUntil):
		return StateTombstone
	}
	return r.State
}

// GoneAt reports whether, at a time of the store's clock, the record may be removed and counts as absent. A live
// claim never does.
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

// ResultKind says what a saved result is.
type ResultKind uint8

// The kinds.
const (
	// ResultValue: the work's value, encoded.
	ResultValue ResultKind = iota + 1
	// ResultFailure: a [PermanentError].
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

// SavedResult is how an operation or a step ended, as it is stored. Its slices are read-only.
type SavedResult struct {
	Kind  ResultKind
	Codec string // the name of the codec that wrote Data
	Data  []byte
	// Summary is the part of the result that outlives it: in an elided result and in a tombstone it is all that there
	// is. At most [MaxSummaryLen] bytes.
	Summary []byte
}

// MaxSummaryLen is the longest summary, in bytes.
const MaxSummaryLen = 4096

// StepState is the state of a step.
type StepState uint8

// The states of a step.
const (
	// StepOpen: begun, and not known to have ended.
	StepOpen StepState = iota + 1
	// StepDone: ended; its result is saved.
	StepDone
	// StepNotDone: ended, and nothing happened; it may begin again.
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

// StepRecord is what the parent's record holds of one step.
type StepRecord struct {
	Name    string
	State   StepState
	Attempt int // the parent's attempt that wrote it last
	Result  SavedResult
	// BeganAt is the store's time of the first write, EndedAt that of the write that ended the step; EndedAt is zero
	// while it is open.
	BeganAt time.Time
	EndedAt time.Time
}

// Readable reports whether the step could have been written by a version that knows everything in the record: its
// state is a known one, and it has a result if it is done, and only then. A step that is not readable is unknown: see
// [Store].Claim.
func (s *StepRecord) Readable() bool {
	return s.State >= StepOpen && s.State <= StepNotDone && s.Result.Kind <= ResultElided && (s.State == StepDone) == (s.Result.Kind != 0)
}

// Limits of steps.
const (
	// MaxStepNameLen is the longest name of a step, in bytes.
	MaxStepNameLen = 128
	// MaxSteps is how many steps one operation may have.
	MaxSteps = 256
)
