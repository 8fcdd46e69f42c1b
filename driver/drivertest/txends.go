package drivertest

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// ending is how work ends the transaction that it was lent, and what it does then.
type ending struct{ optimistic, commits, again, fails, panics bool }

var errEnds = errors.New("drivertest: the work says so after it has ended its transaction")

// checkTxEnds has work end the transaction that it was lent: what is told and recorded then must hold, or be that nobody knows.
func checkTxEnds[Tx any](e *txEnv[Tx]) {
	e.endings([]ending{
		{commits: true},
		{},
		{commits: true, again: true},
		{again: true},
		{optimistic: true, commits: true},
		{optimistic: true},
		{commits: true, fails: true},
		{optimistic: true, commits: true, fails: true},
	})
}

func checkTxEndsAndPanics[Tx any](e *txEnv[Tx]) {
	e.endings([]ending{
		{commits: true, panics: true},
		{panics: true},
		{optimistic: true, commits: true, panics: true},
		{optimistic: true, panics: true},
	})
}

func (e *txEnv[Tx]) endings(all []ending) {
	e.Helper()
	t := e.txReceiver(e.txs)
	for _, c := range all {
		keys, opts := e.newKeys(1), []everonce.CallOption{everonce.Fingerprint(fingerprintA)}
		if c.optimistic {
			opts = append(opts, everonce.Optimistic())
		}
		e.held(fmt.Sprintf("%+v", c), keys, func(end bool) []everonce.BatchResult[string] {
			res, err := everonce.Transact(e.ctx, t, keys[0], func(ctx context.Context, tx Tx) (string, error) {
				return e.endingWork(ctx, tx, keys[0], c, end)
			}, opts...)
			return []everonce.BatchResult[string]{{Result: res, Err: err}}
		})
	}
}

// checkBatchEnds has the work of one operation of a batch end the transaction of all.
func checkBatchEnds[Tx any](e *txEnv[Tx]) {
	t := e.txReceiver(e.txs)
	for _, c := range []ending{
		{commits: true}, {}, {commits: true, again: true}, {again: true}, {commits: true, fails: true}, {fails: true}, {commits: true, panics: true}, {panics: true},
	} {
		keys := e.newKeys(3)
		e.held(fmt.Sprintf("%+v", c), keys, func(end bool) []everonce.BatchResult[string] {
			all, err := everonce.TransactBatch(e.ctx, t, itemsOf(keys), everonce.EachItem(func(ctx context.Context, tx Tx, i int) (string, error) {
				return e.endingWork(ctx, tx, keys[i], c, end && i == 1)
			}))
			e.ok("TransactBatch", err)
			return all
		})
	}
}

// endingWork has an effect, and then ends its transaction, if it is to.
func (e *txEnv[Tx]) endingWork(ctx context.Context, tx Tx, key everonce.Key, c ending, end bool) (string, error) {
	if e.app.End == nil {
		e.Fatalf("drivertest: the harness does not say how work ends the transaction that it was lent: TxHarness.End")
	}
	if err := e.app.Apply(ctx, tx, key.ID); err != nil || !end {
		return "receipt", err
	}
	_ = e.app.End(ctx, tx, c.commits, c.again) //nolint:errcheck // a store may refuse it; the work does not look
	switch {
	case c.panics:
		panic(errEnds)
	case c.fails:
		return "", errEnds
	}
	return "receipt", nil
}

// held compares what is told and recorded of operations, whose transaction the work of one has ended, with what has taken effect. A
// panic tells nothing, but what it leaves is held to the same.
func (e *txEnv[Tx]) held(name string, keys []everonce.Key, deliver func(end bool) []everonce.BatchResult[string]) {
	e.Helper()
	told := make([]everonce.BatchResult[string], len(keys))
	func() {
		defer func() {
			if p := recover(); p != nil && p != errEnds { //nolint:errorlint // the work's own panic, as it is
				panic(p)
			}
		}()
		told = deliver(true)
	}()
	for i, key := range keys {
		res, effects, rec := told[i], e.count(key.ID), e.look(key.RecordID())
		if done := res.Outcome == everonce.Executed || rec.Found && rec.Record.State == driver.StateCompleted; done && effects != 1 {
			e.Errorf("%s: %d: told %v, %v, and recorded as %v, with %d effects", name, i, res.Outcome, res.Err, rec.Record.State, effects)
		}
		if res.Outcome == everonce.Failed && effects != 0 {
			e.Errorf("%s: %d: told failed, %v, with %d effects", name, i, res.Err, effects)
		}
	}
	again := deliver(false)
	for i, key := range keys {
		if n := e.count(key.ID); n > 1 || n == 0 && again[i].Err == nil {
			e.Errorf("%s: %d: the repetition of what was told %v: %v, %v, with %d effects", name, i, told[i].Outcome, again[i].Outcome, again[i].Err, n)
		}
	}
}
