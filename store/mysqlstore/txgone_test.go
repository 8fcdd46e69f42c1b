package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/everonce/everonce"
)

// deadlock makes the server roll back tx, which has charged account 1, for the sake of another that has written more.
// Whichever of the two waits first, it is this one that is undone.
func (b *bank) deadlock(ctx context.Context, tx *sql.Tx) error {
	other, err := b.db.BeginTx(ctx, nil)
	noErr(b.t, err)
	exec := func(text string) error { _, err := other.ExecContext(ctx, text); return err }
	for i := range 20 {
		noErr(b.t, exec(fmt.Sprintf("INSERT INTO account VALUES (%d, 0)", 100+i)))
	}
	noErr(b.t, exec("UPDATE account SET balance = balance + 0 WHERE id = 2"))
	noErr(b.t, exec("SELECT 1 FROM account WHERE id = 2 FOR UPDATE"))
	waited := make(chan error, 1)
	go func() { waited <- exec("SELECT 1 FROM account WHERE id = 1 FOR UPDATE") }()
	_, err = tx.ExecContext(ctx, "UPDATE account SET balance = balance + 30 WHERE id = 2")
	noErr(b.t, <-waited)
	noErr(b.t, other.Rollback())
	return err
}

// ended are ways in which a transaction is over without its owner knowing.
func (b *bank) ended() map[string]func(context.Context, *sql.Tx) error {
	exec := func(text string) func(context.Context, *sql.Tx) error {
		return func(ctx context.Context, tx *sql.Tx) error { _, err := tx.ExecContext(ctx, text); return err }
	}
	return map[string]func(context.Context, *sql.Tx) error{"a deadlock": b.deadlock, "ROLLBACK": exec("ROLLBACK")}
}

// After a deadlock the transaction is gone, and later statements on it commit alone: work that swallows the error gets
// no record of what was undone.
func TestWorkThatSwallowsTheEndOfItsTransaction(t *testing.T) {
	onEach(t, testWorkThatSwallowsTheEndOfItsTransaction)
}

func testWorkThatSwallowsTheEndOfItsTransaction(t *testing.T, on server) {
	b := newBank(t, on, nil)
	var err error
	b.tr, err = everonce.NewTxReceiver(b.Store, &everonce.Options{TxRetries: 1})
	noErr(t, err)
	for what, end := range b.ended() {
		for _, opts := range [][]everonce.CallOption{nil, {everonce.Optimistic()}} {
			key := order(fmt.Sprint(what, len(opts)))
			res, err := everonce.Transact(t.Context(), b.tr, key, func(ctx context.Context, tx *sql.Tx) (string, error) {
				if err := charge(ctx, tx); err != nil {
					return "", err
				}
				if err := end(ctx, tx); what == "a deadlock" && !isDeadlock(err) {
					t.Errorf("the work got %v, want a deadlock", err)
				}
				return "charged", nil
			}, opts...)
			if err == nil || res.Outcome == everonce.Executed {
				t.Errorf("%s: %v, %v; want an error", key.ID, res.Outcome, err)
			}
		}
		tx, err := b.db.BeginTx(t.Context(), nil)
		noErr(t, err)
		res, err := everonce.DoTx(t.Context(), tx, b.tr, order("joined, "+what), func(ctx context.Context) (string, error) {
			noErr(t, charge(ctx, tx))
			_ = end(ctx, tx) //nolint:errcheck // that is the fault
			return "charged", nil
		})
		if !errors.Is(err, everonce.ErrTxDoomed) {
			t.Errorf("DoTx after %s: %v, %v; want ErrTxDoomed", what, res.Outcome, err)
		}
		_ = tx.Commit() //nolint:errcheck // there is nothing to commit
	}
	b.balance(1, 100)
	if n := b.records(); n != 0 {
		t.Errorf("%d records of what was undone", n)
	}
}

func isDeadlock(err error) bool { return isNumber(err, 1213) }

func isNumber(err error, number uint16) bool {
	answer, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && answer.Number == number
}

// A work that returns the deadlock is run again, in Transact; in the caller's transaction only the caller can.
func TestADeadlockIsRunAgain(t *testing.T) { onEach(t, testADeadlockIsRunAgain) }

func testADeadlockIsRunAgain(t *testing.T, on server) {
	b := newBank(t, on, nil)
	runs := 0
	res, err := everonce.Transact(t.Context(), b.tr, order("again"), func(ctx context.Context, tx *sql.Tx) (string, error) {
		runs++
		if err := charge(ctx, tx); err != nil || runs > 1 {
			return "charged", err
		}
		return "", b.deadlock(ctx, tx)
	})
	if err != nil || res.Outcome != everonce.Executed || runs != 2 {
		t.Errorf("%v after %d runs, %v; want executed after 2", res.Outcome, runs, err)
	}
	b.balance(1, 70)

	tx, err := b.db.BeginTx(t.Context(), nil)
	noErr(t, err)
	defer tx.Rollback() //nolint:errcheck // the server has
	runs = 0
	_, err = everonce.DoTx(t.Context(), tx, b.tr, order("once"), func(ctx context.Context) (string, error) {
		runs++
		if err := charge(ctx, tx); err != nil {
			return "", err
		}
		return "", b.deadlock(ctx, tx)
	})
	if !errors.Is(err, everonce.ErrTxDoomed) || !isDeadlock(err) || runs != 1 {
		t.Errorf("%v after %d runs; want ErrTxDoomed, with the deadlock, after 1", err, runs)
	}
	b.balance(1, 70)
}

// A lock that the work does not get in time (error 1205) ends its statement and not its transaction: Transact runs it
// again, and the caller's transaction goes on.
func TestALockThatIsNotHadInTime(t *testing.T) { onEach(t, testALockThatIsNotHadInTime) }

func testALockThatIsNotHadInTime(t *testing.T, on server) {
	b := newBank(t, on, func(c *mysql.Config) { c.Params = map[string]string{"innodb_lock_wait_timeout": "1"} })
	holder := b.begin()
	noErr(t, charge(t.Context(), holder))
	tx := b.begin()
	_, err := everonce.DoTx(t.Context(), tx, b.tr, order("joined"), func(ctx context.Context) (string, error) { return "", charge(ctx, tx) })
	if !isNumber(err, 1205) || errors.Is(err, everonce.ErrTxDoomed) {
		t.Errorf("DoTx: %v; want error 1205 alone", err)
	}
	_, err = b.doTx(tx, "beside")
	noErr(t, err)
	noErr(t, tx.Commit())
	runs := 0
	res, err := everonce.Transact(t.Context(), b.tr, order("again"), func(ctx context.Context, tx *sql.Tx) (string, error) {
		if runs++; runs > 1 {
			noErr(t, holder.Rollback())
		}
		return "charged", charge(ctx, tx)
	})
	if err != nil || res.Outcome != everonce.Executed || runs != 2 {
		t.Errorf("Transact: %v after %d runs, %v; want executed after 2", res.Outcome, runs, err)
	}
	b.balance(1, 70)
	if n := b.records(); n != 2 {
		t.Errorf("%d records, want 2, one for each call that succeeded", n)
	}
}

// Work that leaves rows open has surely committed nothing. The error says so, and the work does not run again.
func TestWorkThatLeavesRowsOpen(t *testing.T) { onEach(t, testWorkThatLeavesRowsOpen) }

func testWorkThatLeavesRowsOpen(t *testing.T, on server) {
	b := newBank(t, on, nil)
	for _, opts := range [][]everonce.CallOption{nil, {everonce.Optimistic()}} {
		runs := 0
		res, err := everonce.Transact(t.Context(), b.tr, order(fmt.Sprint("open", len(opts))), func(ctx context.Context, tx *sql.Tx) (string, error) {
			runs++
			if err := charge(ctx, tx); err != nil {
				return "", err
			}
			_, err := tx.QueryContext(ctx, "SELECT repeat('x', 1000) FROM information_schema.columns") //nolint:rowserrcheck,sqlclosecheck // that is the fault
			return "charged", err
		}, opts...)
		if err == nil || res.Outcome != everonce.Failed || errors.Is(err, everonce.ErrOutcomeUnknown) || runs != 1 {
			t.Errorf("%v after %d runs, %v; want failed after 1", res.Outcome, runs, err)
		}
	}
	b.balance(1, 100)
}
