package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// Work cannot end the transaction that it was lent by the text of a statement either, such as a script. Work that was
// rolled back so is not recorded as done.
func TestWorkCanNotEndWhatItWasLentByAStatement(t *testing.T) {
	for _, text := range []string{
		"COMMIT", "END", "ROLLBACK", "INSERT INTO account VALUES ('bob', 1); COMMIT", "ROLLBACK; BEGIN IMMEDIATE", "COMMIT; BEGIN IMMEDIATE",
		"SAVEPOINT s; ROLLBACK",
	} {
		t.Run(text, func(t *testing.T) {
			b := newBank(t, nil)
			for _, opts := range [][]everonce.CallOption{nil, {everonce.Optimistic()}} {
				res, err := everonce.Transact(t.Context(), b.tr, order("17"), func(ctx context.Context, tx *sql.Tx) (int, error) {
					left, err := charge(30)(ctx, tx)
					if err == nil {
						_, refused := tx.ExecContext(ctx, text)
						if commits := strings.Contains(text, "COMMIT") && !strings.Contains(text, "ROLLBACK"); commits && (refused == nil || !strings.Contains(refused.Error(), "return from the work instead")) {
							t.Errorf("the statement: %v, want that it says what to do", refused)
						}
					}
					return left, err // the work does not look at it
				}, opts...)
				if err == nil || res.Outcome != everonce.Failed {
					t.Errorf("%v, %v, want that it failed", res.Outcome, err)
				}
				b.balance(100)
			}
			var accounts int
			if err := b.DB().QueryRow("SELECT count(*) FROM account").Scan(&accounts); err != nil || accounts != 1 {
				t.Errorf("there are %d accounts, %v, want 1", accounts, err)
			}
			if res, err := everonce.Transact(t.Context(), b.tr, order("17"), charge(30)); err != nil || res.Outcome != everonce.Executed {
				t.Errorf("the key afterwards: %v, %v, want executed", res.Outcome, err)
			}
			b.balance(70)
		})
	}
}

// A transaction that has ended, as database/sql ends one with the context that began it, is doomed, and not a call that
// is wrong.
func TestDoTxInATransactionThatHasEnded(t *testing.T) {
	b := newBank(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	itsContext, err := b.DB().BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	committed, err := b.DB().BeginTx(t.Context(), nil) // its turn comes when the other has ended
	if err != nil {
		t.Fatal(err)
	}
	if err := committed.Commit(); err != nil {
		t.Fatal(err)
	}
	for name, tx := range map[string]*sql.Tx{"ended with its context": itsContext, "committed": committed} {
		res, err := everonce.DoTx(t.Context(), tx, b.tr, order(name), func(context.Context) (int, error) {
			t.Errorf("%s: the work ran", name)
			return 1, nil
		})
		if !errors.Is(err, driver.ErrTxDoomed) || res.Outcome != everonce.Failed {
			t.Errorf("%s: %v, %v; want failed, ErrTxDoomed", name, res.Outcome, err)
		}
	}
}

// A statement that was prepared before the work ended its transaction writes nothing after it: without a transaction
// each would commit alone.
func TestPreparedStatementsOfATransactionThatHasEnded(t *testing.T) {
	b := newBank(t, nil)
	res, err := everonce.Transact(t.Context(), b.tr, order("17"), func(ctx context.Context, tx *sql.Tx) (n int, err error) {
		insert, err := tx.PrepareContext(ctx, "INSERT INTO account VALUES (?, 1) RETURNING 7")
		if err != nil {
			return 0, err
		}
		defer insert.Close() //nolint:errcheck // it was only used
		if err := insert.QueryRowContext(ctx, "before").Scan(&n); err != nil || n != 7 {
			t.Errorf("in the transaction it answers %d, %v", n, err)
		}
		if _, err := tx.ExecContext(ctx, "ROLLBACK"); err != nil {
			return 0, err
		}
		if err := insert.QueryRowContext(ctx, "after").Scan(&n); err == nil {
			t.Error("a query wrote after the end")
		}
		if _, err := insert.ExecContext(ctx, "after, too"); err == nil {
			t.Error("a statement wrote after the end")
		}
		return 0, nil
	})
	if err == nil || res.Outcome != everonce.Failed {
		t.Errorf("%v, %v, want that it failed", res.Outcome, err)
	}
	var accounts int
	if err := b.DB().QueryRow("SELECT count(*) FROM account").Scan(&accounts); err != nil || accounts != 1 {
		t.Errorf("there are %d accounts, %v, want 1", accounts, err)
	}
}
