package mysqlstore_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/drivertest"
	"github.com/everonce/everonce/store/mysqlstore"
)

func (s server) capabilities() drivertest.Capabilities {
	caps := drivertest.Capabilities{
		Lister: true, ScopeDeleter: true, HealthChecker: true, WriteChecker: true, IdentityKeeper: true,
		MaxResult: 8 << 20, TxBatch: true, // a packet has 16 MiB by default
	}
	if s.mysql { // where no claim can be made not to wait
		caps.DuplicateWaits = 2 * time.Second
	}
	return caps
}

// harness is two stores on the tables of a database. Whatever a test has done, a purge comes to each record when it has
// something to do about it, and not before.
func harness(t testing.TB, db *sql.DB, opts *mysqlstore.Options) (drivertest.Harness, string) {
	t.Helper()
	store, name := newStore(t, db, opts)
	peer, err := mysqlstore.New(db, &mysqlstore.Options{Database: name})
	noErr(t, err)
	t.Cleanup(func() {
		var wrong int
		if err := db.QueryRowContext(context.Background(), "SELECT count(*) FROM "+name+`.everonce_record WHERE state BETWEEN 1 AND 4 AND NOT (due_at <=>
			CASE WHEN purge_at IS NULL THEN NULL
			WHEN state = 1 AND lease_until > purge_at THEN lease_until
			WHEN state = 4 AND (result_codec IS NOT NULL OR result_data IS NOT NULL OR steps > 0) THEN result_until
			ELSE purge_at END)`).Scan(&wrong); err != nil || wrong > 0 { //nolint:usetesting // the test's own has ended
			t.Errorf("a purge comes to %d records at another time than it has to, %v", wrong, err)
		}
	})
	damage := func(change string) func(driver.RecordID) {
		return func(id driver.RecordID) {
			mustExec(t, db, "UPDATE "+name+".everonce_record SET "+change+" WHERE id = ?", id[:])
		}
	}
	return drivertest.Harness{
		Store: store, Peer: peer,
		Damages:      map[string]func(driver.RecordID){"its state": damage("state = 77"), "its nonce": damage("nonce = x'00'"), "an earlier time": damage("claimed_at = -1")},
		DamagedLease: damage("lease_until = -1"),
		Newer: func(id driver.RecordID) {
			mustExec(t, db, "UPDATE "+name+".everonce_record SET format = ? WHERE id = ?", int64(driver.FormatVersion+1), id[:])
		},
		UnreadStep: func(id driver.RecordID, step string) {
			mustExec(t, db, "UPDATE "+name+".everonce_step SET state = 77 WHERE id = ? AND name = ?", id[:], step)
		},
		UnreadResult: func(id driver.RecordID, step string, kind int) {
			mustExec(t, db, "UPDATE "+name+".everonce_step SET result_kind = nullif(?, 0) WHERE id = ? AND name = ?", kind, id[:], step)
		},
	}, name
}

// TestConformance holds the store to the suite, on a server with its own isolation, which is repeatable read.
func TestConformance(t *testing.T) { conformance(t, mariaDB(t)) }

// TestConformanceOnMySQL is TestConformance on MySQL.
func TestConformanceOnMySQL(t *testing.T) { conformance(t, mySQL(t)) }

func conformance(t *testing.T, on server) {
	t.Helper()
	db := on.open(t, nil)
	drivertest.RunWithBugs(t, func(t testing.TB) drivertest.Harness {
		h, _ := harness(t, db, nil)
		return h
	}, on.capabilities())
}

// TestConformanceTx holds the transactions to the suite.
func TestConformanceTx(t *testing.T) {
	on := mariaDB(t)
	conformanceTx(t, on, nil, nil, on.capabilities())
}

// TestConformanceTxOnMySQL is TestConformanceTx on MySQL.
func TestConformanceTxOnMySQL(t *testing.T) {
	on := mySQL(t)
	conformanceTx(t, on, nil, nil, on.capabilities())
}

// TestConformanceTxReadCommitted is TestConformanceTx at another isolation, and with arguments in the statements'
// texts.
func TestConformanceTxReadCommitted(t *testing.T) { onEach(t, testConformanceTxReadCommitted) }

func testConformanceTxReadCommitted(t *testing.T, on server) {
	caps := on.capabilities()
	caps.Variant = true
	conformanceTx(t, on, func(c *mysql.Config) {
		c.InterpolateParams, c.ClientFoundRows, c.ParseTime = true, true, true
	}, &mysqlstore.Options{Isolation: sql.LevelReadCommitted}, caps)
}

func conformanceTx(t *testing.T, on server, change func(*mysql.Config), opts *mysqlstore.Options, caps drivertest.Capabilities) {
	t.Helper()
	db := on.open(t, change)
	drivertest.RunTxWithBugs(t, func(t testing.TB) drivertest.TxHarness[*sql.Tx] {
		h, name := harness(t, db, opts)
		table := name + ".ledger"
		mustExec(t, db, "CREATE TABLE "+table+" (name varchar(255) NOT NULL)")
		exec := func(ctx context.Context, tx *sql.Tx, text string, args ...any) error {
			_, err := tx.ExecContext(ctx, text, args...)
			return err
		}
		return drivertest.TxHarness[*sql.Tx]{
			Harness: h,
			Apply: func(ctx context.Context, tx *sql.Tx, name string) error {
				return exec(ctx, tx, "INSERT INTO "+table+" VALUES (?)", name)
			},
			Count: func(ctx context.Context, name string) (n int, err error) {
				err = db.QueryRowContext(ctx, "SELECT count(*) FROM "+table+" WHERE name = ?", name).Scan(&n)
				return n, err
			},
			Begin: func(ctx context.Context) (drivertest.CallerTx[*sql.Tx], error) {
				tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
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
				return exec(ctx, tx, "INSERT INTO "+table+" VALUES (NULL)")
			},
		}
	}, caps)
}
