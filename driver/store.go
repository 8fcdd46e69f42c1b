package driver

import (
	"context"
	"time"
)

// Store keeps records. Its methods are all that an attempt writes, and they must be right: the suite in
// driver/drivertest, which every store passes, proves the obligations below.
//
// For all methods:
//   - Each is one atomic operation in the store; never check, then act.
//   - Time is the store's clock. No method takes a time from the caller.
//   - Every call may come again, because its answer was lost, or late, because a packet was delayed. Token and nonce
//     tell the store which attempt it comes from.
//   - A record that is gone by time ([Record.GoneAt]) is absent to claims and readers. Its own attempt may still
//     write to it, as long as it has not been removed.
//   - A nil error means that the write is as durable as the store promises.
//   - An error that is not one of the named refusals is a failure of the store; what was asked for may or may not
//     have been done. It wraps [ErrSchema], [ErrNewerRecord], [ErrCorruptRecord], [ErrStoreFull] or [ErrTooLarge] if
//     that is the reason. No error holds a key or a value.
//   - Slices in results belong to the store and are read-only for both sides. Slices in requests may be kept by the
//     store, and the caller does not change them afterwards.
//   - Methods are called concurrently, and return promptly when the context ends.
//
// A store that wraps another one embeds this interface. Embedding a concrete store promotes its optional methods and
// bypasses the wrapper. Give the wrapper the methods that it passes on, and Unwrap: see [PowerOf]. Without IdentityKeeper
// no secret can be used.
type Store interface {
	// Claim begins an attempt, or says why not. It decides as [Decide] does, natively or by calling it. A repeated
	// claim, recognised by its own nonce, renews the lease and is answered as the first one was, including
	// Record.Previous. A nonce that has already ended its attempt is refused with [ErrAttemptEnded]. All other
	// answers are a [Decision], with the record as it is after the call. A step that cannot be read is returned with
	// its name and a state that does not exist, as in Get and List: it is unknown.
	Claim(ctx context.Context, req ClaimRequest) (ClaimResult, error)
	// Complete saves the result of the attempt with that token and nonce. It refuses with [ErrLeaseLost] unless that
	// attempt still holds the record, lapsed or not. A repeated completion succeeds.
	Complete(ctx context.Context, req CompleteRequest) (CompleteResult, error)
	// Release ends the attempt without a result. A repeated release succeeds, and so does one whose attempt was
	// followed by another claim: then nothing is written, and Superseded is set.
	//
	// Release by nonce (no token) ends the claim with that nonce. If there is no record, it leaves a released one, so
	// that the claim is refused if its packet arrives late; a record that is released already takes on the nonce for
	// the same purpose. A claim that took a record over and is released by nonce leaves it abandoned again, whatever
	// State says: nobody has settled it.
	Release(ctx context.Context, req ReleaseRequest) (ReleaseResult, error)
	// Renew extends the lease to now + Lease. It refuses with [ErrLeaseLost] unless the attempt with that token and
	// nonce still holds the record, lapsed or not.
	Renew(ctx context.Context, req RenewRequest) (RenewResult, error)
	// SaveStep writes one step of the attempt with that token and nonce, and renews the lease in the same write. It
	// refuses with [ErrLeaseLost] like Renew. A repeated write succeeds. A late write undoes nothing: a step that is
	// done stays as it is, and one that ended in an attempt does not open again in the same attempt. A step that
	// cannot be read is overwritten. A step beyond [MaxSteps] is refused with [ErrTooLarge].
	SaveStep(ctx context.Context, req SaveStepRequest) (SaveStepResult, error)
	// Get reads a record with its steps, as it is stored. A record that is gone by time is not found. A record of a
	// newer Format is returned as it is, or refused with [ErrNewerRecord]: the engine refuses it in either case.
	Get(ctx context.Context, req GetRequest) (GetResult, error)
	// Purge removes up to Limit results whose retention is over and records that are gone by time ([Record.GoneAt]),
	// and nothing else; the removing write repeats the predicate. It holds up claims for no longer than one batch
	// takes. What it may not remove, because it is damaged or of a newer Format, keeps it from nothing else, however much
	// there is of it: while More is true, each call goes on, though it may have removed nothing.
	Purge(ctx context.Context, req PurgeRequest) (PurgeResult, error)
}

// TakeOver says which claims of others a claim may end.
type TakeOver uint8

// How far a claim may take over.
const (
	// TakeNone leaves an abandoned record untouched.
	TakeNone TakeOver = iota
	// TakeAbandoned takes over an abandoned record, unless a step of it is unknown.
	TakeAbandoned
	// TakeToSettle takes over an abandoned record, even with an unknown step. It never claims a released record and
	// never inserts one.
	TakeToSettle
	// TakeForced is TakeToSettle that takes over a live claim as well.
	TakeForced
)

// ClaimRequest asks for an attempt.
type ClaimRequest struct {
	ID    RecordID
	Scope Scope
	Name  string // the raw ID
	Nonce Nonce
	Owner string
	// Lease is how long the claim holds. It is zero in a transaction, which needs none.
	Lease time.Duration
	// Take says which claims of others it may end; the zero value is none of them.
	Take TakeOver
	// Fingerprint is compared with the record's, and kept in it. The zero value is not compared.
	Fingerprint Fingerprint
	// Lifetime counts for the claimed record if ExpireUnsettled is set: the record may be removed a Lifetime after
	// its last write. Otherwise an unsettled record stays until it is settled.
	Lifetime Lifetime
	// ExpireUnsettled lets a record that nobody settles end with its lifetime. It is set if the policy is to run the
	// work again.
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
	// DecideExpired: completed; the retention of the result is over.
	DecideExpired
	// DecideInProgress: another attempt holds the record.
	DecideInProgress
	// DecideAbandoned: the latest attempt ended in the unknown, and the claim may not take over.
	DecideAbandoned
	// DecideMismatch: the record has another fingerprint.
	DecideMismatch
	// DecideEnded: the nonce has ended its attempt. A store returns [ErrAttemptEnded] for it.
	DecideEnded
	// DecideAbsent: a claim to settle found no record.
	DecideAbsent
	// DecideReleased: a claim to settle found a released record.
	DecideReleased
	// DecideNewer: the record is of a newer format. A store returns [ErrNewerRecord] for it.
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
	// Record is the record after the call, whole, since others who wait for the key are answered by it too, and told by its nonce
	// that a claim of theirs has come late; with its steps if the decision is DecideClaimed or DecideAbandoned. It is
	// the zero Record if the decision is DecideAbsent, and may be if it is DecideInProgress and the holder is a
	// transaction that has not committed.
	Record Record
	// Now is the store's time of the decision. For DecideReplay it may be any of the store's times at which that was
	// the result.
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
	// Step goes to Record.UnknownStep: the step that must be settled before the record can be taken over. It is empty
	// if it is the operation itself.
	Step string
	// Lifetime runs from the store's time of the release. It does not count for an abandoned record unless
	// ExpireUnsettled is set.
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
	// Lifetime moves the record's removal with the renewal, if the claim set ExpireUnsettled.
	Lifetime Lifetime
}

// RenewResult is the answer to a renewal.
type RenewResult struct{}

// SaveStepRequest writes a step, by name, over what is there.
type SaveStepRequest struct {
	ID    RecordID
	Token Token
	Nonce Nonce
	// Step is written except for its times, which are the store's.
	Step StepRecord
	// Lease is as in RenewRequest; zero renews nothing.
	Lease time.Duration
	// Lifetime is as in RenewRequest, and counts only with a Lease.
	Lifetime Lifetime
}

// SaveStepResult is the answer to the write of a step.
type SaveStepResult struct{}

// GetRequest reads a record.
type GetRequest struct {
	ID RecordID
	// Brief asks for no more than the answer to a duplicate needs. The record may then lack its scope, name, owner,
	// steps, Previous, and all times but LeaseUntil, ResultUntil and PurgeAt; and if there is none, the result may
	// lack the time. For a completed record Now may be any of the store's times at which the record was so.
	Brief bool
}

// GetResult is a record, if there is one.
type GetResult struct {
	Found  bool
	Record Record
	Now    time.Time
}

// PurgeRequest removes what is no longer kept.
type PurgeRequest struct {
	// Limit bounds how many records one call may change or remove; 0 is the store's own bound.
	Limit int
}

// PurgeResult counts what was removed.
type PurgeResult struct {
	Results int  // results (with their steps) dropped from records that remain as tombstones
	Records int  // records removed
	More    bool // there may be more: call again
}

// Recaller is an optional power of a [Store] whose lookups cost next to nothing: it answers a duplicate of a
// finished operation without a claim. It is asked before every claim.
type Recaller interface {
	// Recall returns the result of a completed record whose retention is not over, and false in every other case:
	// then the claim decides. It never blocks.
	Recall(ctx context.Context, req RecallRequest) (RecallResult, error)
}

// RecallRequest names a record.
type RecallRequest struct {
	ID RecordID
}

// RecallResult is a saved result, with what must be compared before it is replayed.
type RecallResult struct {
	Found       bool
	Fingerprint Fingerprint
	Result      SavedResult
}

// ChangeWaiter is an optional power of a [Store]: it notifies when an attempt has ended, so that a duplicate that
// waits for it in another process need not ask again and again.
type ChangeWaiter interface {
	// Watch asks to be notified of the end of the attempt that is running now. An error says that there will be no
	// notification. ctx bounds the call, not the watch.
	Watch(ctx context.Context, req WatchRequest) (WatchResult, error)
}

// WatchRequest names a record.
type WatchRequest struct {
	ID RecordID
}

// WatchResult is a watch.
type WatchResult struct {
	// Ended is closed when the attempt has been completed or released, durably; at once if none was running. A lease
	// that runs out closes nothing, and a notification can be lost: whoever waits must still ask the store now and
	// then.
	Ended <-chan struct{}
	// Stop ends the watch. It must be called, does not block, and may be called again.
	Stop func()
}

// Lister is an optional power of a [Store]: it looks through the records.
type Lister interface {
	// List returns records in the order of their IDs, without results, and with their steps if asked for. A record or
	// step that cannot be read is listed without a state, with what else can be read of it: it must be found to be dealt with.
	List(ctx context.Context, req ListRequest) (ListResult, error)
}

// ListRequest selects records.
type ListRequest struct {
	// Scope, if set, selects it and everything inside it.
	Scope Scope
	// Name, if set, selects the records of keys with this raw ID, and KeyHash those with this hash. A store that has no
	// index for them looks at each record once, however few a page has: not once for each page.
	Name    string
	KeyHash KeyHash
	// States, if set, selects by [Record.StateAt] at the store's time, and the zero State those whose state this version cannot tell, which
	// [HealthResult] counts as Unreadable. Some of these may be among those of any other state too.
	States []State
	// After is the last ID of the previous page.
	After RecordID
	// Limit is the largest number of records of the page; 0 is 100.
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

// ScopeDeleter is an optional power of a [Store]: it forgets a tenant.
type ScopeDeleter interface {
	// DeleteScope removes up to Limit records of the scope and everything inside it; the keys that they protected are
	// new afterwards. A Limit of 0 is the store's own bound. A request without a valid scope is refused with
	// [ErrInvalidKey]: no scope would be everybody's.
	//
	// What may be running stays: live claims, records of a newer Format, and damaged ones that may be either. A tenant is
	// never reported as forgotten while something is left: DeleteScopeResult.Live reports live claims. For the others, the call after
	// which nothing else is left to remove fails with [ErrNewerRecord] or [ErrCorruptRecord]; what it has removed is counted all the same. They
	// hold up none of their neighbours.
	DeleteScope(ctx context.Context, req DeleteScopeRequest) (DeleteScopeResult, error)
}

// DeleteScopeRequest names what to forget.
type DeleteScopeRequest struct {
	Scope Scope
	Limit int
}

// DeleteScopeResult counts what was removed. With More and Live false, and no error, nothing is left of the scope.
type DeleteScopeResult struct {
	Records int
	More    bool // the limit was reached: call again
	Live    bool // a live claim was left: call again when it has ended
}

// HealthChecker is an optional power of a [Store]: it counts what needs attention.
type HealthChecker interface {
	// Health counts all records, at one time of the store's. It may have to read every one: call it every few minutes
	// from a monitor, not for every request.
	Health(ctx context.Context, req HealthRequest) (HealthResult, error)
}

// HealthRequest is empty.
type HealthRequest struct{}

// WriteChecker is an optional power of a [Store]: it reports whether it takes writes. A store whose disk is full, that may
// only read, or that has become a replica still answers reads.
type WriteChecker interface {
	// CheckWrite makes a write as durable as a claim's, and leaves no record. It returns nil if the store took it: a
	// claim could have been written at that moment. It costs as much as an operation: do not call it for every request.
	CheckWrite(ctx context.Context, req CheckWriteRequest) (CheckWriteResult, error)
}

// CheckWriteRequest is empty.
type CheckWriteRequest struct{}

// CheckWriteResult is empty.
type CheckWriteResult struct{}

// HealthResult counts records by [Record.StateAt], at a time of the store's.
type HealthResult struct {
	Claimed   int64 // live claims
	Abandoned int64 // unknown; includes lapsed claims
	Released  int64
	Completed int64 // includes tombstones
	// Unreadable are those whose state this version cannot tell: they are damaged, or of a newer Format. [Lister]
	// lists them.
	Unreadable int64
	// OldestAbandoned is when the record that has been abandoned longest was last written; zero if there is none.
	OldestAbandoned time.Time
	Now             time.Time
	// Notes are sentences for operators on the durability of this store as it is set up.
	Notes []string
}

// IdentityKeeper is an optional power of a [Store]: it binds the store to one identity secret.
type IdentityKeeper interface {
	// KeepIdentity saves check if the store has none yet, and refuses with [ErrIdentity] if it has another one. The
	// check value does not reveal the secret; the zero value stands for "no secret".
	KeepIdentity(ctx context.Context, req KeepIdentityRequest) (KeepIdentityResult, error)
}

// KeepIdentityRequest is the identity to be saved.
type KeepIdentityRequest struct {
	Check [32]byte
}

// KeepIdentityResult is empty.
type KeepIdentityResult struct{}

// IdentityReader is an optional power of an [IdentityKeeper]: it reports what has been saved, without a write and
// without waiting for one.
type IdentityReader interface {
	// ReadIdentity returns the check value that KeepIdentity has saved.
	ReadIdentity(ctx context.Context, req ReadIdentityRequest) (ReadIdentityResult, error)
}

// ReadIdentityRequest is empty.
type ReadIdentityRequest struct{}

// ReadIdentityResult is the saved identity, if there is one.
type ReadIdentityResult struct {
	Bound bool
	Check [32]byte
}
