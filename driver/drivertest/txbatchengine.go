package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// txBatchEngineChecks drive the store's transactions through TransactBatch, with driver.TxBatch where the store has it.
func txBatchEngineChecks[Tx any]() []check {
	return []check{
		{name: "TransactBatch/EffectsAndRecordsCommitTogether", run: inTx(checkTransactBatch[Tx])},
		{name: "TransactBatch/AFailureDoesNotFailItsNeighbours", run: inTx(checkBatchFails[Tx])},
		{name: "TransactBatch/ManyDeliveriesTakeEffectOnce", run: inTx(checkManyBatches[Tx])},
		{name: "TxCrashPoints/Batch", run: inTx(checkBatchCrash[Tx])},
		{name: "TxHistory/OfBatchesIsLinearizable", run: inTx(func(e *txEnv[Tx]) { e.histories(3, e.deliverBatch) })},
	}
}

func itemsOf(keys []everonce.Key) []everonce.BatchItem {
	items := make([]everonce.BatchItem, len(keys))
	for i, k := range keys {
		items[i] = everonce.BatchItem{Key: k, Fingerprint: sumA}
	}
	return items
}

func (e *env) newKeys(n int) []everonce.Key {
	keys := make([]everonce.Key, n)
	for i := range keys {
		keys[i] = e.key()
	}
	return keys
}

// batch brings operations to a process at once. The answers are nil if the process did not live to give them.
func (e *txEnv[Tx]) batch(p *process, keys []everonce.Key, end func(ctx context.Context, tx Tx, i int) error) (all []everonce.BatchResult[string], lived bool) {
	e.Helper()
	s := newFaultTxStore(e.txs, p)
	t := e.txReceiver(s)
	lived = p.run(func() {
		var err error
		all, err = everonce.TransactBatch(e.ctx, t, itemsOf(keys), everonce.EachItem(func(ctx context.Context, tx Tx, i int) (string, error) {
			if err := p.do("effect", func() error { return e.app.Apply(ctx, tx, keys[i].ID) }); err != nil {
				return "", err
			}
			if end != nil {
				return "", end(ctx, tx, i)
			}
			return "receipt", nil
		}))
		switch {
		case errors.Is(err, driver.ErrStore): // of all of them, before anything was begun
			all = make([]everonce.BatchResult[string], len(keys))
			for i := range all {
				all[i].Err = err
			}
		case err != nil:
			e.Fatalf("TransactBatch: %v", err)
		}
	})
	s.disconnect(e.ctx)
	return all, lived
}

func checkTransactBatch[Tx any](e *txEnv[Tx]) {
	keys := e.newKeys(8)
	keys = append(keys, keys[3])
	for round, want := range []everonce.Outcome{everonce.Executed, everonce.Replayed} {
		all, _ := e.batch(newProcess(-1, noFault), keys, nil)
		for i, res := range all {
			if i == 8 {
				want = everonce.Replayed
			}
			if res.Outcome != want || res.Value != "receipt" || res.Err != nil {
				e.Errorf("round %d, item %d: %v, %q, %v; want %v", round, i, res.Outcome, res.Value, res.Err, want)
			}
		}
	}
	for _, k := range keys {
		e.counted(k.ID, 1)
		if rec := e.get(k); rec.State != driver.StateCompleted || rec.Attempt != 1 || string(rec.Result.Data) != "receipt" {
			e.Errorf("the record is %v, attempt %d", rec.State, rec.Attempt)
		}
	}
}

func checkBatchFails[Tx any](e *txEnv[Tx]) {
	keys := e.newKeys(7)
	all, _ := e.batch(newProcess(-1, noFault), keys, func(ctx context.Context, tx Tx, i int) error {
		switch i {
		case 1:
			return e.app.Spoil(ctx, tx)
		case 2:
			return everonce.Permanent("declined", errors.New("no money"), nil)
		case 5:
			return everonce.NotDone(errInjected)
		}
		return nil
	})
	for i, res := range all {
		want, effects := everonce.Executed, 1
		switch i {
		case 1, 5:
			want, effects = everonce.Failed, 0
		case 2:
			want, effects = everonce.Rejected, 0
		}
		if res.Outcome != want {
			e.Errorf("item %d: %v, %v; want %v", i, res.Outcome, res.Err, want)
		}
		e.counted(keys[i].ID, effects)
	}
	e.absent(keys[1])
}

// checkManyBatches lets batches loose that share keys, each in a different order.
func checkManyBatches[Tx any](e *txEnv[Tx]) {
	keys := e.newKeys(12)
	executed := make([]atomic.Int64, len(keys))
	each(min(e.caps.Callers, 12), func(caller int) {
		rng := rand.New(rand.NewPCG(7, uint64(caller))) //nolint:gosec // a seeded choice
		t := e.txReceiver(e.process(caller).txs)
		left := rng.Perm(len(keys))[:8]
		for len(left) > 0 && e.ctx.Err() == nil {
			mine := make([]everonce.Key, len(left))
			for i, k := range left {
				mine[i] = keys[k]
			}
			all, err := everonce.TransactBatch(e.ctx, t, itemsOf(mine), everonce.EachItem(func(ctx context.Context, tx Tx, i int) (string, error) {
				return "receipt", e.app.Apply(ctx, tx, mine[i].ID)
			}))
			e.ok("TransactBatch", err)
			var later []int
			for i, res := range all {
				switch {
				case res.Outcome == everonce.InProgress || res.Err != nil && e.txs.ClassifyTx(res.Err) == driver.TxErrorRetry:
					later = append(later, left[i])
				case res.Err != nil || res.Value != "receipt":
					e.Errorf("an item: %q, %v, %v", res.Value, res.Outcome, res.Err)
				case res.Outcome == everonce.Executed:
					executed[left[i]].Add(1)
				}
			}
			left = later
		}
	})
	for i, k := range keys {
		n := e.count(k.ID)
		if said := executed[i].Load(); n > 1 || int64(n) != said {
			e.Errorf("%d effects, and %d calls say that they executed it", n, said)
		}
	}
}

// checkBatchCrash runs a batch once for each point and each fault, and retries it to its end.
func checkBatchCrash[Tx any](e *txEnv[Tx]) {
	first := newProcess(-1, noFault)
	e.batch(first, e.newKeys(3), nil)
	points := first.reached()
	if len(points) < 5 {
		e.Fatalf("only %d points were numbered: %v", len(points), points)
	}
	for at := range points {
		for _, how := range faults {
			keys, name := e.newKeys(3), fmt.Sprintf("point %d of %v %v", at, points, how)
			p := newProcess(at, how)
			all, lived := e.batch(p, keys, nil)
			if len(p.reached()) <= at {
				e.Fatalf("%s was not reached: %v", name, p.reached())
			}
			for i, key := range keys {
				res := everonce.BatchResult[string]{}
				if lived {
					res = all[i]
				}
				e.consistent(name, key, res.Result, res.Err, lived)
			}
			for range 2 {
				all, _ = e.batch(newProcess(-1, noFault), keys, nil)
				for i, res := range all {
					if res.Err != nil || res.Value != "receipt" || e.count(keys[i].ID) != 1 {
						e.Fatalf("%s, then retried: %v, %q, %v with %d effects", name, res.Outcome, res.Value, res.Err, e.count(keys[i].ID))
					}
				}
			}
		}
	}
}

// deliverBatch brings operations to a process at once. One key may be in it twice.
func (e *txEnv[Tx]) deliverBatch(p *process, ds []delivery) ([]reply, error) {
	answers, keys := make([]reply, len(ds)), make([]everonce.Key, len(ds))
	for i, d := range ds {
		keys[i] = d.key
	}
	s := newFaultTxStore(e.txs, p)
	t, err := everonce.NewTxReceiver(s, historyOptions())
	if err != nil {
		return answers, err
	}
	p.run(func() {
		all, batchErr := everonce.TransactBatch(e.ctx, t, itemsOf(keys), everonce.EachItem(func(ctx context.Context, tx Tx, i int) (string, error) {
			return ds[i].own, p.do("effect", func() error { return e.app.Apply(ctx, tx, keys[i].ID) })
		}))
		if p.isGone() || errors.Is(batchErr, driver.ErrStore) { // before anything was begun
			return
		}
		err = batchErr
		for i, res := range all {
			var one error
			answers[i], one = replyOf(res.Result, res.Err)
			err = errors.Join(err, one)
		}
	})
	s.disconnect(e.ctx)
	for _, k := range keys {
		if n, countErr := e.app.Count(e.ctx, k.ID); countErr != nil || n > 1 {
			err = errors.Join(err, countErr, fmt.Errorf("%d effects", n))
		}
	}
	return answers, err
}
