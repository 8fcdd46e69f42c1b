package orm

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"testing"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"entgo.io/ent/schema/field"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/jmoiron/sqlx"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/examples/internal/pgschema"
	"github.com/everonce/everonce/store/pgxstore"
)

// charger makes charges by one of the libraries.
type charger func(context.Context, Charge) (everonce.Result[Receipt], error)

// ways are the three libraries, and GORM in both of its settings.
var ways = map[string]func(t *testing.T, db *sql.DB, r *Receiver) charger{
	"sqlx": func(t *testing.T, db *sql.DB, r *Receiver) charger {
		t.Helper()
		x := sqlx.NewDb(db, "pgx")
		return func(ctx context.Context, c Charge) (everonce.Result[Receipt], error) {
			return ChargeBySQLX(ctx, x, r, c)
		}
	},
	"gorm": func(t *testing.T, db *sql.DB, r *Receiver) charger {
		t.Helper()
		g := openGORM(t, db, &gorm.Config{})
		return func(ctx context.Context, c Charge) (everonce.Result[Receipt], error) {
			return ChargeByGORM(ctx, g, r, c)
		}
	},
	"gorm, PrepareStmt": func(t *testing.T, db *sql.DB, r *Receiver) charger {
		t.Helper()
		g := openGORM(t, db, &gorm.Config{PrepareStmt: true})
		return func(ctx context.Context, c Charge) (everonce.Result[Receipt], error) {
			return ChargeByGORM(ctx, g, r, c)
		}
	},
	"ent": func(t *testing.T, db *sql.DB, r *Receiver) charger {
		t.Helper()
		return func(ctx context.Context, c Charge) (everonce.Result[Receipt], error) {
			return ChargeByEnt(ctx, db, r, c)
		}
	},
}

// TestChargeOnce sends a charge three times, a charge with another amount under the same ID, one that
// the balance does not allow, three times, and that one again when it would allow it.
func TestChargeOnce(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			db, r := newShop(t)
			charge := way(t, db, r)
			c := Charge{ID: "order-7", Account: "alice", Cents: 1200}
			for _, want := range []everonce.Outcome{everonce.Executed, everonce.Replayed, everonce.Replayed} {
				res, err := charge(t.Context(), c)
				if err != nil || res.Outcome != want || res.Value != c.receipt() {
					t.Fatalf("%v, %+v, %v; want %v and %+v", res.Outcome, res.Value, err, want, c.receipt())
				}
			}
			balance(t, db, 3800)

			other := c
			other.Cents++
			if res, err := charge(t.Context(), other); !errors.Is(err, everonce.ErrMismatch) {
				t.Errorf("another amount: %v, %v; want a mismatch", res.Outcome, err)
			}

			tooMuch := Charge{ID: "order-8", Account: "alice", Cents: 4000}
			refused := func() {
				t.Helper()
				res, err := charge(t.Context(), tooMuch)
				failure, ok := errors.AsType[*everonce.PermanentError](err)
				if !ok || failure.Code != "no_funds" || res.Outcome != everonce.Rejected {
					t.Fatalf("too much: %v, %v; want no_funds, rejected", res.Outcome, err)
				}
			}
			refused()
			refused()
			if _, err := db.ExecContext(t.Context(), `UPDATE account SET cents = 9000`); err != nil {
				t.Fatal(err)
			}
			refused() // the answer stands, whatever the balance is by now
			balance(t, db, 9000)
		})
	}
}

// TestFailedWorkLeavesNothing: an error that is not permanent rolls everything back, and the same key may
// be sent again.
func TestFailedWorkLeavesNothing(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			db, r := newShop(t)
			charge := way(t, db, r)
			c := Charge{ID: "order-7", Account: "alice", Cents: 1200}
			if _, err := db.ExecContext(t.Context(), `ALTER TABLE account RENAME TO elsewhere`); err != nil {
				t.Fatal(err)
			}
			if res, err := charge(t.Context(), c); err == nil || res.Outcome != everonce.Failed {
				t.Fatalf("without the table: %v, %v; want failed", res.Outcome, err)
			}
			if _, err := db.ExecContext(t.Context(), `ALTER TABLE elsewhere RENAME TO account`); err != nil {
				t.Fatal(err)
			}
			if res, err := charge(t.Context(), c); err != nil || res.Outcome != everonce.Executed {
				t.Fatalf("again: %v, %v; want executed", res.Outcome, err)
			}
			balance(t, db, 3800)
		})
	}
}

// TestFailedCommitIsNoResult: an operation that did not commit did not happen, and is not reported as executed.
func TestFailedCommitIsNoResult(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			db, r := newShop(t)
			charge := way(t, db, r)
			c := Charge{ID: "order-7", Account: "alice", Cents: 1200}
			for _, text := range []string{
				`CREATE TABLE allowed (cents bigint PRIMARY KEY)`,
				`INSERT INTO allowed VALUES (5000)`,
				`ALTER TABLE account ADD CONSTRAINT checked FOREIGN KEY (cents) REFERENCES allowed DEFERRABLE INITIALLY DEFERRED`,
			} {
				if _, err := db.ExecContext(t.Context(), text); err != nil {
					t.Fatal(err)
				}
			}
			if res, err := charge(t.Context(), c); err == nil || res != (everonce.Result[Receipt]{}) {
				t.Errorf("the commit fails: %+v, %v; want an error and no result", res, err)
			}
			if _, err := db.ExecContext(t.Context(), `ALTER TABLE account DROP CONSTRAINT checked`); err != nil {
				t.Fatal(err)
			}
			balance(t, db, 5000)
			if res, err := charge(t.Context(), c); err != nil || res.Outcome != everonce.Executed {
				t.Errorf("again: %v, %v; want executed", res.Outcome, err)
			}
		})
	}
}

// TestGORMOutsideOfATransaction: a handle that is in no transaction is refused, not committed statement by statement.
func TestGORMOutsideOfATransaction(t *testing.T) {
	db, _ := newShop(t)
	if tx, err := sqlTx(openGORM(t, db, &gorm.Config{})); err == nil {
		t.Fatalf("got %v, want an error", tx)
	}
}

// TestEntDoesNotEndTheTransaction runs the statements of ent's generated code for a new row with an edge: it begins a
// nested transaction for that, commits it, and the caller's rollback must still revert all.
func TestEntDoesNotEndTheTransaction(t *testing.T) {
	db, _ := newShop(t)
	for _, text := range []string{
		`CREATE TABLE pet (id text PRIMARY KEY, owner text REFERENCES account(id))`,
		`INSERT INTO pet VALUES ('rex', NULL)`,
	} {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	drv := DriverOf(tx)
	spec := sqlgraph.NewCreateSpec("account", sqlgraph.NewFieldSpec("id", field.TypeString))
	spec.SetField("cents", field.TypeInt64, int64(1))
	spec.ID.Value = "bob"
	spec.Edges = []*sqlgraph.EdgeSpec{{
		Rel: sqlgraph.O2M, Table: "pet", Columns: []string{"owner"},
		Target: &sqlgraph.EdgeTarget{IDSpec: sqlgraph.NewFieldSpec("id", field.TypeString), Nodes: []sqldriver.Value{"rex"}},
	}}
	if err := sqlgraph.CreateNode(t.Context(), drv, spec); err != nil {
		t.Fatal(err)
	}
	if err := drv.Close(); err != nil {
		t.Fatal(err)
	}
	owned := func(q interface {
		QueryRowContext(context.Context, string, ...any) *sql.Row
	},
	) (n int) {
		t.Helper()
		if err := q.QueryRowContext(t.Context(), `SELECT count(*) FROM pet WHERE owner = 'bob'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := owned(tx); n != 1 {
		t.Fatalf("inside the transaction: %d rows, want 1", n)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if n := owned(db); n != 0 {
		t.Errorf("after the rollback: %d rows, want 0: ent has committed", n)
	}
	if _, ok := drv.(interface {
		BeginTx(context.Context, *sql.TxOptions) (dialect.Tx, error)
	}); !ok {
		t.Error("the driver lacks BeginTx, which ent's generated client asks for")
	}
}

func openGORM(t *testing.T, db *sql.DB, cfg *gorm.Config) *gorm.DB {
	t.Helper()
	cfg.Logger = logger.Discard
	g, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// newShop returns a new schema, with the tables of everonce and an account.
func newShop(t *testing.T) (*sql.DB, *Receiver) {
	t.Helper()
	db, err := sql.Open("pgx", pgschema.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, text := range []string{
		`CREATE TABLE account (id text PRIMARY KEY, cents bigint NOT NULL)`,
		`INSERT INTO account VALUES ('alice', 5000)`,
	} {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	store, err := pgxstore.NewSQL(db, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	return db, r
}

func balance(t *testing.T, db *sql.DB, want int64) {
	t.Helper()
	var cents int64
	if err := db.QueryRowContext(t.Context(), `SELECT cents FROM account WHERE id = 'alice'`).Scan(&cents); err != nil {
		t.Fatal(err)
	}
	if cents != want {
		t.Errorf("the balance is %d, want %d", cents, want)
	}
}
