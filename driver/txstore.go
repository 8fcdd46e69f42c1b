package driver

import (
	"context"
	"time"
)

// TxStore is a [Store] whose records can commit together with the application's own writes. Tx is the handle that the
// application's statements use, such as pgx.Tx or *sql.Tx.
type TxStore[Tx any] interface {
	Store
	// Begin begins a transaction, bounded by req.Timeout, and claims in it if req.Claim is set. The transaction
	// outlives ctx: only Begin itself may be cut short. Unless the decision is DecideClaimed, the transaction has
	// been rolled back and the handle is nil.
	//
	// A claim never waits for another transaction of the same key, except as the store declares: it answers
	// DecideInProgress.
	Begin(ctx context.Context, req BeginRequest) (TxHandle[Tx], ClaimResult, error)
	// Join wraps a transaction of the caller. The handle's Commit and Rollback are refused.
	Join(tx Tx) (TxHandle[Tx], error)
	// ClassifyTx tells what an error of the database, from the application's statements or everonce's, means for the
	// transaction in which it happened.
	ClassifyTx(err error) TxErrorClass
}

// BeginRequest opens a transaction.
type BeginRequest struct {
	Claim *ClaimRequest
	// Timeout bounds the life of the transaction; zero does not, but the store may bound it further. Once it has
	// passed, the handle's methods return [ErrTxTooLong].
	Timeout time.Duration
}

// TxHandle is one open transaction. It is not safe for concurrent use.
type TxHandle[Tx any] interface {
	// Tx is what the application writes through.
	Tx() Tx
	// Claim claims inside the transaction, as [Store.Claim] does, but without a lease. It leaves the transaction
	// alive, whatever it decides. It must not wait for another transaction of the same key.
	Claim(ctx context.Context, req ClaimRequest) (ClaimResult, error)
	// Complete writes the result inside the transaction. It refuses with [ErrConflict] if another transaction has
	// completed or claimed the key in the meantime.
	Complete(ctx context.Context, req CompleteRequest) (CompleteResult, error)
	// Record writes a completed record without a preceding claim, in one statement. It refuses with [ErrConflict] if
	// there is a record that is neither released nor gone.
	Record(ctx context.Context, req RecordRequest) (RecordResult, error)
	// Get reads inside the transaction.
	Get(ctx context.Context, req GetRequest) (GetResult, error)
	// Renew checks and locks token and nonce inside the transaction, and renews the lease, as [Store.Renew] does.
	Renew(ctx context.Context, req RenewRequest) (RenewResult, error)
	// Savepoint sets a savepoint. Its name, of letters, digits and underscores, is the engine's.
	Savepoint(ctx context.Context, name string) error
	// RollbackTo undoes everything written since the savepoint, including the application's writes, and makes a
	// transaction usable again after a statement has failed. The savepoint stays.
	RollbackTo(ctx context.Context, name string) error
	// ReleaseSavepoint forgets the savepoint and keeps what was written since.
	ReleaseSavepoint(ctx context.Context, name string) error
	// Commit does what the request asks for as the last statements, and commits, in as few round trips as the
	// database allows. On any error the transaction is rolled back, unless ClassifyTx says TxErrorCommitLost.
	Commit(ctx context.Context, req CommitRequest) (CommitResult, error)
	// Rollback ends the transaction. After Commit it does nothing.
	Rollback(ctx context.Context) error
}

// MaxBatch is how many operations one batch may have. Each of them locks its key in the database.
const MaxBatch = 1000

// TxBatch is an optional power of a [TxHandle]: many claims, or many results, in one statement each.
// [TransactBatch] uses it if the store has it. Requests come in the order of their IDs, no ID twice.
type TxBatch interface {
	// ClaimAll is [TxHandle.Claim] for each of the requests. The answers are in the same order.
	ClaimAll(ctx context.Context, req ClaimAllRequest) (ClaimAllResult, error)
	// CommitAll does [TxHandle.Complete] for each of the requests, and commits, as [TxHandle.Commit] does: all of them,
	// or none with [ErrConflict].
	CommitAll(ctx context.Context, req CommitAllRequest) (CommitAllResult, error)
}

// ClaimAllRequest is many claims, in the order of their IDs, no ID twice.
type ClaimAllRequest struct {
	Claims []ClaimRequest
}

// ClaimAllResult has the answers, in the order of the claims.
type ClaimAllResult struct {
	Claims []ClaimResult
}

// CommitAllRequest is many completions, in the order of their IDs, no ID twice.
type CommitAllRequest struct {
	Completions []CompleteRequest
}

// CommitAllResult is empty.
type CommitAllResult struct{}

// RecordRequest is a claim and its result at once.
type RecordRequest struct {
	Claim    ClaimRequest
	Complete CompleteRequest
}

// RecordResult is empty.
type RecordResult struct{}

// CommitResult is empty.
type CommitResult struct{}

// CommitRequest is what is sent with a commit. Its fields are done in their order.
type CommitRequest struct {
	// Record and Complete together are [TxHandle.Record]; Complete alone is [TxHandle.Complete].
	Record *ClaimRequest
	// Complete is the result to be saved; nil saves none.
	Complete *CompleteRequest
	// SaveStep writes a step that is new, open, or was ended as not done by an earlier attempt (by the same attempt
	// it is refused, because its work was told so), and checks, locks and renews the parent's token as the very last
	// statements. Either refusal is [ErrLeaseLost] and rolls back: a commit whose answer was lost, and that arrives
	// after it was made again, takes no effect.
	SaveStep *SaveStepRequest
}

// TxErrorClass is what an error means for the transaction.
type TxErrorClass uint8

// The classes.
const (
	// TxErrorOther: the database or the application refused; nothing was committed.
	TxErrorOther TxErrorClass = iota
	// TxErrorRetry: deadlock, serialization failure or busy. Nothing was committed, and the whole transaction may be
	// run again.
	TxErrorRetry
	// TxErrorCommitLost: the answer to a commit was lost. It may have been committed, and may still be running.
	TxErrorCommitLost
)
