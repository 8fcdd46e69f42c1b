package driver

import (
	"context"
	"time"
)

// PowerOf returns an optional power of a store, such as [Lister], and whether the store has it. Use PowerOf, not a type
// assertion.
//
// A store that wraps another one may have a method Unwrap() Store that returns the other one. It then has the powers
// that both have: the wrapper can have the methods of every power that it passes on, whatever store it wraps.
func PowerOf[Power any](store Store) (Power, bool) {
	power, has := store.(Power)
	if outer, wraps := store.(interface{ Unwrap() Store }); has && wraps {
		_, has = PowerOf[Power](outer.Unwrap())
	}
	if !has {
		var none Power
		return none, false
	}
	return power, true
}

// Recaller is an optional power of a [Store] with very cheap reads, such as one in memory: it answers a duplicate of a
// finished operation without a claim. The engine calls it before every claim.
type Recaller interface {
	// Recall finds the result of a completed record whose retention is not over, and nothing else. It never blocks. If
	// it finds nothing or fails, the claim decides.
	Recall(ctx context.Context, req RecallRequest) (RecallResult, error)
}

// RecallRequest names a record.
type RecallRequest struct {
	ID RecordID
}

// RecallResult is a saved result, if one was found. The caller compares the fingerprint before it replays the result.
type RecallResult struct {
	Found       bool
	Fingerprint Fingerprint
	Result      SavedResult
	// Owner and CompletedAt are the record's, and Now is the store's time, for observers. They may be zero.
	Owner            string
	CompletedAt, Now time.Time
}

// Prompter is an optional power of a [Store] whose calls never block, such as one in memory. The engine makes them
// without a timeout, which costs more than such a call.
type Prompter interface {
	// Prompt returns the store that never blocks. A store that embeds it, and may block, is another one: the engine
	// compares them, and does not ask [PowerOf].
	Prompt() Store
}

// ChangeWaiter is an optional power of a [Store]: it reports when an attempt has ended, so that a duplicate that waits
// in another process need not poll.
type ChangeWaiter interface {
	// Watch starts a watch for the end of the attempt that is running now. After an error there is no watch. ctx bounds
	// the call, not the watch.
	Watch(ctx context.Context, req WatchRequest) (WatchResult, error)
}

// WatchRequest names a record.
type WatchRequest struct {
	ID RecordID
}

// WatchResult is a watch.
type WatchResult struct {
	// Ended is closed when the attempt has been completed or released durably, or at once if none was running. It is not
	// closed when a lease runs out, and a notification can be lost: the caller must still poll now and then.
	Ended <-chan struct{}
	// Stop ends the watch. The caller must call it. It does not block, and further calls do nothing.
	Stop func()
}

// Lister is an optional power of a [Store]: it lists records.
type Lister interface {
	// List returns records in the order of their IDs, without results, and with their steps if the request asks for
	// them. A record or step that cannot be read is listed with a zero state and the fields that can be read, so that
	// operators can find it.
	List(ctx context.Context, req ListRequest) (ListResult, error)
}

// ListRequest selects records.
type ListRequest struct {
	// Scope, if set, selects the scope and everything inside it.
	Scope Scope
	// Name, if set, selects the records of keys with this raw ID, and KeyHash those with this hash. A store without an
	// index for them reads each record once for the whole listing, not once for each page.
	Name    string
	KeyHash KeyHash
	// States, if set, selects by [Record.StateAt] at the store's time. The zero State selects the records whose state this
	// version cannot read ([HealthResult].Unreadable); other states may select some of these too.
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

// ScopeDeleter is an optional power of a [Store]: it deletes the records of a tenant.
type ScopeDeleter interface {
	// DeleteScope removes up to Limit records of the scope and everything inside it; their keys are new afterwards. A
	// Limit of 0 is the store's own limit. DeleteScope returns [ErrInvalidKey] for a scope that is not valid: an empty
	// scope would select every tenant's records.
	//
	// DeleteScope keeps what may be running: live claims, records of a newer Format, and damaged records that may be
	// either. The other records are removed all the same. DeleteScope never reports a tenant as deleted while a record is
	// left: Live reports live claims, and the call after which only newer or damaged records are left returns
	// [ErrNewerRecord] or [ErrCorruptRecord], with a result that counts what it has removed.
	DeleteScope(ctx context.Context, req DeleteScopeRequest) (DeleteScopeResult, error)
}

// DeleteScopeRequest names the scope to delete.
type DeleteScopeRequest struct {
	Scope Scope
	Limit int
}

// DeleteScopeResult counts what was removed. If More and Live are false and there was no error, nothing of the
// scope is left.
type DeleteScopeResult struct {
	Records int
	More    bool // the limit was reached: call again
	Live    bool // a live claim is left: call again after it has ended
}

// HealthChecker is an optional power of a [Store]: it counts the records that need attention.
type HealthChecker interface {
	// Health counts all records, at one time of the store's clock. It may have to read every record: call it from a
	// monitor every few minutes, not for every request.
	Health(ctx context.Context, req HealthRequest) (HealthResult, error)
}

// HealthRequest is empty.
type HealthRequest struct{}

// HealthResult counts records by [Record.StateAt], at the store's time Now.
type HealthResult struct {
	Claimed   int64 // live claims
	Abandoned int64 // unknown; includes lapsed claims
	Released  int64
	Completed int64 // includes tombstones
	// Unreadable counts records whose state this version cannot read: they are damaged, or of a newer Format. [Lister]
	// lists them.
	Unreadable int64
	// OldestAbandoned is the earliest last write of an abandoned record; zero if there is no such record.
	OldestAbandoned time.Time
	Now             time.Time
	// Notes are sentences for operators about the durability of this store as it is configured.
	Notes []string
}

// WriteChecker is an optional power of a [Store]: it reports whether the store accepts writes. A store whose disk is
// full, that lacks the right to write, or that has become a replica still answers reads.
type WriteChecker interface {
	// CheckWrite makes a write as durable as a claim's, and leaves no record. A nil error means that a claim could have
	// been written at that moment. CheckWrite costs as much as an operation: do not call it for every request.
	CheckWrite(ctx context.Context, req CheckWriteRequest) (CheckWriteResult, error)
}

// CheckWriteRequest is empty.
type CheckWriteRequest struct{}

// CheckWriteResult is empty.
type CheckWriteResult struct{}

// IdentityKeeper is an optional power of a [Store]: it binds the store to one identity secret.
type IdentityKeeper interface {
	// KeepIdentity saves the check value if the store has none, and returns [ErrIdentity] if it has another one.
	KeepIdentity(ctx context.Context, req KeepIdentityRequest) (KeepIdentityResult, error)
}

// KeepIdentityRequest is the check value to save. It does not reveal the secret; the zero value stands for "no secret".
type KeepIdentityRequest struct {
	Check [32]byte
}

// KeepIdentityResult is empty.
type KeepIdentityResult struct{}

// IdentityReader is an optional power of an [IdentityKeeper]: it reads the saved check value without a write, and
// without waiting for one.
type IdentityReader interface {
	// ReadIdentity returns the check value that KeepIdentity has saved.
	ReadIdentity(ctx context.Context, req ReadIdentityRequest) (ReadIdentityResult, error)
}

// ReadIdentityRequest is empty.
type ReadIdentityRequest struct{}

// ReadIdentityResult is the saved check value. Bound reports whether there is one.
type ReadIdentityResult struct {
	Bound bool
	Check [32]byte
}
