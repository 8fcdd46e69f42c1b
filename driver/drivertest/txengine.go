package drivertest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// txEngineChecks drive the store's transactions through Transact and DoTx.
func txEngineChecks[Tx any]() []check {
	return []check{
		{name: "Transact/ManyDeliveriesTakeEffectOnce", run: inTx(func(e *txEnv[Tx]) { e.manyTransactions() })},
		{name: "Transact/ManyOptimisticDeliveriesTakeEffectOnce", run: inTx(func(e *txEnv[Tx]) { e.manyTransactions(everonce.Optimistic()) })},
		{name: "Transact/NoCommitNoEffect", run: inTx(checkTransactFails[Tx])},
		{name: "Transact/AndDoShareKeys", run: inTx(func(e *txEnv[Tx]) {
			key := e.key()
			res, _, err := e.transact(newProcess(-1, noFault), key, false, nil)
			if err != nil || res.Outcome != everonce.Executed {
				e.Fatalf("Transact: %v, %v", res.Outcome, err)
			}
			got, err := everonce.Do(e.ctx, e.receiver(e.s, everonce.Refuse), key, func(context.Context, *everonce.Attempt) (string, error) {
				e.Errorf("the work of a finished operation runs")
				return "", nil
			}, sumA)
			if err != nil || got.Value != "receipt" || got.Outcome != everonce.Replayed {
				e.Errorf("Do: %q, %v, %v; want the receipt, replayed", got.Value, got.Outcome, err)
			}
		})},
		{name: "DoTx/CommitsWithTheCaller", run: inTx(checkDoTx[Tx])},
		{name: "DoTx/AFailureLeavesTheCallersTransactionAlive", run: inTx(checkDoTxFails[Tx]), needs: hasSavepoints},
		{name: "DoTx/ConcurrentDuplicatesFailFast", run: inTx(checkDoTxDuplicates[Tx]), needs: func(c Capabilities) bool { return !c.OneWriter && hasSavepoints(c) && decidesAtClaim(c) }},
		{name: "Rule19/ACallOnTheStoreInsideOfATransactionIsRefused", run: inTx(checkInside[Tx])},
		{name: "Rule17/NothingIsRetriedInTheCallersTransaction", run: inTx(checkNoRetry[Tx])},
	}
}

func (e *txEnv[Tx]) manyTransactions(opts ...everonce.CallOption) {
	e.Helper()
	key := e.key()
	var executed atomic.Int64
	each(min(e.caps.Callers, 32), func(i int) {
		t := e.txReceiver(e.process(i).txs)
		for {
			res, err := everonce.Transact(e.ctx, t, key, func(ctx context.Context, tx Tx) (string, error) {
				return "receipt", e.app.Apply(ctx, tx, key.ID)
			}, append(opts, sumA)...)
			if errors.Is(err, everonce.ErrInProgress) && e.ctx.Err() == nil {
				continue
			}
			if err != nil || res.Value != "receipt" {
				e.Errorf("Transact: %q, %v, %v", res.Value, res.Outcome, err)
			}
			if res.Outcome == everonce.Executed {
				executed.Add(1)
			}
			return
		}
	})
	if n := executed.Load(); n != 1 {
		e.Errorf("%d calls say that they executed it, want 1", n)
	}
	e.counted(key.ID, 1)
}

func checkTransactFails[Tx any](e *txEnv[Tx]) {
	t := e.txReceiver(e.txs)
	for name, end := range map[string]func(ctx context.Context, tx Tx) error{
		"an error":  func(context.Context, Tx) error { return errInjected },
		"not done":  func(context.Context, Tx) error { return everonce.NotDone(errInjected) },
		"a refusal": func(ctx context.Context, tx Tx) error { return e.app.Spoil(ctx, tx) },
	} {
		for _, optimistic := range []bool{false, true} {
			opts := []everonce.CallOption{sumA}
			if optimistic {
				opts = append(opts, everonce.Optimistic())
			}
			key := e.key()
			res, err := everonce.Transact(e.ctx, t, key, func(ctx context.Context, tx Tx) (string, error) {
				e.ok("the application's write", e.app.Apply(ctx, tx, key.ID))
				return "", end(ctx, tx)
			}, opts...)
			if err == nil || res.Outcome != everonce.Failed {
				e.Errorf("%s: %v, %v; want failed", name, res.Outcome, err)
			}
			e.counted(key.ID, 0)
			e.absent(key)
			e.retryTx(name, key, optimistic)
		}
	}
}

// doTx runs an operation in a transaction of the caller's.
func (e *txEnv[Tx]) doTx(t *everonce.TxReceiver[Tx], tx CallerTx[Tx], key everonce.Key, end error) (everonce.Result[string], error) {
	e.Helper()
	return everonce.DoTx(e.ctx, tx.Tx, t, key, func(ctx context.Context) (string, error) {
		e.ok("the application's write", e.app.Apply(ctx, tx.Tx, key.ID))
		return "receipt", end
	}, sumA)
}

func checkDoTx[Tx any](e *txEnv[Tx]) {
	t := e.txReceiver(e.txs)
	one, two := e.key(), e.key()
	for round, commits := range []bool{false, true, true} {
		want := everonce.Executed
		if round == 2 {
			want = everonce.Replayed
		}
		tx := e.own()
		for _, key := range []everonce.Key{one, two, one} { // several in one transaction, and a duplicate there
			res, err := e.doTx(t, tx, key, nil)
			if err != nil || res.Value != "receipt" {
				e.Fatalf("round %d: DoTx: %q, %v, %v", round, res.Value, res.Outcome, err)
			}
			if key == two && res.Outcome != want {
				e.Errorf("round %d: DoTx: %v, want %v", round, res.Outcome, want)
			}
		}
		if !commits {
			e.ok("the application's rollback", tx.Rollback(e.ctx))
			e.counted(one.ID, 0)
			e.absent(one)
			continue
		}
		e.ok("the application's commit", tx.Commit(e.ctx))
		e.counted(one.ID, 1)
		e.counted(two.ID, 1)
	}
}

func checkDoTxFails[Tx any](e *txEnv[Tx]) {
	t := e.txReceiver(e.txs)
	kept, undone, spoiled, refused := e.key(), e.key(), e.key(), e.key()
	tx := e.own()
	e.ok("the application's write", e.app.Apply(e.ctx, tx.Tx, kept.ID))
	if res, err := e.doTx(t, tx, undone, errInjected); !errors.Is(err, errInjected) || res.Outcome != everonce.Failed {
		e.Errorf("DoTx whose work fails: %v, %v; want failed, with its error", res.Outcome, err)
	}
	res, err := everonce.DoTx(e.ctx, tx.Tx, t, spoiled, func(ctx context.Context) (string, error) {
		e.ok("the application's write", e.app.Apply(ctx, tx.Tx, spoiled.ID))
		return "", e.app.Spoil(ctx, tx.Tx)
	})
	if err == nil || res.Outcome != everonce.Failed || errors.Is(err, driver.ErrTxDoomed) {
		e.Errorf("DoTx whose work the database refuses: %v, %v; want failed, the transaction alive", res.Outcome, err)
	}
	var failure *everonce.PermanentError
	if res, err := e.doTx(t, tx, refused, everonce.Permanent("declined", nil, nil)); !errors.As(err, &failure) || res.Outcome != everonce.Rejected {
		e.Errorf("DoTx that is refused for good: %v, %v; want rejected", res.Outcome, err)
	}
	e.ok("the application's commit", tx.Commit(e.ctx))
	e.counted(kept.ID, 1)
	for _, key := range []everonce.Key{undone, spoiled} {
		e.counted(key.ID, 0)
		e.absent(key)
	}
	e.counted(refused.ID, 0)
	if rec := e.get(refused); rec.State != driver.StateCompleted || rec.Result.Kind != driver.ResultFailure {
		e.Errorf("the refusal is recorded as %v, %v", rec.State, rec.Result.Kind)
	}
}

func checkDoTxDuplicates[Tx any](e *txEnv[Tx]) {
	t := e.txReceiver(e.txs)
	key := e.key()
	first, second := e.own(), e.own()
	if _, err := e.doTx(t, first, key, nil); err != nil {
		e.Fatalf("DoTx: %v", err)
	}
	if res, err := e.doTx(t, second, key, nil); !errors.Is(err, everonce.ErrInProgress) {
		e.Errorf("DoTx of a duplicate: %v, %v; want in progress", res.Outcome, err)
	}
	e.ok("commit of the second", second.Commit(e.ctx))
	e.ok("commit of the first", first.Commit(e.ctx))
	e.counted(key.ID, 1)
	e.notGranted(txClaimReq(key), driver.DecideReplay)
}

// checkInside calls the store from inside a transaction that everonce began on it: an error, where it
// could only wait for itself.
func checkInside[Tx any](e *txEnv[Tx]) {
	t, r := e.txReceiver(e.txs), e.receiver(e.txs, everonce.Refuse)
	key := e.key()
	res, err := everonce.Transact(e.ctx, t, key, func(ctx context.Context, tx Tx) (string, error) {
		work := func(context.Context, *everonce.Attempt) (string, error) { return "", nil }
		if _, err := everonce.Do(ctx, r, e.key(), work); !errors.Is(err, everonce.ErrInTransaction) {
			e.Errorf("Do: %v, want %v", err, everonce.ErrInTransaction)
		}
		if _, err := everonce.Do(ctx, r, key, work, everonce.WithWait(hung)); !errors.Is(err, everonce.ErrNested) {
			e.Errorf("Do of the same key: %v, want %v", err, everonce.ErrNested)
		}
		if _, err := everonce.Transact(ctx, t, e.key(), func(context.Context, Tx) (string, error) { return "", nil }); !errors.Is(err, everonce.ErrInTransaction) {
			e.Errorf("Transact: %v, want %v", err, everonce.ErrInTransaction)
		}
		return "receipt", e.app.Apply(ctx, tx, key.ID)
	})
	if err != nil || res.Outcome != everonce.Executed {
		e.Errorf("Transact: %v, %v; want executed", res.Outcome, err)
	}
	e.counted(key.ID, 1)
}

// checkNoRetry makes each statement of a DoTx fail as a deadlock does, which has ended the transaction: it is never
// sent again, for it would take effect outside the transaction.
func checkNoRetry[Tx any](e *txEnv[Tx]) {
	for at := 0; ; at++ {
		p := newProcess(at, failBefore)
		deadlocks := &deadlockStore[Tx]{TxStore: e.txs, p: p}
		var over driver.Store = deadlocks
		if e.h.over != nil {
			over = e.h.over(over)
		}
		t := e.txReceiver(over.(driver.TxStore[Tx]))
		key, tx := e.key(), e.own()
		_, err := e.doTx(t, tx, key, nil)
		points := p.reached()
		if len(points) <= at {
			e.ok("the application's rollback", tx.Rollback(e.ctx))
			if at < 3 {
				e.Fatalf("only %d statements were numbered: %v", at, points)
			}
			return
		}
		if err == nil {
			e.Errorf("DoTx succeeds though its statement %d of %v failed", at, points)
		}
		for i, what := range points[at+1:] {
			if what == points[at] || what == "tx Claim" || what == "tx Complete" {
				e.Errorf("after %s had failed, statement %d in the caller's transaction is %s: %v", points[at], at+1+i, what, points)
			}
		}
		_ = tx.Rollback(e.ctx) //nolint:errcheck // whatever is left of it
	}
}

// errDeadlock ends the transaction in which it happens.
var errDeadlock = fmt.Errorf("drivertest: deadlock: %w", errInjected)

// deadlockStore has one statement of a joined transaction fail.
type deadlockStore[Tx any] struct {
	driver.TxStore[Tx]
	p *process
}

func (s *deadlockStore[Tx]) ClassifyTx(err error) driver.TxErrorClass {
	if errors.Is(err, errInjected) {
		return driver.TxErrorRetry
	}
	return s.TxStore.ClassifyTx(err)
}

func (s *deadlockStore[Tx]) Join(ctx context.Context, tx Tx) (driver.TxHandle[Tx], error) {
	h, err := s.TxStore.Join(ctx, tx)
	if err != nil {
		return nil, err
	}
	return &deadlockHandle[Tx]{TxHandle: h, p: s.p}, nil
}

type deadlockHandle[Tx any] struct {
	driver.TxHandle[Tx]
	p *process
}

func (h *deadlockHandle[Tx]) do(what string, call func() error) error {
	if err := h.p.do(what, call); errors.Is(err, errInjected) {
		return errDeadlock
	} else if err != nil {
		return err
	}
	return nil
}

func (h *deadlockHandle[Tx]) Savepoint(ctx context.Context, name string) error {
	return h.do("Savepoint", func() error { return h.TxHandle.Savepoint(ctx, name) })
}

func (h *deadlockHandle[Tx]) Claim(ctx context.Context, req driver.ClaimRequest) (res driver.ClaimResult, err error) {
	err = h.do("tx Claim", func() (err error) { res, err = h.TxHandle.Claim(ctx, req); return err })
	return res, err
}

func (h *deadlockHandle[Tx]) Complete(ctx context.Context, req driver.CompleteRequest) (res driver.CompleteResult, err error) {
	return res, h.do("tx Complete", func() (err error) { res, err = h.TxHandle.Complete(ctx, req); return err })
}

func (h *deadlockHandle[Tx]) RollbackTo(ctx context.Context, name string) error {
	return h.do("RollbackTo", func() error { return h.TxHandle.RollbackTo(ctx, name) })
}

func (h *deadlockHandle[Tx]) ReleaseSavepoint(ctx context.Context, name string) error {
	return h.do("ReleaseSavepoint", func() error { return h.TxHandle.ReleaseSavepoint(ctx, name) })
}
