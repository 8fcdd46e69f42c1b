package dynamostore_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/dynamostore"
)

// world is a store with transactions over a line, and the application's items, which are read beside it.
type world struct {
	*testing.T
	*line
	effects
	store *dynamostore.TxStore
	tx    *everonce.TxReceiver[*dynamostore.Tx]
}

func newWorld(t *testing.T) *world {
	t.Helper()
	l, table := new(line), newTable(t)
	s, err := dynamostore.NewTx(t.Context(), l.over(t, 1), &dynamostore.Options{Table: table, ClockSkew: -1})
	noErr(t, err)
	r, err := everonce.NewTxReceiver(s, nil)
	noErr(t, err)
	noErr(t, r.Ready(t.Context()))
	return &world{t, l, effects{client(t), table}, s, r}
}

func (w *world) transact(end error, more ...types.TransactWriteItem) (everonce.Result[string], error) {
	return everonce.Transact(w.Context(), w.tx, everonce.Key{Scope: "orders", ID: "7"}, func(ctx context.Context, tx *dynamostore.Tx) (string, error) {
		noErr(w, w.apply(ctx, tx, "7"))
		noErr(w, tx.Add(more...))
		return "done", end
	})
}

func (w *world) counted(want int) {
	w.Helper()
	if n, err := w.count(w.Context(), "7"); err != nil || n != want {
		w.Errorf("the effect was committed %d times, %v; want %d", n, err, want)
	}
}

// A commit whose answer is lost is sent again with its token before the key is claimed again: what it did is found, and
// it is done once, also if it comes late (rule 16).
func TestACommitWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]spoil{"before": before, "after": after, "throttled": throttled("ThrottlingException"), "still running": throttled("TransactionInProgressException")} {
		w := newWorld(t)
		w.spoil(nil, how)
		if res, err := w.transact(nil); err != nil || res.Value != "done" {
			t.Errorf("%s: %v, %q, %v", name, res.Outcome, res.Value, err)
		}
		w.counted(1)
	}
	w := newWorld(t)
	var late func() (*http.Response, error)
	w.spoil(nil, func(send func() (*http.Response, error)) (*http.Response, error) { late = send; return nil, errLine })
	if _, err := w.transact(nil); err != nil {
		t.Error(err)
	}
	res, err := late()
	noErr(t, err)
	noErr(t, res.Body.Close())
	w.counted(1)
	if res, err := w.transact(nil); err != nil || res.Outcome != everonce.Replayed {
		t.Errorf("a duplicate: %v, %v", res.Outcome, err)
	}
}

// While the outcome of a commit is unknown, the call says so, and so does the next one.
func TestACommitThatNobodyKnowsOf(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cut := []spoil{nil, after}
	for range 100 {
		cut = append(cut, before)
	}
	w.spoil(cut...)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	h, claim, err := w.store.Begin(ctx, driver.BeginRequest{Claim: new(claimOf("7"))})
	noErr(t, err)
	_, err = h.Commit(ctx, driver.CommitRequest{Complete: &driver.CompleteRequest{
		ID: claim.Record.ID, Token: claim.Record.Token, Nonce: claim.Record.Nonce, Lifetime: life, Result: driver.SavedResult{Kind: driver.ResultElided},
	}})
	if w.store.ClassifyTx(err) != driver.TxErrorCommitLost {
		t.Errorf("Commit: %v, want that its answer was lost", err)
	}
	_, _, err = w.store.Begin(ctx, driver.BeginRequest{Claim: new(claimOf("7"))})
	isFailure(t, "Begin", err)
	w.spoil()
	if _, res, err := w.store.Begin(t.Context(), driver.BeginRequest{Claim: new(claimOf("7"))}); err != nil || res.Decision != driver.DecideReplay {
		t.Errorf("Begin, when the server answers: %v, %v; want replay", res.Decision, err)
	}
}

// The first call for the key finds the effect of a lost commit, and not a missing record: a claim, also of a batch or
// in the caller's own transaction, or a bare look (rule 16).
func TestWhoeverLooksResolvesALostCommit(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(w *world, req driver.ClaimRequest) (found bool, err error){
		"a batch": func(w *world, req driver.ClaimRequest) (bool, error) {
			h, _, err := w.store.Begin(w.Context(), driver.BeginRequest{})
			noErr(w, err)
			res, err := h.Claim(w.Context(), req)
			return res.Decision == driver.DecideReplay, err
		},
		"the caller's transaction": func(w *world, req driver.ClaimRequest) (bool, error) {
			h, err := w.store.Join(w.Context(), w.store.NewTransaction())
			noErr(w, err)
			res, err := h.Claim(w.Context(), req)
			return res.Decision == driver.DecideReplay, err
		},
		"a look": func(w *world, req driver.ClaimRequest) (bool, error) {
			res, err := w.store.Get(w.Context(), driver.GetRequest{ID: req.ID})
			return res.Found, err
		},
	} {
		w := newWorld(t)
		h, claim, err := w.store.Begin(t.Context(), driver.BeginRequest{Claim: new(claimOf("7"))})
		noErr(t, err)
		w.spoil(before)
		_, err = h.Commit(t.Context(), driver.CommitRequest{Complete: &driver.CompleteRequest{
			ID: claim.Record.ID, Token: claim.Record.Token, Nonce: claim.Record.Nonce, Lifetime: life, Result: driver.SavedResult{Kind: driver.ResultElided},
		}})
		if w.store.ClassifyTx(err) != driver.TxErrorCommitLost {
			t.Errorf("Commit: %v, want that its answer was lost", err)
		}
		if found, err := look(w, claimOf("7")); err != nil || !found {
			t.Errorf("%s: found is %v, %v", name, found, err)
		}
	}
}

// The reasons of a canceled transaction are told apart by the items: the application's condition is its own error, and
// leaves nothing; another transaction at the same items, or too many of them, is a reason to run it again.
func TestWhyATransactionIsCanceled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	never := types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
		TableName: &w.table, Key: w.key("stock"), ConditionExpression: aws.String("attribute_exists(pk)"),
	}}
	res, err := w.transact(nil, never)
	var condition *dynamostore.ConditionError
	if !errors.As(err, &condition) || condition.Index != 1 || res.Outcome != everonce.Failed || errors.Is(err, everonce.ErrConflict) {
		t.Errorf("a condition that is false: %v, %v; want failed, with the condition of item 1", res.Outcome, err)
	}
	w.counted(0)
	for _, code := range []string{"TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError"} {
		w := newWorld(t)
		w.spoil(nil, refusing(http.StatusBadRequest, `{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","Message":"canceled",
			"CancellationReasons":[{"Code":"None"},{"Code":"`+code+`","Message":"ongoing"}]}`))
		if res, err := w.transact(nil); err != nil || res.Outcome != everonce.Executed {
			t.Errorf("after %s: %v, %v; want executed", code, res.Outcome, err)
		}
		w.counted(1)
	}
	_, err = w.transact(nil)
	noErr(t, err)
	if res, err := w.transact(nil, never); err != nil || res.Outcome != everonce.Replayed {
		t.Errorf("a duplicate: %v, %v; want replayed, whatever the condition", res.Outcome, err)
	}
}

// An attempt's step commits with its effect though a renewal has come in between, which changes the record too.
func TestAStepCommitsAcrossARenewal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rec := claimed(t, w.store, "7")
	h, _, err := w.store.Begin(t.Context(), driver.BeginRequest{})
	noErr(t, err)
	noErr(t, w.apply(t.Context(), h.Tx(), "7"))
	renews := func(send func() (*http.Response, error)) (*http.Response, error) {
		noErr(t, writes[0].do(t.Context(), newStore(t, w.table), rec))
		return send()
	}
	w.spoil(nil, renews)
	step := driver.StepRecord{Name: "charge", State: driver.StepDone, Attempt: 1, Result: driver.SavedResult{Kind: driver.ResultElided}}
	_, err = h.Commit(t.Context(), driver.CommitRequest{SaveStep: &driver.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Step: step}})
	noErr(t, err)
	w.counted(1)
}

// A transaction takes what DynamoDB takes, with the record.
func TestATransactionIsFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tx := w.store.NewTransaction()
	for i := range dynamostore.MaxItems {
		noErr(t, w.apply(t.Context(), tx, string(rune('A'+i))))
	}
	if err := w.apply(t.Context(), tx, "more"); !errors.Is(err, driver.ErrInvalidArgument) {
		t.Errorf("an item too many: %v", err)
	}
	_, err := everonce.DoTx(t.Context(), tx, w.tx, everonce.Key{Scope: "orders", ID: "7"}, func(context.Context) (string, error) { return "done", nil })
	noErr(t, err)
	noErr(t, tx.Commit(t.Context()))
	if err := tx.Commit(t.Context()); err == nil {
		t.Error("a second commit is accepted")
	}
	if n, err := w.count(t.Context(), "A"); err != nil || n != 1 {
		t.Errorf("the first effect was committed %d times, %v", n, err)
	}
	for name, tx := range map[string]*dynamostore.Tx{"nil": nil, "one that has ended": tx, "another store's": newTxStore(t, w.table).NewTransaction()} {
		if _, err := w.store.Join(t.Context(), tx); !errors.Is(err, driver.ErrInvalidArgument) && !errors.Is(err, driver.ErrOtherStore) {
			t.Errorf("Join of %s: %v", name, err)
		}
	}
}

// A batch that is too large for a transaction of DynamoDB is committed in parts.
func TestABatchIsTooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	items := make([]everonce.BatchItem, 60) // with an item of the application for each
	for i := range items {
		items[i].Key = everonce.Key{Scope: "orders", ID: fmt.Sprint(i)}
	}
	all, err := everonce.TransactBatch(t.Context(), w.tx, items, everonce.EachItem(func(ctx context.Context, tx *dynamostore.Tx, i int) (int, error) {
		return i, w.apply(ctx, tx, items[i].Key.ID)
	}))
	noErr(t, err)
	for i, res := range all {
		n, err := w.count(t.Context(), items[i].Key.ID)
		if res.Err != nil || res.Outcome != everonce.Executed || n != 1 || err != nil {
			t.Errorf("item %d: %v, %v; %d effects, %v", i, res.Outcome, res.Err, n, err)
		}
	}
}
