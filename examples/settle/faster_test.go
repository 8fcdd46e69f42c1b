package main

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// TestSettleAllLeavesWhatIsNotItsOwn: what an operator settles while the list is worked through is neither counted nor
// an error, and a step is not settled by the ledger of the operation.
func TestSettleAllLeavesWhatIsNotItsOwn(t *testing.T) {
	ctx, file := t.Context(), filepath.Join(t.TempDir(), "shop.db")
	unknowns(t, file)
	store, err := sqlitestore.Open(ctx, file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() //nolint:errcheck // the file is temporary
	done := everonce.Settlement{Verdict: everonce.SettleDone, Encoded: []byte(`"by hand"`)}
	faster := &operator{settle: func(id everonce.RecordID) error { return everonce.Settle(ctx, store, id, done) }}
	receiver, err := everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{Observer: faster})
	if err != nil {
		t.Fatal(err)
	}
	faster.receiver = receiver

	if n, err := settleAll(ctx, store, receiver, "shop-1", nil, time.Hour); n != 0 || err != nil {
		t.Errorf("settled %d (%v) that may still arrive, want none", n, err)
	}
	if n, err := settleAll(ctx, store, receiver, "shop-1", nil, 0); n != 1 || err != nil {
		t.Errorf("settled %d (%v), want 1: another was settled by the operator, and the third is a step's", n, err)
	}
	for order, want := range map[string]error{"order-3": everonce.ErrOutcomeUnknown, "order-1": nil, "order-2": nil} {
		_, err := everonce.Lookup[string](ctx, receiver, everonce.Key{Scope: everonce.ScopeOf("shop-1", "charge"), ID: order})
		if errors.Is(err, everonce.ErrReleased) {
			err = nil
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", order, err, want)
		}
	}
}

// TestSettleAllPassesOverWhatCanNotBeRead: a record that is listed by what can be read of it does not keep the others
// unknown.
func TestSettleAllPassesOverWhatCanNotBeRead(t *testing.T) {
	for what, set := range map[string]string{"state": "state = 9", "nonce": "nonce = x'00'", "format": "format = format + 1"} {
		ctx, file := t.Context(), filepath.Join(t.TempDir(), "shop.db")
		unknowns(t, file)
		store, err := sqlitestore.Open(ctx, file, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close() //nolint:errcheck // the file is temporary
		if _, err := store.DB().ExecContext(ctx, "UPDATE everonce_record SET "+set+" WHERE name = 'order-1'"); err != nil {
			t.Fatal(err)
		}
		receiver, err := everonce.NewReceiver(store, everonce.Refuse, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := settleAll(ctx, store, receiver, everonce.ScopeOf("shop-1", "charge"), nil, 0); n != 1 || err != nil {
			t.Errorf("%s: settled %d (%v), want 1", what, n, err)
		}
	}
}

// operator settles the first operation that somebody begins to settle, before that somebody does.
type operator struct {
	receiver *everonce.Receiver
	settle   func(everonce.RecordID) error
	busy     bool
}

func (o *operator) Start(ctx context.Context, op everonce.Op) context.Context {
	if !o.busy && op.Kind == "settle" {
		o.busy = true
		for _, order := range []string{"order-1", "order-2"} {
			id := o.receiver.RecordID(everonce.Key{Scope: op.Scope, ID: order})
			if id.Short() == op.KeyHash {
				if err := o.settle(id); err != nil {
					panic(err)
				}
			}
		}
	}
	return ctx
}

func (*operator) End(context.Context, everonce.Observation) {}
