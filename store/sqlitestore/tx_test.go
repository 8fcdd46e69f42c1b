package sqlitestore_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/sqlitestore"
)

// bank is a store with accounts beside it.
type bank struct {
	*sqlitestore.Store
	t    *testing.T
	path string
	tr   *everonce.TxReceiver[*sql.Tx]
}

func newBank(t *testing.T, opts *everonce.Options) *bank {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bank.db")
	b := &bank{Store: open(t, path, nil), t: t, path: path}
	if _, err := b.DB().Exec(`CREATE TABLE account (name TEXT PRIMARY KEY, balance INTEGER NOT NULL CHECK (balance >= 0)); INSERT INTO account VALUES ('ann', 100)`); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.tr, err = everonce.NewTxReceiver[*sql.Tx](b.Store, opts); err != nil {
		t.Fatal(err)
	}
	// The first call binds the file to the identity secret, which is a write.
	if _, err := everonce.Transact(t.Context(), b.tr, order("first"), charge(0)); err != nil {
		t.Fatal(err)
	}
	return b
}

func charge(amount int) func(ctx context.Context, tx *sql.Tx) (int, error) {
	return func(ctx context.Context, tx *sql.Tx) (left int, err error) {
		err = tx.QueryRowContext(ctx, "UPDATE account SET balance = balance - ? WHERE name = 'ann' RETURNING balance", amount).Scan(&left)
		return left, err
	}
}

func (b *bank) balance(want int) {
	b.t.Helper()
	var got int
	if err := b.DB().QueryRow("SELECT balance FROM account WHERE name = 'ann'").Scan(&got); err != nil {
		b.t.Fatal(err)
	}
	if got != want {
		b.t.Errorf("the balance is %d, want %d", got, want)
	}
}

func order(id string) everonce.Key { return everonce.Key{Scope: "orders", ID: id} }

func TestTransactChargesOnce(t *testing.T) {
	for _, way := range []struct {
		name string
		opts []everonce.CallOption
	}{{"claim first", nil}, {"optimistic", []everonce.CallOption{everonce.Optimistic()}}} {
		t.Run(way.name, func(t *testing.T) {
			b := newBank(t, nil)
			res, err := everonce.Transact(t.Context(), b.tr, order("7"), charge(30), way.opts...)
			if err != nil || res.Outcome != everonce.Executed || res.Value != 70 {
				t.Fatalf("%+v, %v", res, err)
			}
			again, err := everonce.Transact(t.Context(), b.tr, order("7"), charge(30), way.opts...)
			if err != nil || again.Outcome != everonce.Replayed || again.Value != 70 {
				t.Fatalf("the duplicate: %+v, %v", again, err)
			}
			b.balance(70)
		})
	}
}

func TestTransactRollsBackWhatFailed(t *testing.T) {
	b := newBank(t, nil)
	if _, err := everonce.Transact(t.Context(), b.tr, order("8"), charge(101)); err == nil {
		t.Fatal("a violated CHECK is no error")
	}
	if got, err := b.Get(t.Context(), driver.GetRequest{ID: order("8").RecordID()}); err != nil || got.Found {
		t.Errorf("what was rolled back has left a record: %+v, %v", got, err)
	}
	res, err := everonce.Transact(t.Context(), b.tr, order("8"), charge(100))
	if err != nil || res.Outcome != everonce.Executed {
		t.Errorf("tried again: %+v, %v", res, err)
	}
	b.balance(0)
}

func TestTransactSavesAPermanentFailure(t *testing.T) {
	b := newBank(t, nil)
	refuse := func(ctx context.Context, tx *sql.Tx) (int, error) {
		if _, err := charge(30)(ctx, tx); err != nil {
			return 0, err
		}
		return 0, everonce.Permanent("card_declined", errors.New("no"), nil)
	}
	for range 2 {
		res, err := everonce.Transact(t.Context(), b.tr, order("9"), refuse)
		var p *everonce.PermanentError
		if !errors.As(err, &p) || p.Code != "card_declined" || res.Outcome != everonce.Rejected {
			t.Errorf("%+v, %v", res, err)
		}
	}
	b.balance(100)
}

func TestManyDuplicatesChargeOnce(t *testing.T) {
	b := newBank(t, &everonce.Options{Wait: 20 * time.Second})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			res, err := everonce.Transact(context.Background(), b.tr, order("10"), charge(30))
			if err != nil || res.Value != 70 {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
	wg.Wait()
	b.balance(70)
}

// A duplicate of a running transaction fails fast: it does not wait for the writer, in any mode.
func TestDuplicatesOfATransactionDoNotWait(t *testing.T) {
	b := newBank(t, nil)
	guarded, err := everonce.NewReceiver(b.Store, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	res, err := everonce.Transact(ctx, b.tr, order("11"), func(context.Context, *sql.Tx) (int, error) {
		// From outside of the transaction's context, as another request would come.
		_, err := everonce.Transact(ctx, b.tr, order("11"), charge(30))
		if !errors.Is(err, everonce.ErrInProgress) {
			t.Errorf("Transact: %v, want in progress", err)
		}
		_, err = everonce.Do(ctx, guarded, order("11"), func(context.Context, *everonce.Attempt) (int, error) {
			t.Error("the duplicate ran")
			return 0, nil
		})
		if !errors.Is(err, everonce.ErrInProgress) {
			t.Errorf("Do: %v, want in progress", err)
		}
		return 1, nil
	})
	if err != nil || res.Outcome != everonce.Executed {
		t.Fatalf("%+v, %v", res, err)
	}
}

// A replay needs no writer, so that it is answered while a transaction has it.
func TestReplaysDoNotWaitForATransaction(t *testing.T) {
	b := newBank(t, nil)
	guarded, err := everonce.NewReceiver(b.Store, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	done := func(context.Context, *everonce.Attempt) (int, error) { return 5, nil }
	if _, err := everonce.Do(ctx, guarded, order("12"), done); err != nil {
		t.Fatal(err)
	}
	tx, err := b.DB().BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // it has written nothing
	res, err := everonce.Do(ctx, guarded, order("12"), done)
	if err != nil || res.Outcome != everonce.Replayed || res.Value != 5 {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestATransactionOutlivesItsRequest(t *testing.T) {
	b := newBank(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	res, err := everonce.Transact(ctx, b.tr, order("13"), func(_ context.Context, tx *sql.Tx) (int, error) {
		left, err := charge(30)(context.Background(), tx)
		cancel() // the client has gone
		return left, err
	})
	if err != nil || res.Value != 70 {
		t.Fatalf("%+v, %v", res, err)
	}
	b.balance(70)
}

func TestATransactionIsBoundByTheShortestLease(t *testing.T) {
	b := newBank(t, nil)
	ctx := t.Context()
	guarded, err := everonce.NewReceiver(b.Store, everonce.Refuse, &everonce.Options{Lease: 450 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_, err = everonce.Do(ctx, guarded, order("14"), func(context.Context, *everonce.Attempt) (int, error) { return 0, nil })
	if err != nil {
		t.Fatal(err)
	}
	res, err := everonce.Transact(ctx, b.tr, order("15"), func(_ context.Context, tx *sql.Tx) (int, error) {
		left, err := charge(30)(context.Background(), tx)
		if err != nil {
			t.Error(err)
		}
		// A statement that never ends: it is interrupted when the time is up.
		var n int
		err = tx.QueryRow("WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c").Scan(&n)
		if err == nil {
			t.Error("an endless statement has ended")
		}
		return left, nil // and the work does not even notice
	})
	if !errors.Is(err, driver.ErrTxTooLong) || res.Outcome != everonce.Failed {
		t.Errorf("%+v, %v, want ErrTxTooLong", res, err)
	}
	b.balance(100)
	if res, err := everonce.Transact(ctx, b.tr, order("15"), charge(30)); err != nil || res.Outcome != everonce.Executed {
		t.Errorf("the key afterwards: %+v, %v", res, err)
	}
}

func TestWorkCanNotCommitWhatItWasLent(t *testing.T) {
	b := newBank(t, nil)
	_, err := everonce.Transact(t.Context(), b.tr, order("16"), func(ctx context.Context, tx *sql.Tx) (int, error) {
		left, err := charge(30)(ctx, tx)
		if err != nil {
			return 0, err
		}
		if err := tx.Commit(); err == nil {
			t.Error("the work has committed its effect without the record")
		}
		return left, nil
	})
	if err == nil {
		t.Error("the operation is said to be done")
	}
	b.balance(100)
}

// SQLite itself may end a transaction, and would commit later statements one by one.
func TestATransactionThatSQLiteEndedCommitsNothing(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	x := "x_" + rand.Text() // a function of the connections that are opened from now on, by which the insert tells that it has begun
	sqlite.MustRegisterScalarFunction(x, 0, func(*sqlite.FunctionContext, []sqldriver.Value) (sqldriver.Value, error) {
		interrupt()
		return "x", nil
	})
	b := newBank(t, nil)
	tx, err := b.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // it is over
	if _, err := charge(10)(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	_, err = tx.ExecContext(ctx, "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) INSERT INTO account SELECT "+x+"() || n, n FROM c")
	if err == nil {
		t.Fatal("an endless insert has ended")
	}
	if _, err := tx.Exec("INSERT INTO account VALUES ('bob', 1)"); err == nil {
		t.Error("a statement was run after the transaction had ended")
	}
	if _, err := everonce.DoTx(t.Context(), tx, b.tr, order("17"), func(context.Context) (int, error) { return 1, nil }); !errors.Is(err, driver.ErrTxDoomed) {
		t.Errorf("DoTx in it: %v, want ErrTxDoomed", err)
	}
	if err := tx.Commit(); err == nil {
		t.Error("it was committed")
	}
	var n int
	if err := b.DB().QueryRow("SELECT count(*) FROM account").Scan(&n); err != nil || n != 1 {
		t.Errorf("there are %d accounts, %v, want 1", n, err)
	}
	b.balance(100)
}

// A conflict clause may end it too, by an error that usually leaves a transaction alive.
func TestAConflictClauseThatRollsBack(t *testing.T) {
	b := newBank(t, nil)
	_, err := everonce.Transact(t.Context(), b.tr, order("18"), func(ctx context.Context, tx *sql.Tx) (int, error) {
		left, err := charge(10)(ctx, tx)
		if err != nil {
			return 0, err
		}
		if _, err := tx.ExecContext(ctx, "INSERT OR ROLLBACK INTO account VALUES ('ann', 1)"); err == nil {
			t.Error("a duplicate account")
		}
		return left, nil // the work ignores it
	})
	if err == nil {
		t.Error("the operation is said to be done")
	}
	b.balance(100)
	if got, err := b.Get(t.Context(), driver.GetRequest{ID: order("18").RecordID()}); err != nil || got.Found {
		t.Errorf("a record without its effect: %+v, %v", got, err)
	}
}

// handles are the handles on which an application can begin its own transaction.
func handles(b *bank) map[string]*sql.DB {
	other, err := sql.Open("sqlite", "file:"+b.path+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { other.Close() })
	return map[string]*sql.DB{"Store.DB": b.DB(), "a separate handle": other}
}

func TestDoTxCommitsWithTheCaller(t *testing.T) {
	b := newBank(t, nil)
	for name, db := range handles(b) {
		t.Run(name, func(t *testing.T) {
			b := &bank{Store: b.Store, t: t, tr: b.tr}
			if _, err := b.DB().Exec("UPDATE account SET balance = 100"); err != nil {
				t.Fatal(err)
			}
			ctx := t.Context()
			run := func(id string) (*sql.Tx, everonce.Result[int], error) {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tx.Rollback() })
				res, err := everonce.DoTx(ctx, tx, b.tr, order(name+id), func(ctx context.Context) (int, error) { return charge(10)(ctx, tx) })
				return tx, res, err
			}
			tx, res, err := run("a")
			if err != nil || res.Outcome != everonce.Executed || !res.Provisional {
				t.Fatalf("%+v, %v", res, err)
			}
			// While it is open a duplicate is in progress, at once.
			if _, err := everonce.Transact(ctx, b.tr, order(name+"a"), charge(10)); !errors.Is(err, everonce.ErrInProgress) {
				t.Errorf("a duplicate meanwhile: %v, want in progress", err)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			b.balance(100)
			// A call that was rolled back did not happen: the key is free again.
			if tx, res, err = run("a"); err != nil || res.Outcome != everonce.Executed {
				t.Fatalf("after a rollback: %+v, %v", res, err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if tx, res, err = run("a"); err != nil || res.Outcome != everonce.Replayed || res.Value != 90 {
				t.Errorf("after the commit: %+v, %v", res, err)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			b.balance(90)
		})
	}
}

func TestSeveralDoTxInOneTransaction(t *testing.T) {
	b := newBank(t, nil)
	ctx := t.Context()
	tx, err := b.DB().BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // committed below
	do := func(id string, amount int) (everonce.Result[int], error) {
		return everonce.DoTx(ctx, tx, b.tr, order(id), func(ctx context.Context) (int, error) { return charge(amount)(ctx, tx) })
	}
	if res, err := do("a", 10); err != nil || res.Outcome != everonce.Executed {
		t.Fatalf("%+v, %v", res, err)
	}
	if res, err := do("b", 1000); err == nil || res.Outcome != everonce.Failed {
		t.Fatalf("a violated CHECK: %+v, %v", res, err)
	}
	if res, err := do("b", 20); err != nil || res.Outcome != everonce.Executed {
		t.Fatalf("tried again behind its savepoint: %+v, %v", res, err)
	}
	if res, err := do("a", 10); err != nil || res.Outcome != everonce.Replayed {
		t.Fatalf("a duplicate in the same transaction: %+v, %v", res, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	b.balance(70)
}

func TestJoinRefusesAnotherDatabase(t *testing.T) {
	b, other := newBank(t, nil), newBank(t, nil)
	for name, db := range handles(other) {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = everonce.DoTx(t.Context(), tx, b.tr, order("1"), func(context.Context) (int, error) {
			t.Error("the work ran")
			return 0, nil
		})
		if !errors.Is(err, driver.ErrOtherStore) {
			t.Errorf("%s: %v, want ErrOtherStore", name, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}

// A step's commit is checked by the store of its operation. A second store on the same file is another one, and says
// so.
func TestTwoStoresOnOneFileAreTwo(t *testing.T) {
	b := newBank(t, nil)
	r, err := everonce.NewReceiver(open(t, b.path, nil), everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = everonce.Do(t.Context(), r, order("1"), func(ctx context.Context, a *everonce.Attempt) (int, error) {
		return everonce.StepTx(ctx, a, b.tr, "charge", charge(30))
	}, everonce.EffectsInSteps())
	if !errors.Is(err, driver.ErrOtherStore) {
		t.Errorf("%v, want ErrOtherStore", err)
	}
	b.balance(100)
}

func TestStepTxCommitsWithItsStep(t *testing.T) {
	b := newBank(t, nil)
	ctx := t.Context()
	r, err := everonce.NewReceiver(b.Store, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	attempts := 0
	work := func(ctx context.Context, a *everonce.Attempt) (int, error) {
		left, err := everonce.StepTx(ctx, a, b.tr, "charge", charge(30))
		if err != nil {
			return 0, err
		}
		if attempts++; attempts == 1 {
			return 0, everonce.NotDone(errors.New("the mail server is down"))
		}
		return left, nil
	}
	if _, err := everonce.Do(ctx, r, order("20"), work); err == nil {
		t.Fatal("no error")
	}
	b.balance(70)
	res, err := everonce.Do(ctx, r, order("20"), work)
	if err != nil || res.Value != 70 || res.Attempt != 2 {
		t.Fatalf("%+v, %v", res, err)
	}
	b.balance(70)
	got, err := b.Get(ctx, driver.GetRequest{ID: order("20").RecordID()})
	if err != nil || len(got.Record.Steps) != 1 || got.Record.Steps[0].State != driver.StepDone {
		t.Errorf("%+v, %v", got.Record.Steps, err)
	}
}

func TestStepTxOfALostAttemptRollsBack(t *testing.T) {
	b := newBank(t, nil)
	ctx := t.Context()
	claim := func(take driver.TakeOver) driver.ClaimResult {
		res, err := b.Claim(ctx, driver.ClaimRequest{ID: order("21").RecordID(), Scope: "orders", Name: "21", Nonce: driver.NewNonce(), Owner: "t", Lease: time.Minute, Take: take})
		if err != nil || res.Decision != driver.DecideClaimed {
			t.Fatalf("%v, %v", res.Decision, err)
		}
		return res
	}
	old := claim(driver.TakeNone)
	claim(driver.TakeForced)
	h, _, err := b.Begin(ctx, driver.BeginRequest{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := charge(30)(ctx, h.Tx()); err != nil {
		t.Fatal(err)
	}
	_, err = h.Commit(ctx, driver.CommitRequest{SaveStep: &driver.SaveStepRequest{
		ID: old.Record.ID, Token: old.Record.Token, Nonce: old.Record.Nonce, Lease: time.Minute,
		Step: driver.StepRecord{Name: "charge", State: driver.StepDone, Attempt: 1, Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte("x")}},
	}})
	if !errors.Is(err, driver.ErrLeaseLost) {
		t.Errorf("%v, want ErrLeaseLost", err)
	}
	b.balance(100)
	if got, err := b.Get(ctx, driver.GetRequest{ID: old.Record.ID}); err != nil || len(got.Record.Steps) != 0 {
		t.Errorf("%+v, %v", got.Record.Steps, err)
	}
}
