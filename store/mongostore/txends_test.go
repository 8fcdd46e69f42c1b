package mongostore_test

import (
	"context"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/mongostore"
)

// Nothing is written through a session whose transaction the work has ended: the driver would send it outside of any.
func TestWorkThatEndsTheSessionsTransaction(t *testing.T) {
	t.Parallel()
	s, err := mongostore.New(t.Context(), database(t), &mongostore.Options{Collection: newCollection(t)})
	noErr(t, err)
	txs := mongostore.Over(s)
	key := everonce.Key{Scope: "orders", ID: "7"}
	claim := driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lifetime: everonce.ForWeb()}
	done := driver.CompleteRequest{ID: claim.ID, Nonce: claim.Nonce, Lifetime: claim.Lifetime, Result: driver.SavedResult{Kind: driver.ResultElided}}
	step := driver.SaveStepRequest{ID: claim.ID, Nonce: claim.Nonce, Lifetime: claim.Lifetime, Step: driver.StepRecord{Name: "charge", State: driver.StepDone, Attempt: 1, Result: driver.SavedResult{Kind: driver.ResultElided}}}
	for end, run := range map[string]func(context.Context, *mongo.Session) error{
		"abort":  func(ctx context.Context, tx *mongo.Session) error { return tx.AbortTransaction(ctx) },
		"commit": func(ctx context.Context, tx *mongo.Session) error { return tx.CommitTransaction(ctx) },
	} {
		for what, last := range map[string]driver.CommitRequest{"nothing": {}, "a record": {Record: &claim, Complete: &done}, "a completion": {Complete: &done}, "a step": {SaveStep: &step}} {
			h, _, err := txs.Begin(t.Context(), driver.BeginRequest{})
			noErr(t, err)
			noErr(t, run(t.Context(), h.Tx())) // nothing was sent in it, so that it needs no server that has transactions
			if err := h.Commit(t.Context(), last); !errors.Is(err, driver.ErrTxDoomed) || txs.ClassifyTx(err) != driver.TxErrorEnded {
				t.Errorf("%s, then a commit with %s: %v, want that it is doomed, and that the work has ended it", end, what, err)
			}
		}
		h, _, err := txs.Begin(t.Context(), driver.BeginRequest{})
		noErr(t, err)
		noErr(t, run(t.Context(), h.Tx()))
		for what, err := range map[string]error{"Savepoint": h.Savepoint(t.Context(), "s"), "Record": h.Record(t.Context(), claim, done), "Rollback": h.Rollback(t.Context())} {
			if txs.ClassifyTx(err) != driver.TxErrorEnded {
				t.Errorf("%s, then %s: %v, want that the work has ended it", end, what, err)
			}
		}
		noErr(t, h.Rollback(t.Context()))
	}
	if got, err := s.Get(t.Context(), driver.GetRequest{ID: claim.ID}); err != nil || got.Found {
		t.Errorf("there is a record: %v, %v", got.Found, err)
	}

	// The engine leaves word that nobody knows.
	r, err := everonce.NewTxReceiver(txs, nil)
	noErr(t, err)
	runs := 0
	for range 2 {
		res, err := everonce.Transact(t.Context(), r, key, func(ctx context.Context, tx *mongo.Session) (string, error) {
			runs++
			return "v", tx.AbortTransaction(ctx)
		}, everonce.Optimistic())
		if res.Outcome != everonce.Unknown || !errors.Is(err, everonce.ErrOutcomeUnknown) || runs != 1 {
			t.Errorf("%v, %v, after %d runs; want unknown, after one", res.Outcome, err, runs)
		}
	}
}
