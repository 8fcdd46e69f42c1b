package pgxstore_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testing/testserver"
	"github.com/everonce/everonce/store/pgxstore"
)

// serverURL is the server under test. A run without one proves nothing, so it fails.
func serverURL(t testing.TB) string {
	t.Helper()
	return testserver.URL(t, "postgres")
}

// admin is a pool for what the tests do around the stores.
func admin(t testing.TB) *pgxpool.Pool {
	t.Helper()
	url := serverURL(t)
	adminOnce.Do(func() { adminPool, adminErr = pgxpool.New(context.Background(), url) })
	if adminErr != nil {
		t.Fatal(adminErr)
	}
	return adminPool
}

var (
	adminOnce sync.Once
	adminPool *pgxpool.Pool
	adminErr  error
)

func random(t testing.TB) string {
	t.Helper()
	b := make([]byte, 8)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b)
}

// newSchema makes a schema for one test, with a table of counters to see effects by.
func newSchema(t testing.TB) string {
	t.Helper()
	name := "t_" + random(t)
	mustExec(t, "CREATE SCHEMA "+name)
	t.Cleanup(func() { mustExec(t, "DROP SCHEMA "+name+" CASCADE") })
	mustExec(t, "CREATE TABLE "+name+".effect (name text PRIMARY KEY, n int NOT NULL)")
	return name
}

func mustExec(t testing.TB, text string, args ...any) {
	t.Helper()
	if _, err := admin(t).Exec(context.Background(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func number(t testing.TB, text string, args ...any) (n int64) {
	t.Helper()
	if err := admin(t).QueryRow(context.Background(), text, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}

// storeOf is a Store or a SQLStore.
type storeOf[Tx any] interface {
	driver.TxStore[Tx]
	driver.Lister
	driver.ScopeDeleter
	driver.HealthChecker
	driver.WriteChecker
	driver.IdentityKeeper
	driver.IdentityReader
	Migrate(ctx context.Context) error
	Schema() string
}

// handle is a store and what a test does through the same client library.
type handle[Tx any] struct {
	store  storeOf[Tx]
	schema string
	pipes  bool // the client can send several statements at once
	begin  func(ctx context.Context, level sql.IsolationLevel) (Tx, error)
	commit func(ctx context.Context, tx Tx) error
	abort  func(ctx context.Context, tx Tx) error
	exec   func(ctx context.Context, tx Tx, text string, args ...any) error
	query  func(ctx context.Context, text string, args ...any) scanner
}

type scanner interface{ Scan(dest ...any) error }

// effect is work of the application: it adds one to the counter of that name.
func (h *handle[Tx]) effect(ctx context.Context, tx Tx, name string) error {
	return h.exec(ctx, tx, "INSERT INTO "+h.schema+".effect AS e VALUES ($1, 1) ON CONFLICT (name) DO UPDATE SET n = e.n + 1", name)
}

func (h *handle[Tx]) effects(t testing.TB, name string) int64 {
	t.Helper()
	return number(t, "SELECT coalesce(sum(n), 0) FROM "+h.schema+".effect WHERE name = $1", name)
}

func (h *handle[Tx]) record() string { return h.schema + ".everonce_record" }

// setup is how a handle is made.
type setup struct {
	schema  string
	opts    pgxstore.Options
	config  func(*pgx.ConnConfig)
	conns   int32
	pending bool // the tables are not to be made
}

func newPool(t testing.TB, change func(*pgx.ConnConfig), conns int32) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(serverURL(t))
	noErr(t, err)
	if change != nil {
		change(config.ConnConfig)
	}
	if conns != 0 {
		config.MaxConns = conns
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	noErr(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func newPgx(t testing.TB, s setup) *handle[pgx.Tx] {
	t.Helper()
	pool := newPool(t, s.config, s.conns)
	store, err := pgxstore.New(pool, s.options(t))
	if err != nil {
		t.Fatal(err)
	}
	h := &handle[pgx.Tx]{
		store: store, schema: s.opts.Schema, pipes: true,
		begin: func(ctx context.Context, level sql.IsolationLevel) (pgx.Tx, error) {
			return pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: map[sql.IsolationLevel]pgx.TxIsoLevel{
				sql.LevelRepeatableRead: pgx.RepeatableRead, sql.LevelSerializable: pgx.Serializable,
			}[level]})
		},
		commit: func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		abort:  func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		exec: func(ctx context.Context, tx pgx.Tx, text string, args ...any) error {
			_, err := tx.Exec(ctx, text, args...)
			return err
		},
		query: func(ctx context.Context, text string, args ...any) scanner { return pool.QueryRow(ctx, text, args...) },
	}
	return migrated(t, h, &s)
}

func newDB(t testing.TB, change func(*pgx.ConnConfig)) *sql.DB {
	t.Helper()
	config, err := pgx.ParseConfig(serverURL(t))
	noErr(t, err)
	if change != nil {
		change(config)
	}
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func newSQL(t testing.TB, s setup) *handle[*sql.Tx] {
	t.Helper()
	return sqlHandle(t, newDB(t, s.config), s)
}

func sqlHandle(t testing.TB, db *sql.DB, s setup) *handle[*sql.Tx] {
	t.Helper()
	if s.conns != 0 {
		db.SetMaxOpenConns(int(s.conns))
	}
	db.SetMaxIdleConns(max(int(s.conns), 16))
	store, err := pgxstore.NewSQL(db, s.options(t))
	if err != nil {
		t.Fatal(err)
	}
	h := &handle[*sql.Tx]{
		store: store, schema: s.opts.Schema,
		begin: func(ctx context.Context, level sql.IsolationLevel) (*sql.Tx, error) {
			return db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
		},
		commit: func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
		abort:  func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
		exec: func(ctx context.Context, tx *sql.Tx, text string, args ...any) error {
			_, err := tx.ExecContext(ctx, text, args...)
			return err
		},
		query: func(ctx context.Context, text string, args ...any) scanner {
			return db.QueryRowContext(ctx, text, args...)
		},
	}
	return migrated(t, h, &s)
}

func (s *setup) options(t testing.TB) *pgxstore.Options {
	t.Helper()
	if s.opts.Schema == "" {
		if s.schema == "" {
			s.schema = newSchema(t)
		}
		s.opts.Schema = s.schema
	}
	return &s.opts
}

func migrated[Tx any](t testing.TB, h *handle[Tx], s *setup) *handle[Tx] {
	t.Helper()
	if !s.pending {
		if err := h.store.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// both runs a test through pgx and through database/sql.
func both(t *testing.T, s setup, viaPgx func(*testing.T, *handle[pgx.Tx]), viaSQL func(*testing.T, *handle[*sql.Tx])) {
	t.Helper()
	t.Run("pgx", func(t *testing.T) {
		t.Parallel()
		viaPgx(t, newPgx(t, s))
	})
	t.Run("sql", func(t *testing.T) {
		t.Parallel()
		viaSQL(t, newSQL(t, s))
	})
}

var testKey = everonce.Key{Scope: "tenant/route", ID: "order-7"}

func claimOf(key everonce.Key) driver.ClaimRequest {
	return driver.ClaimRequest{
		ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Owner: "test",
		Lease: time.Minute, Lifetime: everonce.ForWeb(),
	}
}

func txClaimOf(key everonce.Key) driver.ClaimRequest {
	req := claimOf(key)
	req.Lease = 0
	req.Take = driver.TakeAbandoned
	return req
}

func completionOf(rec *driver.Record, value string) driver.CompleteRequest {
	return driver.CompleteRequest{
		ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lifetime: everonce.ForWeb(),
		Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte(value)},
	}
}

// noErr fails the test at an error.
func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func decided(t testing.TB, res driver.ClaimResult, err error, want driver.Decision) driver.ClaimResult {
	t.Helper()
	if err != nil {
		t.Fatalf("want the decision %v: %v", want, err)
	}
	if res.Decision != want {
		t.Fatalf("decided %v, want %v", res.Decision, want)
	}
	return res
}

// errOf is the error of a call whose result is empty.
func errOf[R any](_ R, err error) error { return err }
