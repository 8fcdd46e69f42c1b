package driver

import (
	"context"
	"time"
)

// Store keeps records. The suite in driver/drivertest tests the obligations below.
//
// For all methods:
//   - Each call is one atomic operation. Never check, then act.
//   - Time is the store's clock. No request carries a time.
//   - A call may be repeated because its answer was lost, or arrive late because a packet was delayed. Token and nonce
//     identify the attempt that made it.
//   - A record that is gone ([Record.GoneAt]) is absent to claims and readers. Its own attempt may still write to it
//     until the record is removed.
//   - A nil error means that the write is as durable as the store promises.
//   - An error other than the refusals named below is a failure of the store: the write may or may not have been made.
//     The error wraps [ErrSchema], [ErrNewerRecord], [ErrCorruptRecord], [ErrStoreFull] or [ErrTooLarge] if that is the
//     reason. No error contains a key or a value.
//   - Slices in results belong to the store; neither side changes them. The store may keep slices of a request; the
//     caller does not change them afterwards.
//   - Methods are safe for concurrent use, and return promptly when the context ends.
//
// A store that wraps another one embeds this interface. Embedding a concrete store promotes its optional methods and
// bypasses the wrapper. Give the wrapper the optional methods that it passes on, and Unwrap: see [PowerOf]. A store
// without [IdentityKeeper] cannot be used with an identity secret.
type Store interface {
	// Claim begins an attempt, or returns why it cannot. It decides as [Decide] does, natively or by calling it. A
	// repeated claim, recognised by its nonce, renews the lease and gets the same answer as the first one,
	// including Record.Previous. Claim returns [ErrAttemptEnded] for a nonce whose attempt has ended. All other
	// answers are a [Decision], with the record after the call. A step that cannot be read is returned, as in Get
	// and List, with its name and a state outside the defined ones, and counts as unknown.
	Claim(ctx context.Context, req ClaimRequest) (ClaimResult, error)
	// Complete saves the result of the attempt with that token and nonce. It returns [ErrLeaseLost] unless that attempt
	// still holds the record, even with a lapsed lease. A repeated completion succeeds.
	Complete(ctx context.Context, req CompleteRequest) (CompleteResult, error)
	// Release ends the attempt without a result. A repeated release succeeds. If another claim followed the attempt,
	// Release writes nothing and sets Superseded.
	//
	// Release by nonce (no token) ends the claim with that nonce. If there is no record, it inserts a released one,
	// so that the claim is refused if it arrives late. For the same reason, it writes the nonce into a record that
	// is already released. If the claim had taken the record over, the record becomes abandoned again, whatever
	// State says: it has not been settled.
	Release(ctx context.Context, req ReleaseRequest) (ReleaseResult, error)
	// Renew extends the lease to now + Lease. It returns [ErrLeaseLost] unless the attempt with that token and nonce
	// still holds the record, even with a lapsed lease.
	Renew(ctx context.Context, req RenewRequest) (RenewResult, error)
	// SaveStep writes one step of the attempt with that token and nonce, and renews the lease in the same write. It
	// returns [ErrLeaseLost] as Renew does. A repeated write succeeds. A late write undoes nothing: a done step
	// stays done, and a step that ended in an attempt does not reopen in the same attempt. SaveStep overwrites a
	// step that cannot be read, and returns [ErrTooLarge] for a step beyond [MaxSteps].
	SaveStep(ctx context.Context, req SaveStepRequest) (SaveStepResult, error)
	// Get reads a record with its steps, as it is stored. A record that is gone is not found. A record of a newer
	// Format is returned unchanged, or [ErrNewerRecord] is: the engine refuses the record in either case.
	Get(ctx context.Context, req GetRequest) (GetResult, error)
	// Purge removes up to Limit results whose retention is over and records that are gone, and nothing else. The
	// removing write repeats the predicate. Purge blocks claims for no longer than one batch takes. Records that it must
	// keep, because they are damaged or of a newer Format, do not stop it, however many there are: while More is true,
	// each call makes progress, even if it removed nothing.
	Purge(ctx context.Context, req PurgeRequest) (PurgeResult, error)
}

// TakeOver says which attempts of others a claim may take over from.
type TakeOver uint8

// The levels, from least to most.
const (
	// TakeNone leaves an abandoned record untouched.
	TakeNone TakeOver = iota
	// TakeAbandoned takes over an abandoned record, unless a step of it is unknown.
	TakeAbandoned
	// TakeToSettle takes over an abandoned record, even with an unknown step. It never claims a released record and
	// never inserts one.
	TakeToSettle
	// TakeForced is TakeToSettle, and takes over a live claim too.
	TakeForced
)

// ClaimRequest asks for an attempt.
type ClaimRequest struct {
	ID    RecordID
	Scope Scope
	Name  string // the raw ID
	Nonce Nonce
	Owner string
	// Lease is how long the claim is valid. It is zero in a transaction.
	Lease time.Duration
	// Take says which attempts of others the claim may take over from. Default [TakeNone].
	Take TakeOver
	// Fingerprint is compared with the record's, and saved in it. The zero value is not compared.
	Fingerprint Fingerprint
	// Lifetime applies to the claimed record if ExpireUnsettled is set: the record may be removed a Lifetime after its
	// last write. Otherwise an unsettled record stays until it is settled.
	Lifetime Lifetime
	// ExpireUnsettled removes a record that is not settled by the end of its lifetime. The engine sets it if the
	// policy is to run the work again.
	ExpireUnsettled bool
}

// Decision is the answer to a claim.
type Decision uint8

// The decisions.
const (
	// DecideClaimed: the attempt holds the record.
	DecideClaimed Decision = iota + 1
	// DecideReplay: completed; the record has the result.
	DecideReplay
	// DecideExpired: completed; the result's retention is over.
	DecideExpired
	// DecideInProgress: another attempt holds the record; or a removal does at this moment, in a store that lets no
	// claim wait for it.
	DecideInProgress
	// DecideAbandoned: the outcome of the latest attempt is unknown, and the claim may not take over.
	DecideAbandoned
	// DecideMismatch: the record has another fingerprint.
	DecideMismatch
	// DecideEnded: the attempt with this nonce has ended. A store returns [ErrAttemptEnded] for it.
	DecideEnded
	// DecideAbsent: a claim to settle found no record.
	DecideAbsent
	// DecideReleased: a claim to settle found a released record.
	DecideReleased
	// DecideNewer: the record has a newer format. A store returns [ErrNewerRecord] for it.
	DecideNewer

	decisionEnd
)

var decisionNames = [decisionEnd]string{
	DecideClaimed: "claimed", DecideReplay: "replay", DecideExpired: "expired", DecideInProgress: "in_progress",
	DecideAbandoned: "abandoned", DecideMismatch: "mismatch", DecideEnded: "ended", DecideAbsent: "absent", DecideReleased: "released",
	DecideNewer: "newer",
}

// String returns the decision's name.
func (d Decision) String() string {
	if d == 0 || d >= decisionEnd {
		return "none"
	}
	return decisionNames[d]
}

// ClaimResult is the answer to a claim.
type ClaimResult struct {
	Decision Decision
	// Record is the record after the call, with all its fields: the engine also answers other waiters from it, and
	// recognises their late claims by its nonce. Its steps are needed only for DecideClaimed and DecideAbandoned.
	// It is the zero Record for DecideAbsent, and may be zero for DecideInProgress if the holder is a transaction
	// that has not committed.
	Record Record
	// Now is the store's time of the decision. For DecideReplay it may be any of the store's times at which the record
	// had that result.
	Now time.Time
}

// CompleteRequest saves a result.
type CompleteRequest struct {
	ID     RecordID
	Token  Token
	Nonce  Nonce
	Result SavedResult
	// Lifetime runs from the store's time of the completion.
	Lifetime Lifetime
}

// CompleteResult is empty.
type CompleteResult struct{}

// ReleaseRequest ends an attempt without a result.
type ReleaseRequest struct {
	ID RecordID
	// Scope and Name are for the record that a release by nonce may insert.
	Scope Scope
	Name  string
	// Token is zero for a release by nonce.
	Token Token
	Nonce Nonce
	// State is StateReleased or StateAbandoned.
	State State
	// ErrorClass is written to Record.LastError.
	ErrorClass string
	// Step is written to Record.UnknownStep: the step that must be settled before the record can be taken over. It is
	// empty if the operation itself must be.
	Step string
	// Lifetime runs from the store's time of the release. It does not apply to an abandoned record unless
	// ExpireUnsettled is set.
	Lifetime Lifetime
	// ExpireUnsettled is as in ClaimRequest.
	ExpireUnsettled bool
}

// ReleaseResult is the answer to a release.
type ReleaseResult struct {
	// Superseded reports that another attempt or a completion came first. Nothing was written.
	Superseded bool
}

// RenewRequest extends a lease.
type RenewRequest struct {
	ID    RecordID
	Token Token
	Nonce Nonce
	Lease time.Duration
	// Lifetime postpones the record's removal with the renewal, if the claim set ExpireUnsettled.
	Lifetime Lifetime
}

// RenewResult is empty.
type RenewResult struct{}

// SaveStepRequest writes a step, replacing one of the same name.
type SaveStepRequest struct {
	ID    RecordID
	Token Token
	Nonce Nonce
	// Step is written, except for its times: the store sets them.
	Step StepRecord
	// Lease is as in RenewRequest; zero renews nothing.
	Lease time.Duration
	// Lifetime is as in RenewRequest, and applies only with a Lease.
	Lifetime Lifetime
}

// SaveStepResult is empty.
type SaveStepResult struct{}

// GetRequest reads a record.
type GetRequest struct {
	ID RecordID
	// Brief asks only for what the answer to a duplicate needs. The record may then lack its scope, name, steps,
	// Previous, and all times but LeaseUntil, CompletedAt, ResultUntil and PurgeAt. If there is no record, Now may
	// be zero. For a completed record, Now may be any of the store's times at which the record was in this state.
	Brief bool
}

// GetResult is a record, if there is one.
type GetResult struct {
	Found  bool
	Record Record
	Now    time.Time
}

// PurgeRequest removes expired results and records.
type PurgeRequest struct {
	// Limit is the largest number of records to change or remove; 0 is the store's own limit.
	Limit int
}

// PurgeResult counts what was removed.
type PurgeResult struct {
	Results int  // results (with their steps) dropped from records that remain as tombstones
	Records int  // records removed
	More    bool // there may be more: call Purge again
}
