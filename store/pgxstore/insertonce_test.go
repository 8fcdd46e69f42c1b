package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/pgxstore"
)

// payment is a row of the table below.
type payment struct {
	id     int64
	order  string
	amount int64
}

// payments is a business table with its own primary key, the unique constraint that makes a duplicate, another unique
// constraint, and a check.
type payments struct {
	table string
	pool  *pgxpool.Pool
	db    *sql.DB
}

func newPayments(t *testing.T) *payments {
	t.Helper()
	table := newSchema(t) + ".payment"
	mustExec(t, "CREATE TABLE "+table+` (id bigint PRIMARY KEY, order_id text NOT NULL, amount bigint NOT NULL CHECK (amount > 0), reference text UNIQUE,
		UNIQUE (order_id))`)
	return &payments{table: table, pool: newPool(t, nil, 0), db: newDB(t, nil)}
}

func (p *payments) insert(id int64, order string, amount int64, reference any) pgxstore.Insert {
	return pgxstore.Insert{
		Table: p.table, Columns: []string{"id", "order_id", "amount", "reference"}, Values: []any{id, order, amount, reference},
		Key: []string{"order_id"}, Returning: []string{"id", "order_id", "amount"},
	}
}

func scanPayment(r pgxstore.Row) (p payment, err error) {
	err = r.Scan(&p.id, &p.order, &p.amount)
	return p, err
}

// through runs a test with an InsertOnce of either client library, alone or in a transaction. exec is a
// statement beside it, and end commits.
func (p *payments) through(t *testing.T, test func(t *testing.T, once func(pgxstore.Insert) (payment, bool, error), exec func(string) error, end func() error)) {
	ctx := t.Context()
	t.Run("pgx", func(t *testing.T) {
		test(t, func(in pgxstore.Insert) (payment, bool, error) {
			return pgxstore.InsertOnce(ctx, p.pool, in, scanPayment)
		}, func(text string) error { _, err := p.pool.Exec(ctx, text); return err }, func() error { return nil })
	})
	t.Run("pgx.Tx", func(t *testing.T) {
		tx, err := p.pool.Begin(ctx)
		noErr(t, err)
		defer tx.Rollback(ctx) //nolint:errcheck // after the commit it does nothing
		test(t, func(in pgxstore.Insert) (payment, bool, error) {
			return pgxstore.InsertOnce(ctx, tx, in, scanPayment)
		}, func(text string) error { _, err := tx.Exec(ctx, text); return err }, func() error { return tx.Commit(ctx) })
	})
	for name, of := range map[string]func(*pgxpool.Conn) pgxstore.Querier{
		"pgx.Conn":     func(c *pgxpool.Conn) pgxstore.Querier { return c.Conn() },
		"pgxpool.Conn": func(c *pgxpool.Conn) pgxstore.Querier { return c },
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := p.pool.Acquire(ctx)
			noErr(t, err)
			defer conn.Release()
			_, err = conn.Exec(ctx, "BEGIN")
			noErr(t, err)
			test(t, func(in pgxstore.Insert) (payment, bool, error) {
				return pgxstore.InsertOnce(ctx, of(conn), in, scanPayment)
			}, func(text string) error { _, err := conn.Exec(ctx, text); return err }, func() error { _, err := conn.Exec(ctx, "COMMIT"); return err })
		})
	}
	t.Run("sql.DB", func(t *testing.T) {
		test(t, func(in pgxstore.Insert) (payment, bool, error) {
			return pgxstore.InsertOnceSQL(ctx, p.db, in, scanPayment)
		}, func(text string) error { _, err := p.db.ExecContext(ctx, text); return err }, func() error { return nil })
	})
	t.Run("sql.Tx", func(t *testing.T) {
		tx, err := p.db.BeginTx(ctx, nil)
		noErr(t, err)
		defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
		test(t, func(in pgxstore.Insert) (payment, bool, error) {
			return pgxstore.InsertOnceSQL(ctx, tx, in, scanPayment)
		}, func(text string) error { _, err := tx.ExecContext(ctx, text); return err }, tx.Commit)
	})
}

func TestInsertOnce(t *testing.T) {
	t.Parallel()
	p := newPayments(t)
	p.through(t, func(t *testing.T, once func(pgxstore.Insert) (payment, bool, error), exec func(string) error, end func() error) {
		mustExec(t, "TRUNCATE "+p.table)
		mustExec(t, "INSERT INTO "+p.table+" VALUES (99, 'other', 1, 'ref-99')")
		row, inserted, err := once(p.insert(1, "order-7", 420, "ref-1"))
		if err != nil || !inserted || row != (payment{1, "order-7", 420}) {
			t.Fatalf("the first: %+v, %v, %v", row, inserted, err)
		}
		row, inserted, err = once(p.insert(2, "order-7", 999, "ref-2"))
		if err != nil || inserted || row != (payment{1, "order-7", 420}) {
			t.Errorf("a duplicate: %+v, %v, %v", row, inserted, err)
		}
		// A true retry repeats everything, and PostgreSQL names the primary key.
		row, inserted, err = once(p.insert(1, "order-7", 420, "ref-1"))
		if err != nil || inserted || row != (payment{1, "order-7", 420}) {
			t.Errorf("a true retry: %+v, %v, %v", row, inserted, err)
		}
		refused := func(what, code string, in pgxstore.Insert) {
			t.Helper()
			row, inserted, err := once(in)
			pgErr, ok := errors.AsType[*pgconn.PgError](err)
			if !ok || pgErr.Code != code || inserted || row != (payment{}) {
				t.Errorf("%s: %+v, %v, %v; want an error %s", what, row, inserted, err, code)
			}
		}
		refused("another row's primary key", "23505", p.insert(99, "order-8", 1, nil))
		refused("another row's reference", "23505", p.insert(3, "order-8", 1, "ref-99"))
		refused("a violated check", "23514", p.insert(3, "order-8", -1, nil))
		missing := p.insert(3, "order-8", 1, nil)
		missing.Table += "_missing"
		refused("a missing table", "42P01", missing)
		uncovered := p.insert(3, "order-8", 1, nil)
		uncovered.Key = []string{"amount"}
		refused("a key that no constraint covers", "42P10", uncovered)
		noErr(t, exec("UPDATE "+p.table+" SET amount = amount + 1 WHERE id = 1")) // a transaction is alive
		noErr(t, end())
		if n := number(t, "SELECT amount FROM "+p.table+" WHERE id = 1"); n != 421 {
			t.Errorf("the row has %d, want 421", n)
		}
		if n := number(t, "SELECT count(*) FROM "+p.table); n != 2 {
			t.Errorf("%d rows, want 2", n)
		}
	})
}

// An insert waits for a transaction that has the key, and then finds its row or takes its place.
func TestInsertOnceWaits(t *testing.T) {
	t.Parallel()
	p := newPayments(t)
	p.through(t, func(t *testing.T, once func(pgxstore.Insert) (payment, bool, error), _ func(string) error, end func() error) {
		for _, commits := range []bool{true, false} {
			order := map[bool]string{true: "committed", false: "rolled back"}[commits]
			mustExec(t, "DELETE FROM "+p.table)
			other, err := admin(t).Begin(t.Context())
			noErr(t, err)
			_, inserted, err := pgxstore.InsertOnce(t.Context(), other, p.insert(1, order, 1, nil), scanPayment)
			if err != nil || !inserted {
				t.Fatal(inserted, err)
			}
			ended := make(chan error, 1)
			go func() {
				waited := waitsForLock(t.Context(), p.table)
				end := other.Rollback
				if commits {
					end = other.Commit
				}
				ended <- errors.Join(waited, end(t.Context())) // else the insert would wait for ever
			}()
			row, inserted, err := once(p.insert(2, order, 2, nil))
			noErr(t, <-ended)
			want := payment{2, order, 2}
			if commits {
				want = payment{1, order, 1}
			}
			if err != nil || inserted == commits || row != want {
				t.Errorf("%s: %+v, %v, %v; want %+v", order, row, inserted, err, want)
			}
		}
		noErr(t, end())
	})
}

// waitsForLock returns once the server says that a statement with that text waits for a lock, and an error
// if it never does.
func waitsForLock(ctx context.Context, text string) error {
	const waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%'||$1||'%'"
	for start := time.Now(); time.Since(start) < 10*time.Second; {
		var n int
		if err := adminPool.QueryRow(ctx, waiting, text).Scan(&n); n > 0 || err != nil {
			return err
		}
	}
	return errors.New("no call has waited for a lock: the test proves nothing")
}

// At repeatable read a row that was committed later is in the way and cannot be seen: the answer is a
// serialization failure, and Transact runs everything again.
func TestInsertOnceSerialization(t *testing.T) {
	t.Parallel()
	p := newPayments(t)
	h := newPgx(t, setup{opts: pgxstore.Options{Isolation: sql.LevelRepeatableRead}})
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	runs := 0
	res, err := everonce.Transact(t.Context(), receiver, testKey, func(ctx context.Context, tx pgx.Tx) (int64, error) {
		if runs++; runs == 1 { // after our snapshot
			mustExec(t, "INSERT INTO "+p.table+" VALUES (1, 'order-7', 1)")
		}
		row, inserted, err := pgxstore.InsertOnce(ctx, tx, p.insert(2, "order-7", 2, nil), scanPayment)
		if inserted {
			t.Error("inserted twice")
		}
		return row.id, err
	})
	noErr(t, err)
	if runs != 2 || res.Value != 1 {
		t.Errorf("%d runs found row %d", runs, res.Value)
	}
}

// A unique constraint takes no two NULLs for the same: an insert by such a key would take effect each time.
func TestInsertOnceRefusesAKeyOfNULL(t *testing.T) {
	t.Parallel()
	p := newPayments(t)
	p.through(t, func(t *testing.T, once func(pgxstore.Insert) (payment, bool, error), _ func(string) error, end func() error) {
		mustExec(t, "TRUNCATE "+p.table)
		for i, null := range []any{nil, (*string)(nil), sql.NullString{}, pgtype.Text{}, []byte(nil)} {
			in := p.insert(int64(i), fmt.Sprint("order-", i), 1, null)
			in.Key = []string{"reference"}
			if row, inserted, err := once(in); !errors.Is(err, driver.ErrInvalidArgument) || inserted {
				t.Errorf("a key of %#v: %+v, %v, %v; want ErrInvalidArgument", null, row, inserted, err)
			}
		}
		noErr(t, end())
		if n := number(t, "SELECT count(*) FROM "+p.table); n != 0 {
			t.Errorf("%d rows, want none", n)
		}
	})
}

// An error of scan takes back the insert and leaves the transaction unchanged, so that the next call does not find a
// row that was never reported. The same holds for an error of scan on an existing row.
func TestInsertOnceWhoseScanFails(t *testing.T) {
	t.Parallel()
	p := newPayments(t)
	p.through(t, func(t *testing.T, once func(pgxstore.Insert) (payment, bool, error), exec func(string) error, end func() error) {
		if name := t.Name(); strings.HasSuffix(name, "/pgx") || strings.HasSuffix(name, "/sql.DB") {
			return // there is no transaction
		}
		mustExec(t, "TRUNCATE "+p.table)
		noErr(t, exec("INSERT INTO "+p.table+" VALUES (1, 'there', 420)"))
		for _, order := range []string{"new", "there"} {
			in := p.insert(2, order, 1, nil)
			in.Returning = []string{"order_id", "order_id", "order_id"} // no numbers
			if row, inserted, err := once(in); err == nil || inserted || row != (payment{}) {
				t.Errorf("%s: %+v, %v, %v; want the error of scan", order, row, inserted, err)
			}
		}
		noErr(t, exec("UPDATE "+p.table+" SET amount = amount + 1")) // the transaction is alive
		noErr(t, end())
		if n := number(t, "SELECT sum(amount) FROM "+p.table); n != 421 {
			t.Errorf("the rows have %d, want only the first row's", n)
		}
	})
}
