package drivertest

import (
	"context"

	"github.com/everonce/everonce/driver"
)

// retryInTx is in both tables: a store without transactions has no room for it.
const retryInTx = "retry inside the caller's transaction"

// overTx plants a mistake over a store with transactions.
func overTx[Tx any](plant func(s driver.TxStore[Tx]) driver.Store) func(h Harness) Harness {
	return func(h Harness) Harness {
		h.Store = plant(h.Store.(driver.TxStore[Tx]))
		return h
	}
}

// inHandle plants a mistake into every transaction that is begun.
func inHandle[Tx any](plant func(h driver.TxHandle[Tx]) driver.TxHandle[Tx]) func(h Harness) Harness {
	return overTx(func(s driver.TxStore[Tx]) driver.Store { return &plantedTx[Tx]{s, plant} })
}

// inBatch plants a mistake into every one that can take many keys at once.
func inBatch[Tx any](plant func(h driver.TxHandle[Tx], many driver.TxBatch) driver.TxHandle[Tx]) func(h Harness) Harness {
	return inHandle(func(h driver.TxHandle[Tx]) driver.TxHandle[Tx] {
		if many, ok := h.(driver.TxBatch); ok {
			return plant(h, many)
		}
		return h
	})
}

// plantedTx is a store with a mistake in its transactions.
type plantedTx[Tx any] struct {
	driver.TxStore[Tx]
	plant func(h driver.TxHandle[Tx]) driver.TxHandle[Tx]
}

func (s *plantedTx[Tx]) Begin(ctx context.Context, req driver.BeginRequest) (driver.TxHandle[Tx], driver.ClaimResult, error) {
	h, res, err := s.TxStore.Begin(ctx, req)
	if h != nil {
		h = s.plant(h)
	}
	return h, res, err
}

// txBugs are mistakes that need transactions.
func txBugs[Tx any]() []bug {
	return []bug{
		{
			name: retryInTx, caught: "Rule17/NothingIsRetriedInTheCallersTransaction",
			plant: func(h Harness) Harness {
				h.over = func(s driver.Store) driver.Store {
					return &retryJoined[Tx]{s.(driver.TxStore[Tx])}
				}
				return h
			},
		},
		{
			name: "acknowledged before commit, in a transaction", caught: "Tx/EffectAndRecordCommitTogether",
			plant: inHandle(func(h driver.TxHandle[Tx]) driver.TxHandle[Tx] { return &laterHandle[Tx]{h} }),
		},
		{
			name: "half of a batch is recorded", caught: "TransactBatch/EffectsAndRecordsCommitTogether",
			plant: inBatch(func(h driver.TxHandle[Tx], many driver.TxBatch) driver.TxHandle[Tx] {
				return &halfHandle[Tx]{h, many}
			}),
			pointless: func(_ Harness, caps Capabilities) string {
				if !caps.TxBatch {
					return "the store's transactions take one key at a time"
				}
				return ""
			},
		},
		{
			name: "a busy key of a batch is taken for a new one", caught: "Rule01/ABatchTakesNothingThatIsBusy",
			plant: inBatch(func(h driver.TxHandle[Tx], many driver.TxBatch) driver.TxHandle[Tx] {
				return &greedyHandle[Tx]{h, many}
			}),
		},
		{
			name: "answers of a batch in another order", caught: "Rule20/ManyClaimsAreDecidedAsOneIs",
			plant: inBatch(func(h driver.TxHandle[Tx], many driver.TxBatch) driver.TxHandle[Tx] {
				return &shuffledHandle[Tx]{h, many}
			}),
		},
		{
			name: "a transaction's key is locked in its own process alone", caught: "Rule01/ATransactionsClaimExcludesOthers",
			plant: func(h Harness) Harness {
				h.Store = &keysOfOneProcess[Tx]{TxStore: h.Store.(driver.TxStore[Tx])}
				h.Peer = &keysOfOneProcess[Tx]{TxStore: h.Peer.(driver.TxStore[Tx])}
				return h
			},
			pointless: func(h Harness, c Capabilities) string {
				if _, ok := h.Peer.(driver.TxStore[Tx]); !ok || c.OneWriter {
					return "no other process has such transactions at the same time"
				}
				return ""
			},
		},
		{
			name: "a lapsed claim is free in a transaction", caught: "Rule20/AClaimInATransactionIsDecidedAsSpecified",
			plant: overTx(func(s driver.TxStore[Tx]) driver.Store { return &lapsedIsFree[Tx]{s} }),
		},
		{
			name: "a record written over another request's", caught: "Tx/ConflictRollsBack",
			plant: inHandle(func(h driver.TxHandle[Tx]) driver.TxHandle[Tx] { return &unaskedHandle[Tx]{h} }),
		},
		{
			name: "a renewal in a transaction locks nothing", caught: "Rule16/ARenewalWaitsForThatOfAnotherTransaction", tries: 20, // the second one may come late
			plant: inHandle(func(h driver.TxHandle[Tx]) driver.TxHandle[Tx] { return &unlockedHandle[Tx]{h} }),
		},
		{
			name: "a late commit of a done step", caught: "Rule18/AStepCommitsOnce",
			plant: inHandle(func(h driver.TxHandle[Tx]) driver.TxHandle[Tx] { return &againHandle[Tx]{h, driver.StepDone} }),
		},
		{
			name: "a late commit over a step that was not done", caught: "Rule18/AStepCommitsOnce",
			plant: inHandle(func(h driver.TxHandle[Tx]) driver.TxHandle[Tx] { return &againHandle[Tx]{h, driver.StepNotDone} }),
		},
	}
}

// retryJoined sends a statement that failed once more.
type retryJoined[Tx any] struct{ driver.TxStore[Tx] }

func (s *retryJoined[Tx]) Join(ctx context.Context, tx Tx) (driver.TxHandle[Tx], error) {
	h, err := s.TxStore.Join(ctx, tx)
	return &retryHandle[Tx]{h}, err
}

type retryHandle[Tx any] struct{ driver.TxHandle[Tx] }

func (h *retryHandle[Tx]) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	res, err := h.TxHandle.Claim(ctx, req)
	if err != nil {
		return h.TxHandle.Claim(ctx, req)
	}
	return res, nil
}

func (h *retryHandle[Tx]) Complete(ctx context.Context, req driver.CompleteRequest) (driver.CompleteResult, error) {
	res, err := h.TxHandle.Complete(ctx, req)
	if err != nil {
		return h.TxHandle.Complete(ctx, req)
	}
	return res, nil
}

// laterHandle says that it has committed, and rolls back: as a process does that dies in between.
type laterHandle[Tx any] struct{ driver.TxHandle[Tx] }

func (h *laterHandle[Tx]) Commit(ctx context.Context, _ driver.CommitRequest) (res driver.CommitResult, err error) {
	return res, h.Rollback(ctx)
}

// againHandle takes a step that the attempt has ended so for written, as SaveStep outside of transactions does of
// one that is done, and commits what came with it.
type againHandle[Tx any] struct {
	driver.TxHandle[Tx]
	over driver.StepState
}

func (h *againHandle[Tx]) Commit(ctx context.Context, req driver.CommitRequest) (res driver.CommitResult, err error) {
	if save := req.SaveStep; save != nil {
		got, err := h.Get(ctx, driver.GetRequest{ID: save.ID})
		if err != nil {
			return res, err
		}
		step, ok := got.Record.Step(save.Step.Name)
		if ok && step.State == h.over && step.Attempt == save.Step.Attempt && got.Record.Token == save.Token && got.Record.Nonce == save.Nonce {
			req.SaveStep = nil
		}
	}
	return h.TxHandle.Commit(ctx, req)
}
