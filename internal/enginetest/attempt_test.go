package enginetest

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// The keys were computed by another implementation: they must never change, for they are what other
// systems recognise a repeated call by.
func TestDownstreamKeyVectors(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	key := everonce.Key{Scope: everonce.ScopeOf("tenant-1", "POST /charges"), ID: "order-7"}
	for name, c := range map[string]struct {
		opts *everonce.Options
		want map[string]string
	}{
		"without a secret": {nil, map[string]string{
			"charge": "dcfb15515c0de0f2294b0a41b02797d9",
			"":       "061a41f6653c642a196e82be845d1c04",
		}},
		"with a secret": {&everonce.Options{IdentitySecret: secret}, map[string]string{
			"charge": "7285695790e6632685607a66487d39ad",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, x := newReceiver(t, memstore.New(nil), everonce.Reexecute, c.opts), newTxReceiver(t, newMapStore(), c.opts)
			for n := range 3 { // the same in every attempt
				do(t, r, key, func(_ context.Context, a *everonce.Attempt) (string, error) {
					checkEqual(t, "Number", a.Number(), n+1)
					for name, want := range c.want {
						checkEqual(t, "downstream key "+name, a.DownstreamKey(name), want)
						checkEqual(t, "of the receiver", r.DownstreamKey(key, name), want)
						checkEqual(t, "of a transactional one", x.DownstreamKey(key, name), want)
						checkEqual(t, "its record ID", x.RecordID(key), r.RecordID(key))
					}
					return "", errWork
				}, everonce.Failed, errWork)
			}
		})
	}
}

func TestDownstreamKeysDiffer(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	seen := map[string]bool{}
	for _, id := range []string{"a", "b"} {
		do(t, r, keyOf(id), func(_ context.Context, a *everonce.Attempt) (string, error) {
			for _, name := range []string{"", "charge", "mail", "charge2"} {
				k := a.DownstreamKey(name)
				if len(k) != 32 || seen[k] {
					t.Errorf("%q came twice, or has not 32 digits", k)
				}
				seen[k] = true
			}
			return "", nil
		}, everonce.Executed, nil)
	}
}

func TestAttemptReturnsThePreviousAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		r := newReceiver(t, s, everonce.Reexecute, &everonce.Options{Owner: "host:1"})
		key := keyOf("x")
		first := time.Now().UTC()
		var tokens []driver.Token
		do(t, r, key, func(_ context.Context, a *everonce.Attempt) (string, error) {
			tokens = append(tokens, a.Token())
			checkEqual(t, "Previous of the first", a.Previous(), driver.Previous{})
			checkEqual(t, "Key", a.Key(), key)
			return "", everonce.NotDone(errWork)
		}, everonce.Failed, errWork)
		time.Sleep(time.Second)
		second := diedIn(t, s, key, time.Minute)
		tokens = append(tokens, second.Token)
		time.Sleep(time.Hour)
		do(t, r, key, func(_ context.Context, a *everonce.Attempt) (string, error) {
			tokens = append(tokens, a.Token())
			checkEqual(t, "Number", a.Number(), 3)
			p := a.Previous()
			checkEqual(t, "State", p.State, driver.StateAbandoned)
			checkEqual(t, "Owner", p.Owner, "dead:1")
			checkEqual(t, "ClaimedAt", p.ClaimedAt.Equal(first.Add(time.Second)), true)
			return "v", nil
		}, everonce.Executed, nil)
		if tokens[0] <= 0 || tokens[1] <= tokens[0] || tokens[2] <= tokens[1] {
			t.Errorf("tokens %v do not grow", tokens)
		}
	})
}

func TestAttemptFrom(t *testing.T) {
	if a, ok := everonce.AttemptFrom(context.Background()); ok || a != nil {
		t.Errorf("an attempt from nowhere: %v", a)
	}
	s := newMapStore()
	r, x := newReceiver(t, s, everonce.Refuse, nil), newTxReceiver(t, s, nil)
	other, y := newReceiver(t, memstore.New(nil), everonce.Refuse, nil), newTxReceiver(t, newMapStore(), nil)
	want := func(ctx context.Context, key everonce.Key) {
		t.Helper()
		a, ok := everonce.AttemptFrom(ctx)
		if !ok {
			t.Fatal("no attempt")
		}
		checkEqual(t, "its key", a.Key(), key)
		checkEqual(t, "its number", a.Number(), 1)
		checkEqual(t, "Lost", a.Lost(), false)
	}
	type valueKey struct{}
	do(t, r, keyOf("outer"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		want(ctx, keyOf("outer"))
		want(context.WithValue(ctx, valueKey{}, 1), keyOf("outer"))
		_, err := everonce.Step(ctx, a, "s", func(ctx context.Context) (int, error) {
			want(ctx, keyOf("outer"))
			return 0, nil
		})
		checkErr(t, err, nil)
		_, err = everonce.StepTx(ctx, a, x, "tx", func(ctx context.Context, _ *mapTx) (int, error) {
			want(ctx, keyOf("outer"))
			return 0, nil
		})
		checkErr(t, err, nil)
		var downstream []string
		none := func(ctx context.Context) {
			if inner, ok := everonce.AttemptFrom(ctx); ok {
				downstream = append(downstream, inner.DownstreamKey("event"))
			}
		}
		_, err = everonce.TransactBatch(ctx, y, items("a", "b"), everonce.EachItem(func(ctx context.Context, _ *mapTx, _ int) (int, error) {
			none(ctx)
			return 0, nil
		}))
		checkErr(t, err, nil)
		_, err = everonce.TransactBatch(ctx, y, items("c"), everonce.EachItem(func(ctx context.Context, _ *mapTx, _ int) (int, error) {
			none(ctx)
			return 0, nil
		}))
		checkErr(t, err, nil)
		checkErr(t, y.InTx(ctx, func(ctx context.Context, _ *mapTx) error {
			none(ctx)
			return nil
		}), nil)
		checkEqual(t, "keys of the outer operation, in separate transactions", len(downstream), 0)
		_, err = everonce.Do(ctx, other, keyOf("inner"), func(ctx context.Context, _ *everonce.Attempt) (string, error) {
			want(ctx, keyOf("inner"))
			return "", nil
		})
		checkErr(t, err, nil)
		return "", nil
	}, everonce.Executed, nil)
	_, err := everonce.Transact(context.Background(), x, keyOf("transact"), func(ctx context.Context, tx *mapTx) (string, error) {
		want(ctx, keyOf("transact"))
		a, _ := everonce.AttemptFrom(ctx)
		checkErr(t, a.Detached().Err(), nil)
		checkEqual(t, "steps", len(a.Steps()), 0)
		_, err := everonce.DoTx(ctx, tx, x, keyOf("inner"), func(ctx context.Context) (string, error) {
			want(ctx, keyOf("inner"))
			return "", nil
		})
		return "", err
	})
	checkErr(t, err, nil)
}

// The downstream key of an operation is the same in every mode.
func TestDownstreamKeyInATransaction(t *testing.T) {
	s := newMapStore()
	opts := &everonce.Options{IdentitySecret: bytes.Repeat([]byte("s"), 16)}
	x := newTxReceiver(t, s, opts)
	var inTx, guarded string
	_, err := everonce.Transact(context.Background(), x, keyOf("x"), func(ctx context.Context, _ *mapTx) (string, error) {
		a, _ := everonce.AttemptFrom(ctx)
		inTx = a.DownstreamKey("event")
		return "", nil
	})
	checkErr(t, err, nil)
	do(t, newReceiver(t, memstore.New(nil), everonce.Refuse, opts), keyOf("x"), func(_ context.Context, a *everonce.Attempt) (string, error) {
		guarded = a.DownstreamKey("event")
		return "", nil
	}, everonce.Executed, nil)
	checkEqual(t, "in a transaction", inTx, guarded)
}

func TestNesting(t *testing.T) {
	ctx := context.Background()
	s := newMapStore()
	r, x := newReceiver(t, s, everonce.Refuse, nil), newTxReceiver(t, s, nil)
	elsewhere := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	nested := func(err error, want error) {
		t.Helper()
		checkErr(t, err, want)
		if want != nil {
			checkEqual(t, "outcome", asError(t, err).Outcome, everonce.Invalid)
		}
	}
	okTx := func(context.Context, *mapTx) (string, error) { return "", nil }
	ok := func(context.Context) (string, error) { return "", nil }

	do(t, r, keyOf("outer"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		_, err := everonce.Do(ctx, r, keyOf("outer"), never(t))
		nested(err, everonce.ErrNested)
		_, err = everonce.Do(ctx, r, keyOf("outer"), never(t), everonce.WithWait(time.Hour)) // it could only wait for itself
		nested(err, everonce.ErrNested)
		_, err = everonce.Transact(ctx, x, keyOf("outer"), okTx)
		nested(err, everonce.ErrNested)
		_, err = everonce.DoTx(ctx, s.begin(), x, keyOf("outer"), ok)
		nested(err, everonce.ErrNested)
		s.abort()
		_, err = everonce.Do(ctx, r, keyOf("another"), returns("", nil))
		nested(err, nil)
		_, err = everonce.Do(ctx, elsewhere, keyOf("outer"), returns("", nil)) // the same key in another store
		nested(err, nil)
		_, err = everonce.Step(ctx, a, "s", func(ctx context.Context) (string, error) {
			_, err := everonce.Do(ctx, r, keyOf("outer"), never(t))
			nested(err, everonce.ErrNested)
			return "", nil
		})
		checkErr(t, err, nil)
		res, err := everonce.Lookup[string](ctx, r, keyOf("outer")) // to look is no claim
		checkOutcome(t, res, err, everonce.InProgress, everonce.ErrInProgress)
		return "", nil
	}, everonce.Executed, nil)

	// Inside a transaction that everonce began, on the same store.
	inside := func(ctx context.Context, tx *mapTx) {
		_, err := everonce.Do(ctx, r, keyOf("guarded"), never(t))
		nested(err, everonce.ErrInTransaction)
		_, err = everonce.Transact(ctx, x, keyOf("second"), okTx)
		nested(err, everonce.ErrInTransaction)
		nested(x.InTx(ctx, func(context.Context, *mapTx) error { return errors.New("must not run") }), everonce.ErrInTransaction)
		nested(r.Settle(ctx, keyOf("y"), everonce.Settlement{Verdict: everonce.SettleDone}), everonce.ErrInTransaction)
		nested(everonce.Settle(ctx, s, keyOf("y").RecordID(), everonce.Settlement{Verdict: everonce.SettleDone}), everonce.ErrInTransaction)
		_, err = everonce.Lookup[string](ctx, r, keyOf("guarded"))
		nested(err, everonce.ErrInTransaction)
		mine := s.begin()
		_, err = everonce.DoTx(ctx, mine, x, keyOf("other tx"), ok)
		nested(err, everonce.ErrInTransaction)
		mine.Rollback()
		if a, found := everonce.AttemptFrom(ctx); found {
			_, err = everonce.Step(ctx, a, "s", ok)
			nested(err, everonce.ErrInTransaction)
			_, err = everonce.Step(context.Background(), a, "s", ok) // whatever the context says
			nested(err, everonce.ErrInTransaction)
			_, err = everonce.StepTx(ctx, a, x, "s", okTx)
			nested(err, everonce.ErrInTransaction)
		}
		_, err = everonce.Do(ctx, elsewhere, keyOf(driver.NewNonce().String()), returns("", nil)) // another store
		nested(err, nil)
	}
	_, err := everonce.Transact(ctx, x, keyOf("tx"), func(ctx context.Context, tx *mapTx) (string, error) {
		_, err := everonce.DoTx(ctx, tx, x, keyOf("tx"), ok)
		nested(err, everonce.ErrNested)
		inside(ctx, tx)
		return "", nil
	})
	checkErr(t, err, nil)
	checkErr(t, x.InTx(ctx, func(ctx context.Context, tx *mapTx) error { inside(ctx, tx); return nil }), nil)
	tx := s.begin()
	_, err = everonce.DoTx(ctx, tx, x, keyOf("joined"), func(ctx context.Context) (string, error) {
		_, err := everonce.DoTx(ctx, tx, x, keyOf("joined"), ok)
		nested(err, everonce.ErrNested)
		inside(ctx, tx)
		return "", nil
	})
	checkErr(t, err, nil)
	checkErr(t, tx.Commit(), nil)
	do(t, r, keyOf("steps"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		_, err := everonce.StepTx(ctx, a, x, "s", func(ctx context.Context, tx *mapTx) (string, error) {
			_, err := everonce.Step(ctx, a, "other", ok)
			nested(err, everonce.ErrInTransaction)
			_, err = everonce.Do(ctx, r, keyOf("guarded"), never(t))
			nested(err, everonce.ErrInTransaction)
			return "", nil
		})
		return "", err
	}, everonce.Executed, nil)
	s.checkIdle(t)
}
