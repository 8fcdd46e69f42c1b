package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testing/corruptrows"

	"github.com/everonce/everonce/internal/testing/netcut"
	"github.com/everonce/everonce/store/mysqlstore"
)

// The default collation of a server takes keys for one that are not.
func TestKeysAreComparedByTheirBytes(t *testing.T) { onEach(t, testKeysAreComparedByTheirBytes) }

func testKeysAreComparedByTheirBytes(t *testing.T, on server) {
	b := newBank(t, on, func(c *mysql.Config) { c.Collation = "utf8mb4_general_ci" })
	mustExec(t, b.db, "ALTER DATABASE "+b.name+" COLLATE latin1_swedish_ci")
	for _, id := range []string{"a", "A", "ä", "a ", " a", "🥨"} {
		res, err := everonce.Transact(t.Context(), b.tr, order(id), func(context.Context, *sql.Tx) (string, error) { return id, nil })
		if err != nil || res.Outcome != everonce.Executed {
			t.Errorf("%q: %v, %v; want executed", id, res.Outcome, err)
		}
	}
	page, err := b.List(t.Context(), driver.ListRequest{Name: "a"})
	if err != nil || len(page.Records) != 1 {
		t.Errorf("%d records are named a, %v; want 1", len(page.Records), err)
	}
}

// The store's clock is the same whatever the time zone of a session.
func TestTheClockHasNoTimeZone(t *testing.T) { onEach(t, testTheClockHasNoTimeZone) }

func testTheClockHasNoTimeZone(t *testing.T, on server) {
	b := newBank(t, on, func(c *mysql.Config) { c.Params = map[string]string{"time_zone": "'+05:00'"} })
	res, err := b.Claim(t.Context(), driver.ClaimRequest{ID: driver.RecordID{7}, Nonce: driver.Nonce{1}, Lease: time.Minute})
	if off := time.Since(res.Now).Abs(); err != nil || off > time.Hour {
		t.Errorf("the store's clock is %v off, %v", off, err)
	}
}

// At repeatable read a snapshot that is older than a record does not see it. The claim does, also where MariaDB refuses
// to lock what is newer than the snapshot, as it does by default from 11.6.2 on.
func TestAnOldSnapshotFindsTheRecord(t *testing.T) { onEach(t, testAnOldSnapshotFindsTheRecord) }

func testAnOldSnapshotFindsTheRecord(t *testing.T, on server) {
	if on.mysql { // which never refuses
		newBank(t, on, nil).oldSnapshotFindsTheRecord()
		return
	}
	for _, refuses := range []string{"0", "1"} {
		b := newBank(t, on, func(c *mysql.Config) { c.Params = map[string]string{"innodb_snapshot_isolation": refuses} })
		b.oldSnapshotFindsTheRecord()
	}
}

func (b *bank) oldSnapshotFindsTheRecord() {
	t := b.t
	t.Helper()
	tx, err := b.db.BeginTx(t.Context(), nil)
	noErr(t, err)
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	var n int
	noErr(t, tx.QueryRowContext(t.Context(), "SELECT count(*) FROM everonce_record").Scan(&n)) // which takes the snapshot
	work := func(ctx context.Context, tx *sql.Tx) (string, error) { return "charged", charge(ctx, tx) }
	_, err = everonce.Transact(t.Context(), b.tr, order("7"), work)
	noErr(t, err)
	res, err := everonce.DoTx(t.Context(), tx, b.tr, order("7"), func(ctx context.Context) (string, error) { return work(ctx, tx) })
	if err != nil || res.Outcome != everonce.Replayed || res.Value != "charged" {
		t.Errorf("%v %q, %v; want it replayed", res.Outcome, res.Value, err)
	}
	noErr(t, tx.Commit())
	b.balance(1, 70)
}

// No lock reaches beyond its key: operations on different keys, with steps, beside purges, end no other one by a
// deadlock, and wait for no open one. A page that the server splits may lock what is beside a key for as long as a
// short transaction lasts.
func TestNoLockReachesBeyondItsKey(t *testing.T) { onEach(t, testNoLockReachesBeyondItsKey) }

func testNoLockReachesBeyondItsKey(t *testing.T, on server) {
	b := newBank(t, on, nil)
	ctx := t.Context()
	var level sql.IsolationLevel
	if on.mysql { // at repeatable read what it locks is more where a page is split, until it ends
		level = sql.LevelReadCommitted
	}
	open, err := b.db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	noErr(t, err)
	defer open.Rollback() //nolint:errcheck // after the commit it does nothing
	for i := range 5 {
		_, err = everonce.DoTx(ctx, open, b.tr, order(fmt.Sprint("open ", i)), func(context.Context) (int, error) { return i, nil })
		noErr(t, err)
	}
	receiver, err := everonce.NewReceiver(b.Store, everonce.Reexecute, nil)
	noErr(t, err)
	short, wait := everonce.WithLifetime(everonce.Lifetime{Retention: 1000}), everonce.WithWait(10*time.Second)
	var runs atomic.Int32
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 15 {
				id := fmt.Sprint(worker, "-", i)
				_, err := everonce.Transact(ctx, b.tr, order(id), func(context.Context, *sql.Tx) (int, error) {
					runs.Add(1)
					return 1, nil
				}, short, wait)
				if err != nil {
					t.Errorf("Transact: %v", err)
				}
				_, err = everonce.Do(ctx, receiver, order("steps "+id), func(ctx context.Context, a *everonce.Attempt) (int, error) {
					return everonce.StepTx(ctx, a, b.tr, "charge", func(context.Context, *sql.Tx) (int, error) {
						runs.Add(1)
						return 1, nil
					})
				}, short, wait)
				if err != nil {
					t.Errorf("StepTx: %v", err)
				}
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			if _, err := b.Purge(ctx, driver.PurgeRequest{Limit: 50}); err != nil {
				t.Errorf("Purge: %v", err)
			}
		}
	})
	wg.Wait()
	if n := runs.Load(); n != 2*8*15 {
		t.Errorf("the works ran %d times, want %d", n, 2*8*15)
	}
	noErr(t, open.Commit())
}

// Where the answer to a commit is lost, the claim tells what has become of it.
func TestACommitWhoseAnswerIsLost(t *testing.T) { onEach(t, testACommitWhoseAnswerIsLost) }

func testACommitWhoseAnswerIsLost(t *testing.T, on server) {
	for name, how := range map[string]netcut.Cut{"the commit is lost": netcut.Before, "its answer is lost": netcut.After} {
		for _, opts := range [][]everonce.CallOption{nil, {everonce.Optimistic()}} {
			t.Run(fmt.Sprint(name, len(opts)), func(t *testing.T) {
				var line netcut.Line
				var armed atomic.Bool
				b := newBank(t, on, func(c *mysql.Config) {
					c.Logger = &mysql.NopLogger{}
					c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
						var d net.Dialer
						conn, err := d.DialContext(ctx, network, addr)
						if err != nil {
							return nil, err
						}
						return &cutAtCommit{Conn: line.Over(conn), line: &line, how: how, armed: &armed}, nil
					}
				})
				_, err := everonce.Transact(t.Context(), b.tr, order("7"), func(ctx context.Context, tx *sql.Tx) (string, error) {
					return "charged", charge(ctx, tx)
				})
				noErr(t, err)
				armed.Store(true)
				res, err := everonce.Transact(t.Context(), b.tr, order("8"), func(ctx context.Context, tx *sql.Tx) (string, error) {
					return "charged", charge(ctx, tx)
				}, opts...)
				if err != nil || res.Value != "charged" || armed.Load() {
					t.Errorf("%v %q, %v; it is to be cut yet: %v", res.Outcome, res.Value, err, armed.Load())
				}
				b.balance(1, 40)
			})
		}
	}
}

// cutAtCommit cuts the line at the first COMMIT since it was armed.
type cutAtCommit struct {
	net.Conn
	line  *netcut.Line
	how   netcut.Cut
	armed *atomic.Bool
}

func (c *cutAtCommit) Write(b []byte) (int, error) {
	if len(b) > 5 && string(b[5:]) == "COMMIT" && c.armed.CompareAndSwap(true, false) {
		c.line.Cut(c.how)
	}
	return c.Conn.Write(b)
}

// A pool of one connection is enough, also for what is inside of a transaction.
func TestOneConnectionIsEnough(t *testing.T) { onEach(t, testOneConnectionIsEnough) }

func testOneConnectionIsEnough(t *testing.T, on server) {
	b := newBank(t, on, nil)
	b.db.SetMaxOpenConns(1)
	for _, want := range []everonce.Outcome{everonce.Executed, everonce.Replayed} {
		res, err := everonce.Transact(t.Context(), b.tr, order("7"), func(ctx context.Context, tx *sql.Tx) (string, error) {
			return "charged", charge(ctx, tx)
		})
		if err != nil || res.Outcome != want {
			t.Errorf("%v, %v; want %v", res.Outcome, err, want)
		}
	}
}

// The round trips of each call, once the connection has prepared its statements. The documentation of the package has
// this table.
func TestRoundTrips(t *testing.T) { onEach(t, testRoundTrips) }

func testRoundTrips(t *testing.T, on server) {
	var turns netcut.Turns
	b := newBank(t, on, func(c *mysql.Config) {
		c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return turns.Over(conn), nil
		}
	})
	b.db.SetMaxOpenConns(1)
	receiver, err := everonce.NewReceiver(b.Store, everonce.Refuse, nil)
	noErr(t, err)
	ctx := t.Context()
	var look int64 // whether the transaction is still one
	if on.mysql {
		look = 1
	}
	for _, round := range []string{"warm-up", "counted"} {
		count := func(what string, want int64, fn func() error) {
			t.Helper()
			if round == "warm-up" {
				noErr(t, fn())
				return
			}
			turns.Of(t, what, want, fn)
		}
		do := func(id string, work func(context.Context, *everonce.Attempt) (int, error)) func() error {
			return func() error { _, err := everonce.Do(ctx, receiver, order(round+id), work); return err }
		}
		nothing := func(context.Context, *everonce.Attempt) (int, error) { return 1, nil }
		count("guarded, new: claim and completion", 2, do("guarded", nothing))
		count("guarded, replay", 2, do("guarded", nothing))
		count("guarded, with a step: its beginning and its end", 2+5+look+6+look, do("step", func(ctx context.Context, a *everonce.Attempt) (int, error) {
			return everonce.Step(ctx, a, "mail", func(context.Context) (int, error) { return 1, nil })
		}))
		transact := func(id string, opts ...everonce.CallOption) func() error {
			return func() error {
				_, err := everonce.Transact(ctx, b.tr, order(round+id), func(context.Context, *sql.Tx) (int, error) { return 1, nil }, opts...)
				return err
			}
		}
		count("Transact, claim first: new", 4+2*look, transact("claim first"))
		count("Transact, claim first: replay", 4+look, transact("claim first"))
		count("Transact, optimistic: new", 4+look, transact("optimistic", everonce.Optimistic()))
		count("Transact, optimistic: replay", 1, transact("optimistic", everonce.Optimistic()))
	}
}

// Whatever a column contains, all statements judge the record as a reader of it does.
func TestAllStatementsJudgeARecordAlike(t *testing.T) { onEach(t, testAllStatementsJudgeARecordAlike) }

func testAllStatementsJudgeARecordAlike(t *testing.T, on server) {
	b := newBank(t, on, nil)
	corruptrows.Run[*sql.Tx](t, b.Store, corruptrows.Database{Records: "everonce_record", Bytes: corruptrows.Hex(`x'`), Exec: func(statement string) error {
		_, err := b.db.ExecContext(t.Context(), statement)
		return err
	}})
}

// Several processes may make the tables at once; without them a call says what to run.
func TestMigrate(t *testing.T) { onEach(t, testMigrate) }

func testMigrate(t *testing.T, on server) {
	db := on.open(t, nil)
	name := newDatabase(t, db)
	store, err := mysqlstore.New(db, &mysqlstore.Options{Database: name, TablePrefix: "x_"})
	noErr(t, err)
	if _, err := store.Health(t.Context(), driver.HealthRequest{}); !errors.Is(err, everonce.ErrSchema) {
		t.Errorf("without tables: %v, want ErrSchema", err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			other, err := mysqlstore.New(db, &mysqlstore.Options{Database: name, TablePrefix: "x_"})
			if err == nil {
				err = other.Migrate(t.Context())
			}
			if err != nil {
				t.Errorf("Migrate: %v", err)
			}
		})
	}
	wg.Wait()
	health, err := store.Health(t.Context(), driver.HealthRequest{})
	if err != nil || len(health.Notes) == 0 {
		t.Errorf("%v, %v", health.Notes, err)
	}
}

// Where a duplicate would wait for longer than it has to, on MySQL alone, Health says so.
func TestHealthNamesTheWait(t *testing.T) { onEach(t, testHealthNamesTheWait) }

func testHealthNamesTheWait(t *testing.T, on server) {
	for wait, want := range map[string]bool{"1": false, "7": on.mysql} {
		b := newBank(t, on, func(c *mysql.Config) { c.Params = map[string]string{"innodb_lock_wait_timeout": wait} })
		health, err := b.Health(t.Context(), driver.HealthRequest{})
		if said := strings.Contains(fmt.Sprint(health.Notes), "innodb_lock_wait_timeout is "+wait); err != nil || said != want {
			t.Errorf("with %s s: %q, %v", wait, health.Notes, err)
		}
	}
}

func TestParseURL(t *testing.T) {
	good, err := mysqlstore.ParseURL("mysql://ann:p%40ss@db.example/shop?readTimeout=5s&innodb_lock_wait_timeout=1")
	if err != nil || good.User != "ann" || good.Passwd != "p@ss" || good.Addr != "db.example:3306" || good.DBName != "shop" || good.ReadTimeout == 0 || good.Params["innodb_lock_wait_timeout"] != "1" {
		t.Errorf("%+v, %v", good, err)
	}
	for _, bad := range []string{"", "mysql:///shop", "postgres://ann:secret@host/shop", "mysql://ann:secret@host/shop?readTimeout=soon", "mysql://ann:secret@ho st/"} {
		if _, err := mysqlstore.ParseURL(bad); !errors.Is(err, everonce.ErrInvalidArgument) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want ErrInvalidArgument without the password", bad, err)
		}
	}
}
