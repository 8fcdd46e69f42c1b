package sqlitestore_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/drivertest"
	"github.com/everonce/everonce/store/sqlitestore"
)

// clock is a store's clock that stands still unless a test moves it.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time {
	return time.Date(2030, time.May, 4, 3, 2, 1, 0, time.UTC).Add(time.Duration(c.ahead.Load()))
}

func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

// harness has two handles on one file, as two processes have, and a clock that is moved.
func harness(t testing.TB) drivertest.Harness {
	c := new(clock)
	path := filepath.Join(t.TempDir(), "records.db")
	store := open(t, path, sqlitestore.Options{}.WithClock(c.now))
	t.Cleanup(func() { // whatever a test has done, a purge comes to each record when it has something to do about it, and not before
		var wrong int
		if err := store.DB().QueryRow(`SELECT count(*) FROM everonce_record WHERE state BETWEEN 1 AND 4 AND due_at IS NOT CASE WHEN purge_at IS NULL THEN NULL
			WHEN state = 1 AND lease_until > purge_at THEN lease_until
			WHEN state = 4 AND (result_codec IS NOT NULL OR result_data IS NOT NULL OR steps > 0) THEN result_until
			ELSE purge_at END`).Scan(&wrong); err != nil || wrong > 0 {
			t.Errorf("a purge comes to %d records at another time than it has to, %v", wrong, err)
		}
	})
	damage := func(change string) func(driver.RecordID) {
		return func(id driver.RecordID) {
			if _, err := store.DB().Exec("UPDATE everonce_record SET "+change+" WHERE id = ?", id[:]); err != nil {
				t.Fatal(err)
			}
		}
	}
	return drivertest.Harness{
		Store:   store,
		Peer:    open(t, path, sqlitestore.Options{}.WithClock(c.now)),
		Advance: c.advance,
		Newer: func(id driver.RecordID) {
			if _, err := store.DB().Exec("UPDATE everonce_record SET format = ? WHERE id = ?", driver.FormatVersion+1, id[:]); err != nil {
				t.Fatal(err)
			}
		},
		Damages:      map[string]func(driver.RecordID){"its state": damage("state = 77"), "its nonce": damage("nonce = x'00'"), "an earlier time": damage("claimed_at = -1")},
		DamagedLease: damage("lease_until = -1"),
		UnreadStep: func(id driver.RecordID, name string) {
			if _, err := store.DB().Exec("UPDATE everonce_step SET state = 77 WHERE id = ? AND name = ?", id[:], name); err != nil {
				t.Fatal(err)
			}
		},
		UnreadResult: func(id driver.RecordID, name string, kind int) {
			if _, err := store.DB().Exec("UPDATE everonce_step SET result_kind = nullif(?, 0) WHERE id = ? AND name = ?", kind, id[:], name); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func capabilities() drivertest.Capabilities {
	return drivertest.Capabilities{
		Lister: true, ScopeDeleter: true, HealthChecker: true, WriteChecker: true, IdentityKeeper: true,
		MaxResult: 16 << 20, OneWriter: true, TxBatch: true,
	}
}

func TestConformance(t *testing.T) { drivertest.RunWithBugs(t, harness, capabilities()) }

// txHarness adds an application's balances to the file. own is whether it has them by a separate handle.
func txHarness(own bool) drivertest.TxFactory[*sql.Tx] {
	return func(t testing.TB) drivertest.TxHarness[*sql.Tx] {
		h := harness(t)
		store, ok := h.Store.(*sqlitestore.Store)
		if !ok {
			t.Fatalf("the store is a %T", h.Store)
		}
		db := store.DB()
		if own {
			var err error
			if db, err = sql.Open("sqlite", "file:"+store.Path()+"?_txlock=immediate&_pragma=busy_timeout(5000)"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
		}
		if _, err := db.Exec("CREATE TABLE balance (name TEXT PRIMARY KEY, n INTEGER NOT NULL CHECK (n > 0))"); err != nil {
			t.Fatal(err)
		}
		return drivertest.TxHarness[*sql.Tx]{
			Harness: h,
			Apply: func(ctx context.Context, tx *sql.Tx, name string) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO balance VALUES (?, 1) ON CONFLICT DO UPDATE SET n = n + 1", name)
				return err
			},
			Count: func(ctx context.Context, name string) (n int, err error) {
				return n, db.QueryRowContext(ctx, "SELECT coalesce(sum(n), 0) FROM balance WHERE name = ?", name).Scan(&n)
			},
			Begin: func(ctx context.Context) (drivertest.CallerTx[*sql.Tx], error) {
				tx, err := db.BeginTx(ctx, nil)
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
				_, err := tx.ExecContext(ctx, "INSERT INTO balance VALUES ('spoiled', -1)")
				return err
			},
		}
	}
}

func TestTransactionConformance(t *testing.T) {
	drivertest.RunTxWithBugs(t, txHarness(false), capabilities())
}

func TestTransactionConformanceOfAnotherHandle(t *testing.T) {
	caps := capabilities()
	caps.Variant = true
	drivertest.RunTx(t, txHarness(true), caps)
}
