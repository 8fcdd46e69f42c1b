package mongostore_test

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/mongostore"
)

// Nothing is written through a session without a transaction: the driver would send it outside of any.
func TestSessionWhoseTransactionHasEnded(t *testing.T) {
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
			if _, err := h.Commit(t.Context(), last); err == nil || txs.ClassifyTx(err) != driver.TxErrorOther {
				t.Errorf("%s, then a commit with %s: %v, want an error that is not retried", end, what, err)
			}
		}
	}
	if got, err := s.Get(t.Context(), driver.GetRequest{ID: claim.ID}); err != nil || got.Found {
		t.Errorf("there is a record: %v, %v", got.Found, err)
	}
}
