package driver

import (
	"context"
	"time"
)

// TxStore is a [Store] whose records can commit together with the application's own writes. Tx is the handle that the
// application's statements use, such as pgx.Tx or *sql.Tx.
type TxStore[Tx any] interface {
	Store
	// Begin begins a transaction, bounded by req.Timeout, and claims in it if req.Claim is set. ctx bounds Begin, not the
	// transaction. Without a claim the ClaimResult is zero. If there is a claim and its decision is not DecideClaimed, the
	// transaction has been rolled back and the handle is nil.
	//
	// A claim does not wait for another transaction of the same key, unless the store's documentation says so: it
	// returns DecideInProgress.
	Begin(ctx context.Context, req BeginRequest) (TxHandle[Tx], ClaimResult, error)
	// Join wraps a transaction of the caller. The handle's Commit and Rollback fail. ctx bounds Join, not the
	// transaction: Join may send a query to find out which database the transaction is on.
	Join(ctx context.Context, tx Tx) (TxHandle[Tx], error)
	// ClassifyTx returns what an error of the database, from the application's statements or everonce's, means for the
	// transaction in which it occurred.
	ClassifyTx(err error) TxErrorClass
}

// BeginRequest opens a transaction.
type BeginRequest struct {
	// Claim is made in the transaction; nil makes none.
	Claim *ClaimRequest
	// Timeout limits how long the transaction stays open; zero is no limit. The store may have a lower limit. After it,
	// the handle's methods return [ErrTxTooLong].
	Timeout time.Duration
}

// TxHandle is one open transaction. It is not safe for concurrent use.
type TxHandle[Tx any] interface {
	// Tx returns the handle for the application's statements.
	Tx() Tx
	// Claim claims inside the transaction, as [Store.Claim] does, but without a lease. The transaction stays usable,
	// whatever the decision. Claim must not wait for another transaction of the same key.
	Claim(ctx context.Context, req ClaimRequest) (ClaimResult, error)
	// Complete writes the result inside the transaction. It returns [ErrConflict] if another transaction has completed
	// or claimed the key in the meantime.
	Complete(ctx context.Context, req CompleteRequest) (CompleteResult, error)
	// Record writes a completed record without a preceding claim, in one statement. It returns [ErrConflict] if there is
	// a record that is neither released nor gone.
	Record(ctx context.Context, req RecordRequest) (RecordResult, error)
	// Get reads inside the transaction.
	Get(ctx context.Context, req GetRequest) (GetResult, error)
	// Renew checks and locks token and nonce inside the transaction, and renews the lease, as [Store.Renew] does.
	Renew(ctx context.Context, req RenewRequest) (RenewResult, error)
	// Savepoint sets a savepoint. The name has only letters, digits and underscores.
	Savepoint(ctx context.Context, name string) error
	// RollbackTo undoes everything written since the savepoint, including the application's writes. The transaction is
	// usable again, even after a failed statement, and the savepoint stays set.
	RollbackTo(ctx context.Context, name string) error
	// ReleaseSavepoint removes the savepoint and keeps what was written since.
	ReleaseSavepoint(ctx context.Context, name string) error
	// Commit makes the writes of the request as the last statements, and commits, in as few round trips as the database
	// allows. After an error the transaction has been rolled back, unless ClassifyTx returns TxErrorCommitLost.
	Commit(ctx context.Context, req CommitRequest) (CommitResult, error)
	// Rollback ends the transaction. After Commit it does nothing.
	Rollback(ctx context.Context) error
}

// MaxBatch is the largest number of operations of a batch. Each of them locks its key in the database.
const MaxBatch = 1000

// TxBatch is an optional power of a [TxHandle]: it claims or completes many keys by one statement.
type TxBatch interface {
	// ClaimAll does [TxHandle.Claim] for each of the claims.
	ClaimAll(ctx context.Context, req ClaimAllRequest) (ClaimAllResult, error)
	// CommitAll does [TxHandle.Complete] for each of the completions, and commits as [TxHandle.Commit] does: all of
	// them, or none with [ErrConflict].
	CommitAll(ctx context.Context, req CommitAllRequest) (CommitAllResult, error)
}

// ClaimAllRequest is many claims, in the order of their IDs and with no ID twice.
type ClaimAllRequest struct {
	Claims []ClaimRequest
}

// ClaimAllResult holds the answers, in the order of the claims.
type ClaimAllResult struct {
	Claims []ClaimResult
}

// CommitAllRequest is many completions, in the order of their IDs and with no ID twice.
type CommitAllRequest struct {
	Completions []CompleteRequest
}

// CommitAllResult is empty.
type CommitAllResult struct{}

// RecordRequest is a claim and its completion.
type RecordRequest struct {
	Claim    ClaimRequest
	Complete CompleteRequest
}

// RecordResult is empty.
type RecordResult struct{}

// CommitResult is empty.
type CommitResult struct{}

// CommitRequest is what to write before the commit, in the order of the fields.
type CommitRequest struct {
	// Record and Complete together are [TxHandle.Record]; Complete alone is [TxHandle.Complete].
	Record *ClaimRequest
	// Complete is the result to save; nil saves none.
	Complete *CompleteRequest
	// SaveStep writes a step that is new, open, or not done in an earlier attempt (a step that ended as not done in the
	// same attempt is refused). Then, as the very last statements, it checks and locks the parent's token and renews its
	// lease. Either refusal returns [ErrLeaseLost] and rolls back, so that a commit that arrives late, after it was
	// repeated, has no effect.
	SaveStep *SaveStepRequest
}

// TxErrorClass is what an error means for the transaction.
type TxErrorClass uint8

// The classes.
const (
	// TxErrorOther: the transaction failed, and nothing was committed.
	TxErrorOther TxErrorClass = iota
	// TxErrorRetry: a deadlock, a serialization failure or a busy database. Nothing was committed, and the whole
	// transaction may be run again.
	TxErrorRetry
	// TxErrorCommitLost: the answer to a commit was lost. The transaction may be committed, rolled back, or still
	// running.
	TxErrorCommitLost
)
