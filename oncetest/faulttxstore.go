package oncetest

import (
	"context"
	"errors"

	"github.com/everonce/everonce/driver"
)

// FaultTxStore is [FaultStore] for a store with transactions: begin and commit fail too, and so does every statement
// of everonce's in between. The application's own statements bypass it; pass those through [Faults.Effect]. If the
// store's transactions are an [driver.TxBatch], so are these: a plan is asked about a claim of many keys as about
// one (OpTxClaim), and about the commit that records them as about any other (OpCommit).
//
// A transaction whose begin lost its answer, or whose commit failed before it was made, is rolled back, as the
// database does when it loses the connection. A rollback is always made. A commit that failed, before or after, is
// [driver.TxErrorCommitLost]: the caller cannot tell which.
func FaultTxStore[Tx any](store driver.TxStore[Tx], plan Plan) driver.TxStore[Tx] {
	return &faultTxStore[Tx]{faultStore{store, &numbered{plan: plan}}, store}
}

type faultTxStore[Tx any] struct {
	faultStore
	txs driver.TxStore[Tx]
}

func (s *faultTxStore[Tx]) Begin(ctx context.Context, req driver.BeginRequest) (driver.TxHandle[Tx], driver.ClaimResult, error) {
	type begun struct {
		handle driver.TxHandle[Tx]
		claim  driver.ClaimResult
	}
	var made begun
	c, f := s.n.next(OpBegin, "")
	b, err := suffer(ctx, c, f, func() (begun, error) {
		var err error
		made.handle, made.claim, err = s.txs.Begin(ctx, req)
		return made, err
	})
	if err != nil && f != Pass && made.handle != nil {
		err = errors.Join(err, made.handle.Rollback(context.WithoutCancel(ctx)))
	}
	if err != nil || b.handle == nil {
		return nil, b.claim, err
	}
	return s.handle(b.handle), b.claim, nil
}

// handle returns a transaction with statements that can fail, and with the power that it has.
func (s *faultTxStore[Tx]) handle(h driver.TxHandle[Tx]) driver.TxHandle[Tx] {
	f := &faultTxHandle[Tx]{TxHandle: h, n: s.n}
	if many, ok := h.(driver.TxBatch); ok {
		return &faultTxBatch[Tx]{f, many}
	}
	return f
}

func (s *faultTxStore[Tx]) Join(ctx context.Context, tx Tx) (driver.TxHandle[Tx], error) {
	h, err := s.txs.Join(ctx, tx)
	if err != nil {
		return nil, err
	}
	return s.handle(h), nil
}

func (s *faultTxStore[Tx]) ClassifyTx(err error) driver.TxErrorClass {
	var injected *InjectedError
	switch {
	case !errors.As(err, &injected):
		return s.txs.ClassifyTx(err)
	case injected.Call.Op == OpCommit && injected.Fault != gone:
		return driver.TxErrorCommitLost
	}
	return driver.TxErrorOther
}

// faultTxHandle is one transaction whose statements can fail. Its Tx is the handle's own.
type faultTxHandle[Tx any] struct {
	driver.TxHandle[Tx]
	n *numbered
}

func (h *faultTxHandle[Tx]) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	return faulty(ctx, h.n, OpTxClaim, h.TxHandle.Claim, req)
}

func (h *faultTxHandle[Tx]) Get(ctx context.Context, req driver.GetRequest) (driver.GetResult, error) {
	return faulty(ctx, h.n, OpTxGet, h.TxHandle.Get, req)
}

func (h *faultTxHandle[Tx]) Complete(ctx context.Context, req driver.CompleteRequest) (driver.CompleteResult, error) {
	return faulty(ctx, h.n, OpTxComplete, h.TxHandle.Complete, req)
}

func (h *faultTxHandle[Tx]) Record(ctx context.Context, req driver.RecordRequest) (driver.RecordResult, error) {
	return faulty(ctx, h.n, OpRecord, h.TxHandle.Record, req)
}

func (h *faultTxHandle[Tx]) Renew(ctx context.Context, req driver.RenewRequest) (driver.RenewResult, error) {
	return faulty(ctx, h.n, OpTxRenew, h.TxHandle.Renew, req)
}

func (h *faultTxHandle[Tx]) Savepoint(ctx context.Context, name string) error {
	return h.write(ctx, OpSavepoint, func() error { return h.TxHandle.Savepoint(ctx, name) })
}

func (h *faultTxHandle[Tx]) RollbackTo(ctx context.Context, name string) error {
	return h.write(ctx, OpRollbackTo, func() error { return h.TxHandle.RollbackTo(ctx, name) })
}

func (h *faultTxHandle[Tx]) ReleaseSavepoint(ctx context.Context, name string) error {
	return h.write(ctx, OpReleaseSavepoint, func() error { return h.TxHandle.ReleaseSavepoint(ctx, name) })
}

func (h *faultTxHandle[Tx]) Commit(ctx context.Context, req driver.CommitRequest) (res driver.CommitResult, err error) {
	return res, h.commit(ctx, func() error { _, err := h.TxHandle.Commit(ctx, req); return err })
}

func (h *faultTxHandle[Tx]) commit(ctx context.Context, call func() error) error {
	made := false
	err := h.write(ctx, OpCommit, func() error {
		made = true
		return call()
	})
	if !made { // the connection is lost: what was open on it is undone
		err = errors.Join(err, h.TxHandle.Rollback(context.WithoutCancel(ctx)))
	}
	return err
}

func (h *faultTxHandle[Tx]) Rollback(ctx context.Context) error {
	c, f := h.n.next(OpRollback, "")
	err := h.TxHandle.Rollback(ctx)
	if f == Pass {
		return err
	}
	return errors.Join(err, &InjectedError{Call: c, Fault: f})
}

func (h *faultTxHandle[Tx]) write(ctx context.Context, op Op, call func() error) error {
	c, f := h.n.next(op, "")
	_, err := suffer(ctx, c, f, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// faultTxBatch is one that takes many keys at once.
type faultTxBatch[Tx any] struct {
	*faultTxHandle[Tx]
	many driver.TxBatch
}

func (h *faultTxBatch[Tx]) ClaimAll(ctx context.Context, req driver.ClaimAllRequest) (driver.ClaimAllResult, error) {
	return faulty(ctx, h.n, OpTxClaim, h.many.ClaimAll, req)
}

func (h *faultTxBatch[Tx]) CommitAll(ctx context.Context, req driver.CommitAllRequest) (res driver.CommitAllResult, err error) {
	return res, h.commit(ctx, func() (err error) { res, err = h.many.CommitAll(ctx, req); return err })
}
