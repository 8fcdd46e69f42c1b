package everonce

import (
	"context"
	"time"
)

// Store keeps records. Its methods are the whole of what an attempt writes, and they must be right:
// the obligations below are proven by the suite in store/storetest, which every store passes.
//
// For all methods:
//   - Each is one atomic operation in the store; never check, then act.
//   - Time is the store's clock. No method takes a time of the caller's.
//   - Every call may come again, because its answer was lost, or late, because a packet was delayed.
//     Token and nonce tell the store which attempt speaks.
//   - A record that is gone by time ([Record.GoneAt]) is absent to claims and readers. Its own attempt
//     may still write to it, as long as it was not removed.
//   - A nil error means that the write is as durable as the store promises.
//   - An error that is not one of the named refusals is a failure of the store; what was asked may or
//     may not have been done. It wraps [ErrSchema], [ErrNewerRecord], [ErrCorruptRecord], [ErrStoreFull]
//     or [ErrTooLarge] where that is the reason. No error holds a key or a value.
//   - Slices in results belong to the store and are read only, for both sides; slices in requests
//     may be kept by the store and are not changed by the caller afterwards.
//   - Methods are called concurrently, and return promptly when the context ends.
type Store interface {
	// Claim begins an attempt, or says why not. What it decides is [Decide], natively or by calling it.
	// A repeated claim, found by its own nonce, renews the lease and is answered as the first one was,
	// Record.Previous included.
	// It refuses with [ErrAttemptEnded] a nonce that has already ended its attempt. All other answers
	// are a [Decision], with the record as it stands after the call. A step that can not be read is answered by its name, in no
	// state that there is, as Get and List do: it is unknown.
	Claim(ctx context.Context, req ClaimRequest) (ClaimResult, error)
	// Complete saves the result of the attempt with that token and nonce. It refuses with [ErrLeaseLost]
	// unless that attempt still holds the record, lapsed or not. A repeated completion succeeds.
	Complete(ctx context.Context, req CompleteRequest) (CompleteResult, error)
	// Release ends the attempt without a result. A repeated release succeeds, and so does one whose
	// attempt was followed by another claim: then nothing is written, and Superseded is set. Release by
	// nonce (no token) ends the claim with that nonce, and where there is no record it leaves a released
	// one, so that the claim is refused when its packet arrives late; a released record takes on the nonce for
	// the same end. A claim that took a record over
	// and is released by nonce leaves it abandoned again, whatever State says: nobody has settled it.
	Release(ctx context.Context, req ReleaseRequest) (ReleaseResult, error)
	// Renew extends the lease to now + Lease. It refuses with [ErrLeaseLost] unless the attempt with
	// that token and nonce still holds the record, lapsed or not.
	Renew(ctx context.Context, req RenewRequest) (RenewResult, error)
	// SaveStep writes one step of the attempt with that token and nonce, and renews the lease in the
	// same write. It refuses with [ErrLeaseLost] like Renew. A repeated write succeeds. A write that
	// comes late undoes nothing: a step that is done stays as it is, and one that ended in an attempt
	// does not open again in the same attempt. One that can not be read is written over. A step beyond [MaxSteps] is refused with [ErrTooLarge].
	SaveStep(ctx context.Context, req SaveStepRequest) (SaveStepResult, error)
	// Get reads a record with its steps, as it is stored. A record that is gone by time is not found. One of a
	// newer Format is answered as it stands, or refused with [ErrNewerRecord]: the engine refuses it in either case.
	Get(ctx context.Context, req GetRequest) (GetResult, error)
	// Purge removes up to Limit results whose retention is over and records that are gone by time
	// ([Record.GoneAt]), and nothing else; the removing write repeats the predicate. It holds up claims
	// no longer than one batch takes.
	Purge(ctx context.Context, req PurgeRequest) (PurgeResult, error)
}

// TakeOver says which claims of others a claim may end.
type TakeOver uint8

// The ways of taking over.
const (
	// TakeNone leaves an abandoned record untouched.
	TakeNone TakeOver = iota
	// TakeAbandoned takes an abandoned record over, unless a step of it is unknown.
	TakeAbandoned
	// TakeToSettle takes an abandoned record over, with an unknown step too. It never claims a
	// released record and never inserts one.
	TakeToSettle
	// TakeForced is TakeToSettle that takes a live claim over as well.
	TakeForced
)

// ClaimRequest asks for an attempt.
type ClaimRequest struct {
	ID    RecordID
	Scope Scope
	Name  string // the raw ID
	Nonce Nonce
	Owner string
	// Lease is how long the claim holds. Zero in a transaction, which needs none.
	Lease time.Duration
	// Take says which claims of others it may end; the zero value is none.
	Take TakeOver
	// Fingerprint is compared with the record's, and kept in it; its zero value is not compared.
	Fingerprint Fingerprint
	// Lifetime is for the claimed record where ExpireUnsettled is set: it may be removed a Lifetime
	// after its last write. Where it is not set, an unsettled record stays until it is settled.
	Lifetime Lifetime
	// ExpireUnsettled lets a record that nobody settles end with its lifetime: set where the policy is
	// to run the work again.
	ExpireUnsettled bool
}

// Decision is the answer to a claim.
type Decision uint8

// The decisions.
const (
	// DecideClaimed: the attempt holds the record.
	DecideClaimed Decision = iota + 1
	// DecideReplay: completed; the result is in the record.
	DecideReplay
	// DecideExpired: completed; the retention of the result is over.
	DecideExpired
	// DecideInProgress: another attempt holds the record.
	DecideInProgress
	// DecideAbandoned: the latest attempt ended in the unknown, and the claim may not take over.
	DecideAbandoned
	// DecideMismatch: the record has another fingerprint.
	DecideMismatch
	// DecideEnded: the nonce has ended its attempt. A store answers it with [ErrAttemptEnded].
	DecideEnded
	// DecideAbsent: a claim to settle found no record.
	DecideAbsent
	// DecideReleased: a claim to settle found a released record.
	DecideReleased
	// DecideNewer: the record is of a newer format. A store answers it with [ErrNewerRecord].
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
	// Record is as it stands after the call, with its steps where the decision is DecideClaimed or
	// DecideAbandoned. It is the zero Record where the decision is DecideAbsent, and may be where it is
	// DecideInProgress and the holder is a transaction that has not committed.
	Record Record
	// Now is the store's time of the decision; where that is DecideReplay it may be any time of the store's at which the
	// result stood so.
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

// CompleteResult is the answer to a completion.
type CompleteResult struct{}

// ReleaseRequest ends an attempt without a result.
type ReleaseRequest struct {
	ID RecordID
	// Scope and Name are for the record that a release by nonce may leave.
	Scope Scope
	Name  string
	// Token is zero for a release by nonce.
	Token Token
	Nonce Nonce
	// State is StateReleased or StateAbandoned.
	State State
	// ErrorClass goes to Record.LastError.
	ErrorClass string
	// Step goes to Record.UnknownStep: the step that must be settled before the record can be taken over. Empty
	// where it is the operation itself.
	Step string
	// Lifetime runs from the store's time of the release. It does not count for an abandoned record
	// unless ExpireUnsettled is set.
	Lifetime Lifetime
	// ExpireUnsettled is as in ClaimRequest.
	ExpireUnsettled bool
}

// ReleaseResult is the answer to a release.
type ReleaseResult struct {
	// Superseded says that another attempt or a completion came first; nothing was written.
	Superseded bool
}

// RenewRequest extends a lease.
type RenewRequest struct {
	ID    RecordID
	Token Token
	Nonce Nonce
	Lease time.Duration
	// Lifetime moves the record's removal with the renewal, where the claim set ExpireUnsettled.
	Lifetime Lifetime
}

// RenewResult is the answer to a renewal.
type RenewResult struct{}

// SaveStepRequest writes a step: by name, over what stands there.
type SaveStepRequest struct {
	ID    RecordID
	Token Token
	Nonce Nonce
	// Step is written but for its times, which are the store's.
	Step StepRecord
	// Lease is as in RenewRequest; with zero nothing is renewed.
	Lease time.Duration
	// Lifetime is as in RenewRequest, and counts only with a Lease.
	Lifetime Lifetime
}

// SaveStepResult is the answer to a step's write.
type SaveStepResult struct{}

// GetRequest reads a record.
type GetRequest struct {
	ID RecordID
	// Brief asks for no more than the answer to a duplicate needs. The record may then lack its scope,
	// name, owner, steps, what came before, and all times but LeaseUntil, ResultUntil and PurgeAt; and
	// where there is none, the result may lack the time. Of a completed record Now may be any time of the store's at
	// which it stood so.
	Brief bool
}

// GetResult is a record, if there is one.
type GetResult struct {
	Found  bool
	Record Record
	Now    time.Time
}

// PurgeRequest removes what time has let go.
type PurgeRequest struct {
	// Limit bounds how many records one call may change or remove; 0 is the store's own bound.
	Limit int
}

// PurgeResult counts what was removed.
type PurgeResult struct {
	Results int  // results (with their steps) dropped from records that remain as tombstones
	Records int  // records removed
	More    bool // the limit was reached: call again
}

// Recaller is an optional power of a [Store] whose look-ups cost next to nothing: to answer a duplicate
// of a finished operation without the making of a claim. It is asked before every claim.
type Recaller interface {
	// Recall returns the result of a completed record whose retention runs, and false in every other
	// case, in which the claim will tell. It never blocks.
	Recall(id RecordID) (Recalled, bool)
}

// Recalled is a saved result with what must be compared before it is replayed.
type Recalled struct {
	Fingerprint Fingerprint
	Result      SavedResult
}

// ChangeWaiter is an optional power of a [Store]: to send word when an attempt has ended, so that a duplicate which waits
// for it, in another process, need not ask again and again.
type ChangeWaiter interface {
	// Watch asks for word of the end of the attempt that runs now. An error says that there will be none. The context
	// bounds the call, and not what it has asked for.
	Watch(ctx context.Context, req WatchRequest) (WatchResult, error)
}

// WatchRequest names a record.
type WatchRequest struct {
	ID RecordID
}

// WatchResult is how word comes.
type WatchResult struct {
	// Ended is closed when the attempt has been completed or released, durably; at once if none ran. A lease that ran
	// out closes nothing, and word can be lost: whoever waits asks the store now and then all the same.
	Ended <-chan struct{}
	// Stop ends the watch. It must be called, does not block, and may be called again.
	Stop func()
}

// Lister is an optional power of a [Store]: to look through its records. Discovered by type assertion.
type Lister interface {
	// List returns records in the order of their IDs, without results, and with their steps if asked. A record, or a step, that
	// can not be read is listed by what can: it must be found to be dealt with.
	List(ctx context.Context, req ListRequest) (ListResult, error)
}

// ListRequest selects records.
type ListRequest struct {
	// Scope, if set, selects it and all inside of it.
	Scope Scope
	// States, if set, selects by [Record.StateAt] at the store's time. A record whose state can not be read is in all of them.
	States []State
	// After is the last ID of the page before.
	After RecordID
	// Limit bounds the page; 0 is 100.
	Limit int
	// Steps asks for the records' steps too.
	Steps bool
}

// ListResult is a page of records.
type ListResult struct {
	Records []Record
	// Next is the After of the next page; zero after the last one.
	Next RecordID
	Now  time.Time
}

// ScopeDeleter is an optional power of a [Store]: to forget a tenant.
type ScopeDeleter interface {
	// DeleteScope removes up to Limit records of the scope and all inside of it, live claims and records of a
	// newer Format excepted; whatever was protected by them is new afterwards. A Limit of 0 is the store's own bound. A request without a
	// valid scope is refused with [ErrInvalidKey]: none would be everybody's.
	DeleteScope(ctx context.Context, req DeleteScopeRequest) (DeleteScopeResult, error)
}

// DeleteScopeRequest names what to forget.
type DeleteScopeRequest struct {
	Scope Scope
	Limit int
}

// DeleteScopeResult counts.
type DeleteScopeResult struct {
	Records int
	More    bool
}

// HealthChecker is an optional power of a [Store]: to count what needs attention.
type HealthChecker interface {
	// Health counts all records, at one time of the store's. It may have to look at each: it is for a
	// monitor's minutes, not for every request.
	Health(ctx context.Context) (Health, error)
}

// Health is a count of records by [Record.StateAt], and the store's time of it.
type Health struct {
	Claimed   int64 // live claims
	Abandoned int64 // unknown: lapsed claims included
	Released  int64
	Completed int64 // with tombstones
	// Unreadable are those whose state this version can not tell: they are damaged, or of a newer Format. [Lister] lists them.
	Unreadable int64
	// OldestAbandoned is when the longest abandoned record was last written; zero if there is none.
	OldestAbandoned time.Time
	Now             time.Time
	// Notes are sentences on the durability of this store as it is set up, for operators.
	Notes []string
}

// IdentityKeeper is an optional power of a [Store]: to bind itself to one identity secret.
type IdentityKeeper interface {
	// KeepIdentity saves check if the store has none yet, and refuses with [ErrIdentity] if it has
	// another. The check value says nothing about the secret; the zero value stands for "no secret".
	KeepIdentity(ctx context.Context, check [32]byte) error
}

// IdentityReader is an optional power of an [IdentityKeeper]: to tell what it has saved, without a write
// and without waiting for one.
type IdentityReader interface {
	// ReadIdentity returns the check value that KeepIdentity has saved; bound is false where there is none.
	ReadIdentity(ctx context.Context) (check [32]byte, bound bool, err error)
}
