package mongostore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/mongostore"
)

// The class of a commit's error: lost where it may have committed, because running the work again could do it twice.
func TestWhatACommitsErrorSays(t *testing.T) {
	t.Parallel()
	txs := mongostore.Over(nil)
	for what, c := range map[string]struct {
		err  error
		lost bool
	}{
		"unknown, by its label":  {mongo.CommandError{Labels: []string{"UnknownTransactionCommitResult"}}, true},
		"the connection is gone": {mongo.CommandError{Labels: []string{"NetworkError"}}, true},
		"the time is over":       {fmt.Errorf("commit: %w", context.DeadlineExceeded), true},
		"the caller has gone":    {fmt.Errorf("commit: %w", context.Canceled), true},
		"transient, so not kept": {mongo.CommandError{Code: 251, Labels: []string{"TransientTransactionError"}}, false},
		"refused":                {mongo.CommandError{Code: 13}, false},
	} {
		lost, told := mongostore.Lost(c.err)
		if lost != c.lost {
			t.Errorf("%s: lost is %v", what, lost)
		}
		if class := txs.ClassifyTx(told); lost && class != driver.TxErrorCommitLost {
			t.Errorf("%s: Commit's error has class %v", what, class)
		}
	}
	taken := mongo.CommandError{Code: 11000, Message: "E11000 duplicate key error collection: shop.everonce index: _id_ dup key: { _id: 1 }"}
	another := mongo.CommandError{Code: 11000, Message: "E11000 duplicate key error collection: shop.orders index: number dup key: { number: 1 }"}
	for what, c := range map[string]struct {
		err  error
		want bool
	}{"a write conflict": {mongo.CommandError{Code: 112}, true}, "the record exists": {taken, true}, "the application's own duplicate": {another, false}, "another error": {errors.New("no"), false}} {
		if got := mongostore.Conflicts(c.err); got != c.want {
			t.Errorf("%s: a conflict is %v", what, got)
		}
	}
}

// A transaction reads a snapshot of the primary's, and is committed by a majority, in the journal, whatever the client
// is set to; and is not used after its time.
func TestWhatATransactionIsBegunWith(t *testing.T) {
	t.Parallel()
	o := mongostore.TxOptions()
	if o.WriteConcern == nil || o.WriteConcern.W != "majority" || o.WriteConcern.Journal == nil || !*o.WriteConcern.Journal {
		t.Errorf("the write concern is %+v", o.WriteConcern)
	}
	if o.ReadConcern == nil || o.ReadConcern.Level != "snapshot" || o.ReadPreference == nil || o.ReadPreference.Mode() != readpref.PrimaryMode {
		t.Errorf("the read concern is %+v, the preference %v", o.ReadConcern, o.ReadPreference)
	}
	s, err := mongostore.New(t.Context(), database(t), &mongostore.Options{Collection: newCollection(t)})
	noErr(t, err)
	h, _, err := mongostore.Over(s).Begin(t.Context(), driver.BeginRequest{Timeout: time.Nanosecond})
	noErr(t, err)
	if _, err := h.Get(t.Context(), driver.GetRequest{ID: everonce.Key{Scope: "orders", ID: "7"}.RecordID()}); !errors.Is(err, driver.ErrTxTooLong) {
		t.Errorf("a statement after the transaction's time: %v, want ErrTxTooLong", err)
	}
	if _, err := h.Commit(t.Context(), driver.CommitRequest{}); !errors.Is(err, driver.ErrTxTooLong) {
		t.Errorf("a commit after the transaction's time: %v, want ErrTxTooLong", err)
	}
	if h.Tx().TransactionRunning() {
		t.Error("the transaction is still open")
	}
}
