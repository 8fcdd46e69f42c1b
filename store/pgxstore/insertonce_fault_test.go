package pgxstore_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everonce/everonce/store/pgxstore"
)

// An error that prevents an insert is reported with its own class. It is not a duplicate, even if a row with the key
// exists, and nothing was inserted.
func TestInsertOnceTellsWhatHindersIt(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		code    string // SQLSTATE
		prepare func(t *testing.T, p *payments)
		config  func(p *payments) func(*pgx.ConnConfig)
	}{
		"permission denied": {
			code: "42501",
			prepare: func(t *testing.T, p *payments) {
				t.Helper()
				mustExec(t, "CREATE ROLE "+p.role()+" LOGIN PASSWORD 'secret-of-the-role'")
				t.Cleanup(func() { mustExec(t, "DROP OWNED BY "+p.role()); mustExec(t, "DROP ROLE "+p.role()) })
				mustExec(t, "GRANT USAGE ON SCHEMA "+p.schema()+" TO "+p.role())
				mustExec(t, "GRANT SELECT ON "+p.table+" TO "+p.role())
			},
			config: func(p *payments) func(*pgx.ConnConfig) {
				return func(c *pgx.ConnConfig) { c.User, c.Password = p.role(), "secret-of-the-role" }
			},
		},
		"read only": {
			code: "25006",
			config: func(*payments) func(*pgx.ConnConfig) {
				return func(c *pgx.ConnConfig) { c.RuntimeParams["default_transaction_read_only"] = "on" }
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPayments(t)
			mustExec(t, "INSERT INTO "+p.table+" VALUES (1, 'order-7', 420)")
			if fault.prepare != nil {
				fault.prepare(t, p)
			}
			p.pool, p.db = newPool(t, fault.config(p), 0), newDB(t, fault.config(p))
			p.through(t, func(t *testing.T, once func(pgxstore.Insert) (payment, bool, error), _ func(string) error, _ func() error) {
				for _, order := range []string{"order-8", "order-7"} { // a new one, and an existing one
					row, inserted, err := once(p.insert(2, order, 1, nil))
					pgErr, ok := errors.AsType[*pgconn.PgError](err)
					if !ok || pgErr.Code != fault.code || inserted || row != (payment{}) {
						t.Errorf("%s: %+v, %v, %v; want an error %s", order, row, inserted, err, fault.code)
					}
				}
				p.untouched(t)
			})
		})
	}
}

// A connection that is lost when the insert is sent is an error inside a transaction. The transaction is lost with it,
// and nothing of it is stored.
func TestInsertOnceOnADroppedConnection(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p := newPayments(t)
	mustExec(t, "INSERT INTO "+p.table+" VALUES (1, 'order-7', 420)")
	const whoami = "SELECT pg_backend_pid()"
	dropped := func(t *testing.T, pid int, once func(order string) (payment, bool, error), commit func() error) {
		t.Helper()
		if n := number(t, "SELECT count(*) FROM (SELECT pg_terminate_backend($1, 10000) AS ok) AS x WHERE ok", pid); n != 1 {
			t.Fatalf("%d connections were ended", n)
		}
		for _, order := range []string{"order-7", "order-8"} {
			if row, inserted, err := once(order); err == nil || inserted || row != (payment{}) {
				t.Errorf("%s: %+v, %v, %v; want the connection's error", order, row, inserted, err)
			}
		}
		if err := commit(); err == nil {
			t.Error("a transaction without a connection was committed")
		}
		p.untouched(t)
	}
	t.Run("pgx", func(t *testing.T) {
		tx, err := p.pool.Begin(ctx)
		noErr(t, err)
		defer tx.Rollback(ctx) //nolint:errcheck // it is over
		var pid int
		noErr(t, tx.QueryRow(ctx, whoami).Scan(&pid))
		dropped(t, pid, func(order string) (payment, bool, error) {
			return pgxstore.InsertOnce(ctx, tx, p.insert(2, order, 1, nil), scanPayment)
		}, func() error { return tx.Commit(ctx) })
	})
	t.Run("sql", func(t *testing.T) {
		tx, err := p.db.BeginTx(ctx, nil)
		noErr(t, err)
		defer tx.Rollback() //nolint:errcheck // it is over
		var pid int
		noErr(t, tx.QueryRowContext(ctx, whoami).Scan(&pid))
		dropped(t, pid, func(order string) (payment, bool, error) {
			return pgxstore.InsertOnceSQL(ctx, tx, p.insert(2, order, 1, nil), scanPayment)
		}, tx.Commit)
	})
}

func (p *payments) schema() string { return p.table[:len(p.table)-len(".payment")] }

func (p *payments) role() string { return "role_" + p.schema() }

// untouched checks that the table still holds the one row, unchanged.
func (p *payments) untouched(t *testing.T) {
	t.Helper()
	if n := number(t, "SELECT count(*) FROM "+p.table); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
	if n := number(t, "SELECT amount FROM "+p.table+" WHERE id = 1 AND order_id = 'order-7'"); n != 420 {
		t.Errorf("the row has %d, want 420", n)
	}
}
