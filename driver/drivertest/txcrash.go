package drivertest

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// txCrashChecks enumerate the crash points of transactions: after every one of them, and the retries that
// follow, the effect has taken hold once, and no more.
func txCrashChecks[Tx any]() []check {
	return []check{
		{name: "TxCrashPoints/ClaimFirst", run: inTx(func(e *txEnv[Tx]) { e.crashTx(false) })},
		{name: "TxCrashPoints/Optimistic", run: inTx(func(e *txEnv[Tx]) { e.crashTx(true) })},
		{name: "TxCrashPoints/PermanentFailure", run: inTx(checkTxRejected[Tx])},
		{name: "TxCrashPoints/StepTx", run: inTx(checkStepTxCrash[Tx])},
		{name: "TxHistory/OfTransactIsLinearizable", run: inTx(func(e *txEnv[Tx]) { e.history(e.deliverTx(false)) })},
		{name: "TxHistory/OfOptimisticTransactIsLinearizable", run: inTx(func(e *txEnv[Tx]) { e.history(e.deliverTx(true)) })},
	}
}

func (e *txEnv[Tx]) txReceiver(s driver.TxStore[Tx]) *everonce.TxReceiver[Tx] {
	e.Helper()
	t, err := everonce.NewTxReceiver(s, &everonce.Options{
		Lifetime: forLong, Codec: everonce.Raw(), Owner: "suite", CompletionTimeout: patience, StoreTimeout: patience,
	})
	if err != nil {
		e.Fatalf("NewTxReceiver: %v", err)
	}
	return t
}

// transact brings an operation to a process: the answer is nil if the process did not live to give it.
func (e *txEnv[Tx]) transact(p *process, key everonce.Key, optimistic bool, reject error) (res everonce.Result[string], lived bool, err error) {
	e.Helper()
	s := newFaultTxStore(e.txs, p)
	t := e.txReceiver(s)
	opts := []everonce.CallOption{everonce.Fingerprint(fingerprintA)}
	if optimistic {
		opts = append(opts, everonce.Optimistic())
	}
	lived = p.run(func() {
		res, err = everonce.Transact(e.ctx, t, key, func(ctx context.Context, tx Tx) (string, error) {
			if err := p.do("effect", func() error { return e.app.Apply(ctx, tx, key.ID) }); err != nil {
				return "", err
			}
			return "receipt", reject
		}, opts...)
	})
	s.disconnect(e.ctx)
	return res, lived, err
}

// crashTx runs an operation once for each point and each fault, and retries it to its end.
func (e *txEnv[Tx]) crashTx(optimistic bool) {
	e.Helper()
	first := newProcess(-1, noFault)
	if _, _, err := e.transact(first, e.key(), optimistic, nil); err != nil {
		e.Fatalf("Transact: %v", err)
	}
	points := first.reached()
	if len(points) < 3 {
		e.Fatalf("only %d points were numbered: %v", len(points), points)
	}
	for at := range points {
		for _, how := range faults {
			key, name := e.key(), fmt.Sprintf("point %d of %v %v", at, points, how)
			p := newProcess(at, how)
			res, lived, err := e.transact(p, key, optimistic, nil)
			if len(p.reached()) <= at {
				e.Fatalf("%s was not reached: %v", name, p.reached())
			}
			e.consistent(name, key, res, err, lived)
			e.retryTx(name, key, optimistic)
		}
	}
}

// consistent checks the state that one process left and what it answered: an effect and its record exist together
// or not at all, and exist if the answer said so.
func (e *txEnv[Tx]) consistent(name string, key everonce.Key, res everonce.Result[string], err error, lived bool) {
	e.Helper()
	n := e.count(key.ID)
	got := e.look(key.RecordID())
	recorded := got.Found && got.Record.State == driver.StateCompleted
	if n > 1 || (n == 1) != recorded {
		e.Fatalf("%s: %d effects, recorded: %v; want both or none", name, n, recorded)
	}
	if lived && err == nil && (n != 1 || res.Value != "receipt") {
		e.Fatalf("%s: it says %v with %q, and there are %d effects", name, res.Outcome, res.Value, n)
	}
	if lived && res.Outcome == everonce.Failed && n != 0 {
		e.Fatalf("%s: it says failed, and there is an effect", name)
	}
}

func (e *txEnv[Tx]) retryTx(name string, key everonce.Key, optimistic bool) {
	e.Helper()
	for range 2 {
		res, _, err := e.transact(newProcess(-1, noFault), key, optimistic, nil)
		if err != nil || res.Value != "receipt" {
			e.Fatalf("%s, then retried: %v, %q, %v", name, res.Outcome, res.Value, err)
		}
	}
	if n := e.count(key.ID); n != 1 {
		e.Fatalf("%s, then retried: %d effects, want 1", name, n)
	}
}

// checkTxRejected crashes an operation that is refused for good: its writes are rolled back, and the
// failure is saved by a second transaction.
func checkTxRejected[Tx any](e *txEnv[Tx]) {
	declined := everonce.Permanent("declined", errors.New("no money"), []byte{1})
	first := newProcess(-1, noFault)
	_, _, want := e.transact(first, e.key(), false, declined)
	var failure *everonce.PermanentError
	if !errors.As(want, &failure) {
		e.Fatalf("Transact: %v, want the permanent failure", want)
	}
	points := first.reached()
	for at := range points {
		for _, how := range faults {
			key, name := e.key(), fmt.Sprintf("point %d of %v %v", at, points, how)
			_, _, _ = e.transact(newProcess(at, how), key, false, declined) //nolint:errcheck // what it says is not the last word
			for range 2 {
				res, _, err := e.transact(newProcess(-1, noFault), key, false, declined)
				var got *everonce.PermanentError
				if !errors.As(err, &got) || got.Error() != failure.Error() || string(got.Detail) != string(failure.Detail) || res.Outcome != everonce.Rejected {
					e.Fatalf("%s, then retried: %v, %v; want the failure", name, res.Outcome, err)
				}
			}
			if n := e.count(key.ID); n != 0 {
				e.Fatalf("%s: %d effects of an operation that was refused", name, n)
			}
		}
	}
}

// checkStepTxCrash crashes an operation with a charge in the database (StepTx) and an e-mail outside of it
// (a step under Refuse, settled afterwards from the other side's ledger).
func checkStepTxCrash[Tx any](e *txEnv[Tx]) {
	newTrial := func() *trial {
		tr := &trial{policy: everonce.Refuse, gateway: newGateway(false), steps: true}
		var shared driver.TxStore[Tx]
		tr.open = func(p *process) (driver.Store, func()) {
			s := newFaultTxStore(e.txs, p)
			shared = s
			return s, func() { s.disconnect(e.ctx) }
		}
		tr.work = func(ctx context.Context, a *everonce.Attempt, p *process) (string, error) {
			_, err := everonce.StepTx(ctx, a, e.txReceiver(shared), "charge", func(ctx context.Context, tx Tx) (string, error) {
				return "charged", p.do("effect", func() error { return e.app.Apply(ctx, tx, tr.key.ID) })
			})
			if err != nil {
				return "", err
			}
			_, err = everonce.Step(ctx, a, "mail", func(context.Context) (string, error) {
				return "sent", tr.gateway.call(p, a.DownstreamKey("mail"))
			}, everonce.WithPolicy(everonce.Refuse))
			return "receipt", err
		}
		tr.verify = func() {
			_, mails := tr.gateway.total()
			if n := e.count(tr.key.ID); n != 1 || mails != 1 {
				tr.fatalf("%d charges and %d mails, want one of each", n, mails)
			}
		}
		return tr
	}
	e.crashEverywhere(newTrial)
}

// deliverTx brings an operation to a process in transactional mode, the work's effect a row.
func (e *txEnv[Tx]) deliverTx(optimistic bool) func(p *process, d delivery) (reply, error) {
	return func(p *process, d delivery) (answer reply, err error) {
		s := newFaultTxStore(e.txs, p)
		t, err := everonce.NewTxReceiver(s, historyOptions())
		if err != nil {
			return answer, err
		}
		opts := []everonce.CallOption{everonce.Fingerprint(fingerprintA)}
		if optimistic {
			opts = append(opts, everonce.Optimistic())
		}
		p.run(func() {
			res, doErr := everonce.Transact(e.ctx, t, d.key, func(ctx context.Context, tx Tx) (string, error) {
				return d.own, p.do("effect", func() error { return e.app.Apply(ctx, tx, d.key.ID) })
			}, opts...)
			if !p.isGone() {
				answer, err = replyOf(res, doErr)
			}
		})
		s.disconnect(e.ctx)
		if n, countErr := e.app.Count(e.ctx, d.key.ID); countErr != nil || n > 1 {
			return answer, fmt.Errorf("%d effects: %w", n, errors.Join(err, countErr))
		}
		return answer, err
	}
}
