package drivertest

import (
	"context"
	"slices"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// TxFactory returns a new, empty store with transactions for one test, as [Factory] does.
type TxFactory[Tx any] func(t testing.TB) TxHarness[Tx]

// TxHarness is a store with transactions under test, and an application's data in the same database.
type TxHarness[Tx any] struct {
	// Harness holds the store, which implements driver.TxStore[Tx]. If its Peer does too, the Peer begins transactions
	// like another process, and Apply is also called with those.
	Harness
	// Apply makes an effect of that name through the transaction, such as a new row or an addition to a balance: done
	// twice, it must count twice.
	Apply func(ctx context.Context, tx Tx, name string) error
	// Count returns how often the effect of that name has been committed.
	Count func(ctx context.Context, name string) (int, error)
	// Begin begins a transaction of the application, as the store requires it.
	Begin func(ctx context.Context) (CallerTx[Tx], error)
	// Spoil runs a statement in the transaction that fails, such as one that violates a constraint, and returns the
	// error.
	Spoil func(ctx context.Context, tx Tx) error
}

// CallerTx is a transaction that the application began.
type CallerTx[Tx any] struct {
	Tx               Tx
	Commit, Rollback func(ctx context.Context) error
}

// RunTx tests the transactions of a store. It does not repeat [Run].
func RunTx[Tx any](t *testing.T, factory TxFactory[Tx], caps Capabilities) {
	t.Helper()
	checks := allTxChecks[Tx]()
	if caps.isBrief() {
		checks = slices.Concat(txChecks[Tx](), txBatchChecks[Tx](), txEngineChecks[Tx]())
	}
	runChecks(t, factory.harness(), caps.withDefaults(), checks)
}

// RunTxWithBugs is [RunTx], and then plants known bugs: see [RunWithBugs].
func RunTxWithBugs[Tx any](t *testing.T, factory TxFactory[Tx], caps Capabilities) {
	t.Helper()
	RunTx(t, factory, caps)
	if !caps.isBrief() {
		runBugs(t, factory.harness(), caps.withDefaults(), allTxChecks[Tx](), txBugs[Tx]())
	}
}

// harness makes the harness of a store without the transactions, which it carries along.
func (f TxFactory[Tx]) harness() Factory {
	return func(t testing.TB) Harness {
		h := f(t)
		if _, ok := h.Store.(driver.TxStore[Tx]); !ok {
			t.Fatalf("drivertest: the store is not a driver.TxStore of that transaction type")
		}
		h.Harness.tx = h
		return h.Harness
	}
}

func allTxChecks[Tx any]() []check {
	return slices.Concat(txChecks[Tx](), txBatchChecks[Tx](), txEngineChecks[Tx](), txCrashChecks[Tx](), txBatchEngineChecks[Tx]())
}

// txEnv is a check's world with transactions.
type txEnv[Tx any] struct {
	*env
	app TxHarness[Tx]
	txs driver.TxStore[Tx]
}

// process returns the world as one of two processes has it. It is this one if the peer has no such transactions, or
// would wait for the store's.
func (e *txEnv[Tx]) process(i int) *txEnv[Tx] {
	txs, ok := e.h.Peer.(driver.TxStore[Tx])
	if i%2 == 0 || !ok || e.caps.OneWriter {
		return e
	}
	c := *e
	c.env, c.txs = e.to(e.reporter, e.h.Peer), txs
	return &c
}

// inTx makes a check of one that needs transactions.
func inTx[Tx any](run func(e *txEnv[Tx])) func(e *env) {
	return func(e *env) {
		app, ok := e.h.tx.(TxHarness[Tx])
		if !ok {
			e.Fatalf("drivertest: the harness has no transactions")
		}
		txs, ok := e.s.(driver.TxStore[Tx])
		if !ok {
			e.Fatalf("drivertest: the store has no transactions")
		}
		run(&txEnv[Tx]{env: e, app: app, txs: txs})
	}
}

// txClaimReq is a claim as it is made inside a transaction: without a lease.
func txClaimReq(k everonce.Key) *driver.ClaimRequest {
	req := claimReq(k)
	req.Lease = 0
	return &req
}

// open is a transaction that has claimed a key.
type open[Tx any] struct {
	driver.TxHandle[Tx]
	e   *txEnv[Tx]
	req driver.ClaimRequest
	res driver.ClaimResult
}

// begin begins a transaction; it claims, and must be granted the key, if there is a request.
func (e *txEnv[Tx]) begin(req *driver.ClaimRequest) *open[Tx] {
	e.Helper()
	h, res, err := e.txs.Begin(e.ctx, driver.BeginRequest{Claim: req, Timeout: hung})
	if err != nil {
		e.Fatalf("Begin: %v", err)
	}
	if h != nil { // what a check that fails leaves open would hold up the cleaning
		e.after(func() { _ = h.Rollback(context.Background()) }) //nolint:errcheck // after a commit it does nothing
	}
	o := &open[Tx]{TxHandle: h, e: e, res: res}
	if req != nil {
		o.req = *req
		if res.Decision != driver.DecideClaimed {
			e.Fatalf("Begin: %v, want claimed", res.Decision)
		}
	}
	if h == nil {
		e.Fatalf("Begin: no handle")
	}
	return o
}

// notGranted begins a transaction whose claim must not be granted.
func (e *txEnv[Tx]) notGranted(req *driver.ClaimRequest, want driver.Decision) driver.ClaimResult {
	e.Helper()
	h, res, err := e.txs.Begin(e.ctx, driver.BeginRequest{Claim: req, Timeout: hung})
	if err != nil {
		e.Fatalf("Begin: %v", err)
	}
	if h != nil {
		_ = h.Rollback(e.ctx) //nolint:errcheck // it is an error already
		e.Fatalf("Begin: %v, with a handle", res.Decision)
	}
	if res.Decision != want {
		e.Fatalf("Begin: %v, want %v", res.Decision, want)
	}
	return res
}

func (o *open[Tx]) apply(name string) {
	o.e.Helper()
	if err := o.e.app.Apply(o.e.ctx, o.Tx(), name); err != nil {
		o.e.Fatalf("the application's write: %v", err)
	}
}

func (o *open[Tx]) completion(data string) *driver.CompleteRequest {
	return &driver.CompleteRequest{ID: o.req.ID, Token: o.res.Record.Token, Nonce: o.req.Nonce, Result: value(data), Lifetime: o.req.Lifetime}
}

func (o *open[Tx]) commit(req driver.CommitRequest) {
	o.e.Helper()
	if _, err := o.Commit(o.e.ctx, req); err != nil {
		o.e.Fatalf("Commit: %v", err)
	}
}

func (o *open[Tx]) rollback() {
	o.e.Helper()
	if err := o.Rollback(o.e.ctx); err != nil {
		o.e.Fatalf("Rollback: %v", err)
	}
}

// counted fails unless the effect was committed that many times.
func (e *txEnv[Tx]) counted(name string, want int) {
	e.Helper()
	if got := e.count(name); got != want {
		e.Errorf("the effect was committed %d times, want %d", got, want)
	}
}

func (e *txEnv[Tx]) count(name string) int {
	e.Helper()
	n, err := e.app.Count(e.ctx, name)
	if err != nil {
		e.Fatalf("Count: %v", err)
	}
	return n
}

// own begins a transaction of the application's.
func (e *txEnv[Tx]) own() CallerTx[Tx] {
	e.Helper()
	tx, err := e.app.Begin(e.ctx)
	if err != nil {
		e.Fatalf("the application's Begin: %v", err)
	}
	e.after(func() { _ = tx.Rollback(context.Background()) }) //nolint:errcheck // it has ended, unless the check has failed
	return tx
}

func (e *txEnv[Tx]) join(tx CallerTx[Tx]) driver.TxHandle[Tx] {
	e.Helper()
	h, err := e.txs.Join(e.ctx, tx.Tx)
	if err != nil {
		e.Fatalf("Join: %v", err)
	}
	return h
}

// ok fails unless there is no error.
func (e *env) ok(what string, err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("%s: %v", what, err)
	}
}

// errOf is the error of a call whose result is empty.
func errOf[R any](_ R, err error) error { return err }
