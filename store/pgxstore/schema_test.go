package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/pgxstore"
)

// Several processes migrate an empty database at once, the schema included, whatever isolation is the database's own.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			testMigrateAtOnce(t, func(c *pgx.ConnConfig) { c.RuntimeParams["default_transaction_isolation"] = level })
		})
	}
}

func testMigrateAtOnce(t *testing.T, config func(*pgx.ConnConfig)) {
	schema := "t_" + random(t)
	t.Cleanup(func() { mustExec(t, "DROP SCHEMA "+schema+" CASCADE") })
	const processes = 8
	errs := make([]error, processes)
	var group sync.WaitGroup
	for i := range processes {
		s := setup{opts: pgxstore.Options{Schema: schema}, config: config, pending: true, conns: 2}
		var migrate func() error
		if i%2 == 0 {
			h := newPgx(t, s)
			migrate = func() error { return h.store.Migrate(t.Context()) }
		} else {
			h := newSQL(t, s)
			migrate = func() error { return h.store.Migrate(t.Context()) }
		}
		group.Go(func() { errs[i] = migrate() })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	h := newPgx(t, setup{opts: pgxstore.Options{Schema: schema}, pending: true})
	res, err := h.store.Claim(t.Context(), claimOf(testKey))
	decided(t, res, err, driver.DecideClaimed)
	noErr(t, h.store.Migrate(t.Context())) // and again, over records
	res, err = h.store.Claim(t.Context(), claimOf(testKey))
	decided(t, res, err, driver.DecideInProgress)
}

// The same holds where the tables have no separate schema, and only the migrations' lock keeps them apart.
func TestMigrateWithoutASchemaAtOnce(t *testing.T) {
	t.Parallel()
	for range 5 {
		schema := newSchema(t)
		inSchema := func(c *pgx.ConnConfig) { c.RuntimeParams["search_path"] = schema }
		migrateAtOnce(t, inSchema, func(int) *pgxstore.Options { return nil })
	}
}

// Stores with different prefixes create the schema that they share at once.
func TestMigrateASharedSchemaAtOnce(t *testing.T) {
	t.Parallel()
	for range 5 {
		schema := "t_" + random(t)
		t.Cleanup(func() { mustExec(t, "DROP SCHEMA "+schema+" CASCADE") })
		migrateAtOnce(t, nil, func(i int) *pgxstore.Options {
			return &pgxstore.Options{Schema: schema, TablePrefix: "p" + strconv.Itoa(i) + "_"}
		})
	}
}

// migrateAtOnce creates the tables of eight stores at once, each on a separate connection.
func migrateAtOnce(t *testing.T, config func(*pgx.ConnConfig), optsOf func(i int) *pgxstore.Options) {
	t.Helper()
	const processes = 8
	errs := make([]error, processes)
	begin := make(chan struct{})
	var group sync.WaitGroup
	for i := range processes {
		pool := newPool(t, config, 1)
		// A connection that an application has used has what a DO needs at hand, and hears nothing of others meanwhile.
		_, err := pool.Exec(t.Context(), "DO $$ BEGIN IF to_regnamespace('nowhere') IS NULL THEN RETURN; END IF; END $$")
		noErr(t, err)
		store, err := pgxstore.New(pool, optsOf(i))
		noErr(t, err)
		group.Go(func() {
			<-begin
			errs[i] = store.Migrate(t.Context())
		})
	}
	close(begin)
	group.Wait()
	noErr(t, errors.Join(errs...))
}

// Without an own schema, the tables are where the search path says.
func TestDefaultSchemaIsTheSearchPaths(t *testing.T) {
	t.Parallel()
	schema := newSchema(t)
	path := func(c *pgx.ConnConfig) { c.RuntimeParams["search_path"] = schema }
	config, err := pgx.ParseConfig(serverURL(t))
	noErr(t, err)
	path(config)
	db := newSQL(t, setup{opts: pgxstore.Options{Schema: schema, TablePrefix: "named_"}, config: path})
	noErr(t, db.store.Migrate(t.Context()))
	if n := number(t, "SELECT count(*) FROM pg_tables WHERE schemaname = $1 AND tablename LIKE 'named_%'", schema); n != 3 {
		t.Errorf("%d tables by name, want 3", n)
	}
	store := unqualified(t, path)
	noErr(t, store.Migrate(t.Context()))
	if n := number(t, "SELECT count(*) FROM pg_tables WHERE schemaname = $1 AND tablename LIKE 'everonce_%'", schema); n != 3 {
		t.Errorf("%d tables by the search path, want 3", n)
	}
	_, err = store.Claim(t.Context(), claimOf(testKey))
	noErr(t, err)
}

func unqualified(t *testing.T, config func(*pgx.ConnConfig)) *pgxstore.Store {
	t.Helper()
	pool := newPool(t, config, 0)
	store, err := pgxstore.New(pool, nil)
	noErr(t, err)
	return store
}

// The text that Schema prints makes the same tables as Migrate.
func TestSchemaTextMakesTheTables(t *testing.T) {
	t.Parallel()
	both(t, setup{pending: true}, testSchemaText[pgx.Tx], testSchemaText[*sql.Tx])
}

func testSchemaText[Tx any](t *testing.T, h *handle[Tx]) {
	mustExec(t, h.store.Schema())
	res, err := h.store.Claim(t.Context(), claimOf(testKey))
	decided(t, res, err, driver.DecideClaimed)
	noErr(t, h.store.Migrate(t.Context()))
}

// The text without a store equals the text of a store.
func TestSchemaTextWithoutADatabase(t *testing.T) {
	t.Parallel()
	pool := newPool(t, nil, 1)
	for _, opts := range []*pgxstore.Options{nil, {Schema: "shop", TablePrefix: "pay_"}} {
		store, err := pgxstore.New(pool, opts)
		noErr(t, err)
		if text, err := pgxstore.Schema(opts); err != nil || text != store.Schema() {
			t.Errorf("%+v: %v, %s", opts, err, text)
		}
	}
	if text, err := pgxstore.Schema(&pgxstore.Options{Schema: "a.b"}); !errors.Is(err, driver.ErrInvalidArgument) || text != "" {
		t.Errorf("options that are wrong: %q, %v", text, err)
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testNewerSchema[pgx.Tx], testNewerSchema[*sql.Tx])
}

func testNewerSchema[Tx any](t *testing.T, h *handle[Tx]) {
	mustExec(t, "UPDATE "+h.schema+".everonce_meta SET value = '99' WHERE name = 'schema'")
	fresh := newPgx(t, setup{schema: h.schema, pending: true})
	for what, err := range map[string]error{
		"Migrate": fresh.store.Migrate(t.Context()),
		"Claim":   func() error { _, err := fresh.store.Claim(t.Context(), claimOf(testKey)); return err }(),
	} {
		if !errors.Is(err, driver.ErrSchema) || !errors.Is(err, driver.ErrStore) || !strings.Contains(err.Error(), "upgrade") {
			t.Errorf("%s on tables of version 99: %v", what, err)
		}
	}
}

// A migration that fails gives back its connection, and with it the lock that keeps the others waiting.
func TestAFailedMigrationLeavesNothingLocked(t *testing.T) {
	t.Parallel()
	both(t, setup{conns: 1}, testFailedMigration[pgx.Tx], testFailedMigration[*sql.Tx])
}

func testFailedMigration[Tx any](t *testing.T, h *handle[Tx]) {
	mustExec(t, "UPDATE "+h.schema+".everonce_meta SET value = '99' WHERE name = 'schema'")
	another := newPgx(t, setup{schema: h.schema, pending: true})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for _, migrate := range []func(context.Context) error{h.store.Migrate, h.store.Migrate, another.store.Migrate} {
		if err := migrate(ctx); !errors.Is(err, driver.ErrSchema) || ctx.Err() != nil {
			t.Fatalf("on tables of version 99: %v", err)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	pool := newPool(t, nil, 1)
	for name, opts := range map[string]*pgxstore.Options{
		"a quote in the schema":      {Schema: `x"; DROP SCHEMA public; --`},
		"a dot in the schema":        {Schema: "a.b"},
		"a capital in the prefix":    {TablePrefix: "Once_"},
		"a digit first":              {TablePrefix: "1_"},
		"a schema of the server's":   {Schema: "pg_once"},
		"a long prefix":              {TablePrefix: strings.Repeat("p", 41)},
		"an unknown isolation":       {Isolation: sql.LevelLinearizable},
		"an isolation below the one": {Isolation: sql.LevelReadUncommitted},
	} {
		if _, err := pgxstore.New(pool, opts); !errors.Is(err, driver.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := pgxstore.NewSQL(&sql.DB{}, opts); !errors.Is(err, driver.ErrInvalidArgument) {
			t.Errorf("%s, through database/sql: %v", name, err)
		}
		if err := opts.Validate(); !errors.Is(err, driver.ErrInvalidArgument) {
			t.Errorf("%s: Validate says %v", name, err)
		}
	}
	if err := (*pgxstore.Options)(nil).Validate(); err != nil {
		t.Errorf("no options: %v", err)
	}
	if _, err := pgxstore.New(nil, nil); !errors.Is(err, driver.ErrInvalidArgument) {
		t.Errorf("no pool: %v", err)
	}
	if _, err := pgxstore.NewSQL(nil, nil); !errors.Is(err, driver.ErrInvalidArgument) {
		t.Errorf("no database: %v", err)
	}
}

func TestJoinRefuses(t *testing.T) {
	t.Parallel()
	h := newPgx(t, setup{})
	if _, err := h.store.Join(t.Context(), nil); !errors.Is(err, driver.ErrInvalidArgument) {
		t.Errorf("no transaction: %v", err)
	}
	other := "other_" + random(t)
	mustExec(t, "CREATE DATABASE "+other)
	t.Cleanup(func() { mustExec(t, "DROP DATABASE "+other+" WITH (FORCE)") })
	tx, err := newPool(t, func(c *pgx.ConnConfig) { c.Database = other }, 1).Begin(t.Context())
	noErr(t, err)
	t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
	if _, err := h.store.Join(t.Context(), tx); !errors.Is(err, driver.ErrOtherStore) {
		t.Errorf("a transaction of another database: %v", err)
	}
	if _, err := newSQL(t, setup{}).store.Join(t.Context(), nil); !errors.Is(err, driver.ErrInvalidArgument) {
		t.Errorf("no transaction, through database/sql: %v", err)
	}
}

// Through database/sql the store cannot tell to which database a transaction belongs. The record is where the effect
// is, and so its duplicate finds it.
func TestATransactionOfAnotherDatabaseKeepsItsRecord(t *testing.T) {
	t.Parallel()
	h := newSQL(t, setup{})
	other := "other_" + random(t)
	mustExec(t, "CREATE DATABASE "+other)
	t.Cleanup(func() { mustExec(t, "DROP DATABASE "+other+" WITH (FORCE)") })
	db := newDB(t, func(c *pgx.ConnConfig) { c.Database = other })
	there, err := pgxstore.NewSQL(db, &pgxstore.Options{Schema: h.schema})
	noErr(t, err)
	noErr(t, there.Migrate(t.Context()))
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	key := everonce.Key{Scope: "tenant", ID: "order-7"}
	for _, want := range []everonce.Outcome{everonce.Executed, everonce.Replayed} {
		tx, err := db.BeginTx(t.Context(), nil)
		noErr(t, err)
		res, err := everonce.DoTx(t.Context(), tx, receiver, key, func(context.Context) (string, error) { return "v", nil })
		if err != nil || res.Outcome != want || res.Value != "v" {
			t.Errorf("%v, %q, %v; want %v", res.Outcome, res.Value, err, want)
		}
		noErr(t, tx.Commit())
	}
	if got, err := h.store.Get(t.Context(), driver.GetRequest{ID: key.RecordID()}); err != nil || got.Found {
		t.Errorf("in the receiver's own store: %v, %v", got.Found, err)
	}
}

// Health tells operators what of the setup weakens the promises.
func TestHealthNotes(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testHealthNotes[pgx.Tx], testHealthNotes[*sql.Tx])
	t.Run("unlogged", func(t *testing.T) {
		t.Parallel()
		h := newPgx(t, setup{})
		for _, table := range []string{"step", "record"} { // the one refers to the other
			mustExec(t, "ALTER TABLE "+h.schema+".everonce_"+table+" SET UNLOGGED")
			health, err := h.store.Health(t.Context(), driver.HealthRequest{})
			noErr(t, err)
			if len(health.Notes) != 1 || !strings.Contains(health.Notes[0], "UNLOGGED") {
				t.Errorf("the notes are %q", health.Notes)
			}
		}
	})
}

func testHealthNotes[Tx any](t *testing.T, h *handle[Tx]) {
	health, err := h.store.Health(t.Context(), driver.HealthRequest{})
	noErr(t, err)
	if len(health.Notes) != 1 || !strings.Contains(health.Notes[0], "failover") {
		t.Errorf("the notes of a server with its defaults are %q", health.Notes)
	}
}

// Tables that are replaced under an open store, whose connections have prepared statements on the old ones, are used
// without an error.
func TestTablesThatAreReplaced(t *testing.T) {
	t.Parallel()
	both(t, setup{conns: 1}, testReplacedTables[pgx.Tx], testReplacedTables[*sql.Tx])
}

func testReplacedTables[Tx any](t *testing.T, h *handle[Tx]) {
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	transact := func(want everonce.Outcome) {
		t.Helper()
		res, err := everonce.Transact(t.Context(), receiver, everonce.Key{Scope: "replaced", ID: "1"}, func(context.Context, Tx) (int, error) { return 1, nil })
		if err != nil || res.Outcome != want {
			t.Errorf("%v, %v, want %v", res.Outcome, err, want)
		}
	}
	for range 2 {
		res, err := h.store.Claim(t.Context(), claimOf(testKey))
		decided(t, res, err, driver.DecideClaimed)
		res, err = h.store.Claim(t.Context(), claimOf(testKey))
		decided(t, res, err, driver.DecideInProgress)
		transact(everonce.Executed)
		transact(everonce.Replayed)
		for _, table := range []string{"step", "record", "meta"} {
			mustExec(t, "DROP TABLE "+h.schema+".everonce_"+table)
		}
		mustExec(t, h.store.Schema())
		mustExec(t, "ALTER TABLE "+h.record()+" ADD COLUMN comment text") // somebody's own
	}
}
