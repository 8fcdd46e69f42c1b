package drivertest_test

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/drivertest"
	"github.com/everonce/everonce/store/memstore"
)

// The clock of this store is the suite's: the suite moves it, and waits for nothing.
func ExampleRun() {
	// In a test file of the store's package: func TestConformance(t *testing.T) { … }
	_ = func(t *testing.T) {
		drivertest.Run(t, func(testing.TB) drivertest.Harness {
			start, moved := time.Now(), new(atomic.Int64) // it stands still until it is moved
			clock := func() time.Time { return start.Add(time.Duration(moved.Load())) }
			return drivertest.Harness{
				Store:   memstore.New(&memstore.Options{Now: clock}),
				Advance: func(d time.Duration) { moved.Add(int64(d)) },
			}
		}, drivertest.Capabilities{
			Lister: true, ScopeDeleter: true, HealthChecker: true, IdentityKeeper: true, Recaller: true,
			MaxResult: 1 << 20,
		})
	}
}

// openStore stands for the constructor of your store, on a new database.
var openStore func(testing.TB) (driver.TxStore[*sql.Tx], *sql.DB)

// The application's data in the same database is a table with a row for every effect.
func ExampleRunTx() {
	// In a test file of the store's package: func TestConformanceTx(t *testing.T) { … }
	_ = func(t *testing.T) {
		drivertest.RunTx(t, func(t testing.TB) drivertest.TxHarness[*sql.Tx] {
			store, db := openStore(t)
			if _, err := db.ExecContext(t.Context(), "CREATE TABLE ledger (name text NOT NULL)"); err != nil {
				t.Fatal(err)
			}
			return drivertest.TxHarness[*sql.Tx]{
				Harness: drivertest.Harness{Store: store},
				Apply: func(ctx context.Context, tx *sql.Tx, name string) error {
					_, err := tx.ExecContext(ctx, "INSERT INTO ledger VALUES ($1)", name)
					return err
				},
				Count: func(ctx context.Context, name string) (n int, err error) {
					err = db.QueryRowContext(ctx, "SELECT count(*) FROM ledger WHERE name = $1", name).Scan(&n)
					return n, err
				},
				Begin: func(context.Context) (drivertest.CallerTx[*sql.Tx], error) {
					tx, err := db.BeginTx(context.Background(), nil) // it must not end with the call
					if err != nil {
						return drivertest.CallerTx[*sql.Tx]{}, err
					}
					return drivertest.CallerTx[*sql.Tx]{
						Tx:       tx,
						Commit:   func(context.Context) error { return tx.Commit() },
						Rollback: func(context.Context) error { return tx.Rollback() },
					}, nil
				},
				Spoil: func(ctx context.Context, tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, "INSERT INTO ledger VALUES (NULL)")
					return err
				},
			}
		}, drivertest.Capabilities{MaxResult: 1 << 20})
	}
}

// The clock of a bubble is not the server's, whose time a statement tells.
func ExampleServersClock() {
	// In a test file of the store's package: func TestTimeIsTheServers(t *testing.T) { … }
	_ = func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store, db := openStore(t)
			drivertest.ServersClock(t, store, func() (now time.Time) {
				if err := db.QueryRowContext(t.Context(), "SELECT clock_timestamp()").Scan(&now); err != nil {
					t.Fatal(err)
				}
				return now
			})
		})
	}
}
