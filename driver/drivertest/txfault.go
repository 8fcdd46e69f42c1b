package drivertest

import (
	"context"
	"errors"
	"sync"

	"github.com/everonce/everonce/driver"
)

// errCommitLost stands for a commit whose answer was lost.
var errCommitLost = errors.New("drivertest: the answer to the commit is lost")

// faultTxStore is a store with transactions as one process has it. A failure within a transaction is a
// connection that breaks: the database rolls back what was open on it.
type faultTxStore[Tx any] struct {
	faultStore
	txs  driver.TxStore[Tx]
	mu   sync.Mutex
	open map[*faultHandle[Tx]]struct{}
}

func newFaultTxStore[Tx any](txs driver.TxStore[Tx], p *process) *faultTxStore[Tx] {
	return &faultTxStore[Tx]{faultStore: faultStore{txs, p}, txs: txs, open: make(map[*faultHandle[Tx]]struct{})}
}

// disconnect ends what a process that is gone has left open.
func (s *faultTxStore[Tx]) disconnect(ctx context.Context) {
	s.mu.Lock()
	handles := s.open
	s.open = make(map[*faultHandle[Tx]]struct{})
	s.mu.Unlock()
	for h := range handles {
		_ = h.h.Rollback(ctx) //nolint:errcheck // as a server does
	}
}

func (s *faultTxStore[Tx]) wrap(h driver.TxHandle[Tx]) *faultHandle[Tx] {
	f := &faultHandle[Tx]{s: s, h: h}
	s.mu.Lock()
	s.open[f] = struct{}{}
	s.mu.Unlock()
	return f
}

func (s *faultTxStore[Tx]) forget(f *faultHandle[Tx]) {
	s.mu.Lock()
	delete(s.open, f)
	s.mu.Unlock()
}

func (s *faultTxStore[Tx]) Begin(ctx context.Context, req driver.BeginRequest) (driver.TxHandle[Tx], driver.ClaimResult, error) {
	var f *faultHandle[Tx]
	var res driver.ClaimResult
	err := s.p.do("Begin", func() error {
		h, r, err := s.txs.Begin(ctx, req)
		if res = r; err == nil && h != nil {
			f = s.wrap(h)
		}
		return err
	})
	if err != nil {
		if f != nil {
			f.broken()
		}
		return nil, driver.ClaimResult{}, waited(ctx, err)
	}
	if f == nil {
		return nil, res, nil
	}
	if many, ok := f.h.(driver.TxBatch); ok {
		return &faultBatch[Tx]{f, many}, res, nil
	}
	return f, res, nil
}

func (s *faultTxStore[Tx]) Join(ctx context.Context, tx Tx) (driver.TxHandle[Tx], error) {
	return s.txs.Join(ctx, tx)
}

func (s *faultTxStore[Tx]) ClassifyTx(err error) driver.TxErrorClass {
	if errors.Is(err, errCommitLost) {
		return driver.TxErrorCommitLost
	}
	return s.txs.ClassifyTx(err)
}

// faultHandle is a transaction of a process.
type faultHandle[Tx any] struct {
	s *faultTxStore[Tx]
	h driver.TxHandle[Tx]
}

// broken ends the transaction as a broken connection does.
func (f *faultHandle[Tx]) broken() {
	f.s.forget(f)
	_ = f.h.Rollback(context.Background()) //nolint:errcheck // the process is gone
}

// do sends a statement; if its connection breaks, the transaction has ended.
func (f *faultHandle[Tx]) do(ctx context.Context, what string, call func() error) error {
	err := f.s.p.do(what, call)
	if errors.Is(err, errInjected) {
		f.broken()
	}
	return waited(ctx, err)
}

func (f *faultHandle[Tx]) Tx() Tx { return f.h.Tx() }

func (f *faultHandle[Tx]) Claim(ctx context.Context, req driver.ClaimRequest) (res driver.ClaimResult, err error) {
	err = f.do(ctx, "tx Claim", func() (err error) { res, err = f.h.Claim(ctx, req); return err })
	return res, err
}

func (f *faultHandle[Tx]) Complete(ctx context.Context, req driver.CompleteRequest) (res driver.CompleteResult, err error) {
	return res, f.do(ctx, "tx Complete", func() (err error) { res, err = f.h.Complete(ctx, req); return err })
}

func (f *faultHandle[Tx]) Record(ctx context.Context, req driver.RecordRequest) (res driver.RecordResult, err error) {
	return res, f.do(ctx, "tx Record", func() (err error) { res, err = f.h.Record(ctx, req); return err })
}

func (f *faultHandle[Tx]) Get(ctx context.Context, req driver.GetRequest) (res driver.GetResult, err error) {
	err = f.do(ctx, "tx Get", func() (err error) { res, err = f.h.Get(ctx, req); return err })
	return res, err
}

func (f *faultHandle[Tx]) Renew(ctx context.Context, req driver.RenewRequest) (res driver.RenewResult, err error) {
	return res, f.do(ctx, "tx Renew", func() (err error) { res, err = f.h.Renew(ctx, req); return err })
}

func (f *faultHandle[Tx]) Savepoint(ctx context.Context, name string) error {
	return f.do(ctx, "Savepoint", func() error { return f.h.Savepoint(ctx, name) })
}

func (f *faultHandle[Tx]) RollbackTo(ctx context.Context, name string) error {
	return f.do(ctx, "RollbackTo", func() error { return f.h.RollbackTo(ctx, name) })
}

func (f *faultHandle[Tx]) ReleaseSavepoint(ctx context.Context, name string) error {
	return f.do(ctx, "ReleaseSavepoint", func() error { return f.h.ReleaseSavepoint(ctx, name) })
}

func (f *faultHandle[Tx]) Commit(ctx context.Context, req driver.CommitRequest) (res driver.CommitResult, err error) {
	return res, f.commit(ctx, "Commit", func() (err error) { res, err = f.h.Commit(ctx, req); return err })
}

func (f *faultHandle[Tx]) commit(ctx context.Context, what string, call func() error) error {
	err := f.s.p.do(what, call)
	if errors.Is(err, errInjected) {
		_ = waited(ctx, err) //nolint:errcheck // one answer is lost like the other
		f.broken()           // after the commit this does nothing
		return errCommitLost
	}
	f.s.forget(f)
	return err
}

func (f *faultHandle[Tx]) Rollback(ctx context.Context) error {
	err := f.do(ctx, "Rollback", func() error { return f.h.Rollback(ctx) })
	f.s.forget(f)
	return err
}

// faultBatch is a transaction of a process that can take many keys at once.
type faultBatch[Tx any] struct {
	*faultHandle[Tx]
	many driver.TxBatch
}

func (f *faultBatch[Tx]) ClaimAll(ctx context.Context, req driver.ClaimAllRequest) (res driver.ClaimAllResult, err error) {
	err = f.do(ctx, "tx ClaimAll", func() (err error) { res, err = f.many.ClaimAll(ctx, req); return err })
	return res, err
}

func (f *faultBatch[Tx]) CommitAll(ctx context.Context, req driver.CommitAllRequest) (res driver.CommitAllResult, err error) {
	return res, f.commit(ctx, "CommitAll", func() (err error) { res, err = f.many.CommitAll(ctx, req); return err })
}
