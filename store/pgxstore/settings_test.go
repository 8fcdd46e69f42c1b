package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/pgxstore"
)

// witness has each transaction that changes a table write down, at its end, with which settings it commits.
func witness(t testing.TB, schema string, tables ...string) {
	t.Helper()
	mustExec(t, "CREATE TABLE "+schema+".seen (what text)")
	mustExec(t, "CREATE FUNCTION "+schema+".see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO "+schema+".seen VALUES "+
		"(concat_ws(', ', current_setting('transaction_isolation'), current_setting('synchronous_commit'))); RETURN NULL; END $$")
	for _, table := range tables {
		mustExec(t, "CREATE CONSTRAINT TRIGGER see AFTER INSERT OR UPDATE ON "+schema+"."+table+" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION "+schema+".see()")
		mustExec(t, "ALTER TABLE "+schema+"."+table+" ENABLE ALWAYS TRIGGER see") // a replica's session too
	}
}

// seen returns what has been written down since, each once.
func seen(t testing.TB, schema string) []string {
	t.Helper()
	rows, err := admin(t).Query(context.Background(), "WITH gone AS (DELETE FROM "+schema+".seen RETURNING what) SELECT DISTINCT what FROM gone ORDER BY 1")
	noErr(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	noErr(t, err)
	return all
}

func sawOnly(t testing.TB, schema, what, want string) {
	t.Helper()
	if all := seen(t, schema); !slices.Equal(all, []string{want}) {
		t.Errorf("%s committed with %q, want only %q", what, all, want)
	}
}

// guarded makes every call of the store that writes a record outside of a transaction of the application.
func guarded[Tx any](t *testing.T, h *handle[Tx], id string) {
	t.Helper()
	ctx := t.Context()
	key := everonce.Key{Scope: "settings", ID: id}
	res, err := h.store.Claim(ctx, claimOf(key))
	rec := decided(t, res, err, driver.DecideClaimed).Record
	renew := driver.RenewRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: time.Minute, Lifetime: everonce.ForWeb()}
	noErr(t, errOf(h.store.Renew(ctx, renew)))
	step := driver.StepRecord{Name: "mail", State: driver.StepDone, Attempt: 1}
	noErr(t, errOf(h.store.SaveStep(ctx, driver.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Step: step})))
	release := driver.ReleaseRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, State: driver.StateReleased, Lifetime: everonce.ForWeb()}
	noErr(t, errOf(h.store.Release(ctx, release)))
	res, err = h.store.Claim(ctx, claimOf(key))
	rec = decided(t, res, err, driver.DecideClaimed).Record
	noErr(t, errOf(h.store.Complete(ctx, completionOf(&rec, "v"))))
	noErr(t, errOf(h.store.CheckWrite(ctx, driver.CheckWriteRequest{})))
	res, err = h.store.Claim(ctx, claimOf(key))
	decided(t, res, err, driver.DecideReplay)
	got, err := h.store.Get(ctx, driver.GetRequest{ID: rec.ID})
	noErr(t, err)
	if len(got.Record.Steps) != 1 || string(got.Record.Result.Data) != "v" {
		t.Errorf("read back %+v", got.Record)
	}
}

// Guarded calls run at read committed and commit durably, whatever the session says; so do what the database, the role
// and the URL say, which a session begins with.
func TestGuardedCallsSetWhatTheyRelyOn(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		for _, commit := range []string{"off", "local", "remote_write", "on", "remote_apply"} {
			if level == "repeatable read" && commit != "off" {
				continue
			}
			t.Run(level+", "+commit, func(t *testing.T) {
				t.Parallel()
				lent := func(c *pgx.ConnConfig) {
					c.RuntimeParams["default_transaction_isolation"], c.RuntimeParams["synchronous_commit"] = level, commit
				}
				want := "read committed, on"
				if commit == "remote_apply" {
					want = "read committed, remote_apply"
				}
				both(t, setup{config: lent},
					func(t *testing.T, h *handle[pgx.Tx]) { testGuardedSettings(t, h, want) },
					func(t *testing.T, h *handle[*sql.Tx]) { testGuardedSettings(t, h, want) })
			})
		}
	}
}

func testGuardedSettings[Tx any](t *testing.T, h *handle[Tx], want string) {
	witness(t, h.schema, "everonce_record", "everonce_step")
	guarded(t, h, "1")
	sawOnly(t, h.schema, "guarded calls", want)
}

// The transactions that carry a record commit durably, in the caller's own too, at the isolation that they have.
func TestTransactionsCommitDurably(t *testing.T) {
	t.Parallel()
	off := func(c *pgx.ConnConfig) { c.RuntimeParams["synchronous_commit"] = "off" }
	both(t, setup{config: off, opts: pgxstore.Options{Isolation: sql.LevelRepeatableRead}}, testDurableTx[pgx.Tx], testDurableTx[*sql.Tx])
}

func testDurableTx[Tx any](t *testing.T, h *handle[Tx]) {
	witness(t, h.schema, "everonce_record", "everonce_step")
	r, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	work := func(ctx context.Context, tx Tx) (string, error) {
		return "v", h.exec(ctx, tx, "SET LOCAL synchronous_commit = off")
	}
	for how, opts := range map[string][]everonce.CallOption{"claim first": nil, "optimistic": {everonce.Optimistic()}} {
		_, err = everonce.Transact(t.Context(), r, everonce.Key{Scope: "durable", ID: how}, work, opts...)
		noErr(t, err)
		sawOnly(t, h.schema, how, "repeatable read, on")
	}
	_, err = everonce.Transact(t.Context(), r, everonce.Key{Scope: "durable", ID: "refused"}, func(context.Context, Tx) (string, error) {
		return "", everonce.Permanent("no", errors.New("no"), nil)
	})
	if err == nil {
		t.Error("a refusal is no error")
	}
	sawOnly(t, h.schema, "a refusal", "repeatable read, on")
	tx, err := h.begin(t.Context(), sql.LevelDefault)
	noErr(t, err)
	_, err = everonce.DoTx(t.Context(), tx, r, everonce.Key{Scope: "durable", ID: "joined"}, func(context.Context) (string, error) { return "v", nil })
	noErr(t, err)
	noErr(t, h.commit(t.Context(), tx))
	sawOnly(t, h.schema, "DoTx", "read committed, on")

	_, err = everonce.TransactBatch(t.Context(), r, []everonce.BatchItem{{Key: everonce.Key{Scope: "durable", ID: "b1"}}, {Key: everonce.Key{Scope: "durable", ID: "b2"}}},
		func(_ context.Context, _ Tx, todo []int) ([]string, error) { return make([]string, len(todo)), nil })
	noErr(t, err)
	sawOnly(t, h.schema, "a batch", "repeatable read, on")
}

// With Options.AsyncCommit commits are as the connection says, and Health says what that loses.
func TestAsyncCommit(t *testing.T) {
	t.Parallel()
	off := func(c *pgx.ConnConfig) { c.RuntimeParams["synchronous_commit"] = "off" }
	both(t, setup{config: off, opts: pgxstore.Options{AsyncCommit: true}}, testAsyncCommit[pgx.Tx], testAsyncCommit[*sql.Tx])
}

func testAsyncCommit[Tx any](t *testing.T, h *handle[Tx]) {
	witness(t, h.schema, "everonce_record", "everonce_step")
	guarded(t, h, "1")
	sawOnly(t, h.schema, "guarded calls", "read committed, off")
	health, err := h.store.Health(t.Context(), driver.HealthRequest{})
	noErr(t, err)
	if len(health.Notes) != 1 || !strings.Contains(health.Notes[0], "synchronous_commit is off") {
		t.Errorf("the notes are %q", health.Notes)
	}
}

// InsertOnce commits a new row durably, in the caller's transaction too, unless it is to be asynchronous.
func TestInsertOnceCommitsDurably(t *testing.T) {
	t.Parallel()
	off := func(c *pgx.ConnConfig) { c.RuntimeParams["synchronous_commit"] = "off" }
	schema, pool, db := newSchema(t), newPool(t, off, 0), newDB(t, off)
	witness(t, schema, "effect")
	for _, async := range []bool{false, true} {
		for how, insert := range map[string]func(in pgxstore.Insert, scan func(pgxstore.Row) (string, error)) (string, bool, error){
			"pgx": func(in pgxstore.Insert, scan func(pgxstore.Row) (string, error)) (string, bool, error) {
				return pgxstore.InsertOnce(t.Context(), pool, in, scan)
			},
			"sql": func(in pgxstore.Insert, scan func(pgxstore.Row) (string, error)) (string, bool, error) {
				return pgxstore.InsertOnceSQL(t.Context(), db, in, scan)
			},
			"in a transaction": func(in pgxstore.Insert, scan func(pgxstore.Row) (string, error)) (got string, inserted bool, err error) {
				err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					got, inserted, err = pgxstore.InsertOnce(t.Context(), tx, in, scan)
					return err
				})
				return got, inserted, err
			},
		} {
			name := fmt.Sprint(how, async)
			in := pgxstore.Insert{Table: schema + ".effect", Columns: []string{"name", "n"}, Values: []any{name, 7}, Key: []string{"name"}, Returning: []string{"name", "n"}, AsyncCommit: async}
			got, inserted, err := insert(in, func(r pgxstore.Row) (string, error) {
				var name string
				var n int64
				err := r.Scan(&name, &n)
				return fmt.Sprint(name, n), err
			})
			if err != nil || !inserted || got != name+"7" {
				t.Errorf("%s: %q, %v, %v", name, got, inserted, err)
			}
			sawOnly(t, schema, name, map[bool]string{false: "read committed, on", true: "read committed, off"}[async])
		}
	}
}

// Unrelated keys do not fail for each other's sake, where the connection's default is serializable or was SET so after
// its first use.
func TestUnrelatedKeysUnderSerializable(t *testing.T) {
	t.Parallel()
	t.Run("by the URL", func(t *testing.T) {
		t.Parallel()
		fromURL := func(c *pgx.ConnConfig) { c.RuntimeParams["default_transaction_isolation"] = "serializable" }
		both(t, setup{config: fromURL, conns: 16}, testUnrelatedKeys[pgx.Tx], testUnrelatedKeys[*sql.Tx])
	})
	t.Run("by SET", func(t *testing.T) {
		t.Parallel()
		both(t, setup{conns: 16}, testUnrelatedKeysAfterSet[pgx.Tx], testUnrelatedKeysAfterSet[*sql.Tx])
	})
}

func testUnrelatedKeysAfterSet[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	var using, all sync.WaitGroup
	using.Add(16)
	for range 16 { // all connections, which are in use at the same time
		all.Go(func() {
			tx, err := h.begin(ctx, sql.LevelDefault)
			if err == nil {
				err = h.exec(ctx, tx, "SET default_transaction_isolation = serializable")
			}
			using.Done()
			using.Wait()
			if err = errors.Join(err, h.commit(ctx, tx)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	testUnrelatedKeys(t, h)
}

func testUnrelatedKeys[Tx any](t *testing.T, h *handle[Tx]) {
	const callers, keys = 32, 4
	ctx := t.Context()
	var group sync.WaitGroup
	for c := range callers {
		group.Go(func() {
			for i := range keys {
				res, err := h.store.Claim(ctx, claimOf(everonce.Key{Scope: "unrelated", ID: strconv.Itoa(c*keys + i)}))
				if err != nil || res.Decision != driver.DecideClaimed {
					t.Errorf("claim: %v, %v", res.Decision, err)
					return
				}
				rec := res.Record
				step := driver.StepRecord{Name: "s", State: driver.StepDone, Attempt: 1}
				_, stepErr := h.store.SaveStep(ctx, driver.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Step: step})
				done := completionOf(&rec, "v")
				done.Lifetime = driver.Lifetime{Retention: time.Microsecond}
				_, doneErr := h.store.Complete(ctx, done)
				_, purgeErr := h.store.Purge(ctx, driver.PurgeRequest{Limit: 3})
				_, getErr := h.store.Get(ctx, driver.GetRequest{ID: rec.ID})
				if err := errors.Join(stepErr, doneErr, purgeErr, getErr); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// Where the default is not read committed, a guarded call is still one round trip through pgx, and three through
// database/sql.
func TestRoundTripsUnderSerializable(t *testing.T) {
	t.Parallel()
	t.Run("pgx", func(t *testing.T) { t.Parallel(); testStrictTrips(t, newPgx, 1) })
	t.Run("sql", func(t *testing.T) { t.Parallel(); testStrictTrips(t, newSQL, 3) })
}

func testStrictTrips[Tx any](t *testing.T, handle func(testing.TB, setup) *handle[Tx], want int64) {
	var c turns
	h := handle(t, setup{conns: 1, config: func(config *pgx.ConnConfig) {
		config.RuntimeParams["default_transaction_isolation"] = "serializable"
		c.dial(config)
	}})
	for round, id := range []string{"warm-up", "counted"} {
		var res driver.ClaimResult
		for _, call := range []struct {
			what string
			fn   func() error
		}{
			{"claim", func() (err error) {
				res, err = h.store.Claim(t.Context(), claimOf(everonce.Key{Scope: "trips", ID: id}))
				return err
			}},
			{"complete", func() error { return errOf(h.store.Complete(t.Context(), completionOf(&res.Record, "v"))) }},
			{"replay", func() error { return errOf(h.store.Claim(t.Context(), claimOf(everonce.Key{Scope: "trips", ID: id}))) }},
			{"get", func() error { return errOf(h.store.Get(t.Context(), driver.GetRequest{ID: res.Record.ID})) }},
		} {
			if round == 0 {
				noErr(t, call.fn())
				continue
			}
			c.Of(t, call.what, want, call.fn)
		}
	}
}

// Settings that change how texts are read and written, or which plans are made, change no answer.
func TestSettingsThatDoNotMatter(t *testing.T) {
	t.Parallel()
	odd := map[string]string{
		"standard_conforming_strings": "off", "escape_string_warning": "on", "backslash_quote": "off", "transform_null_equals": "on",
		"datestyle": "German, DMY", "intervalstyle": "sql_standard", "timezone": "Pacific/Apia", "extra_float_digits": "-15", "bytea_output": "escape", "xmlbinary": "hex",
		"enable_seqscan": "off", "enable_indexscan": "off", "enable_bitmapscan": "off", "enable_nestloop": "off", "enable_hashjoin": "off", "enable_material": "off",
		"plan_cache_mode": "force_generic_plan", "jit": "off", "from_collapse_limit": "1", "geqo_threshold": "2", "constraint_exclusion": "on",
		"row_security": "off", "check_function_bodies": "off", "session_replication_role": "replica", "default_transaction_deferrable": "on",
		"default_toast_compression": "pglz", "lc_numeric": "C", "lc_messages": "C", "synchronize_seqscans": "off", "client_min_messages": "error", "quote_all_identifiers": "on",
	}
	// In a mode in which values come as texts, pgx itself needs these two.
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			both(t, setup{config: func(c *pgx.ConnConfig) {
				c.DefaultQueryExecMode = mode
				for name, value := range odd {
					if name != "bytea_output" || mode == pgx.QueryExecModeCacheStatement {
						c.RuntimeParams[name] = value
					}
				}
			}}, testOddSettings[pgx.Tx], testOddSettings[*sql.Tx])
		})
	}
}

func testOddSettings[Tx any](t *testing.T, h *handle[Tx]) {
	testMode(t, h)
	guarded(t, h, "odd")
	ctx := t.Context()
	health, err := h.store.Health(ctx, driver.HealthRequest{})
	noErr(t, err)
	listed, err := h.store.List(ctx, driver.ListRequest{Limit: 100})
	noErr(t, err)
	if health.Completed != int64(len(listed.Records)) || health.Completed == 0 {
		t.Errorf("Health counts %d completed, List has %d", health.Completed, len(listed.Records))
	}
	mustExec(t, "UPDATE "+h.record()+" SET purge_at = 1, result_until = 1, due_at = 1 WHERE name = 'odd'")
	purged, err := h.store.Purge(ctx, driver.PurgeRequest{})
	noErr(t, err)
	for more := true; more; {
		res, err := h.store.DeleteScope(ctx, driver.DeleteScopeRequest{Scope: "modes"})
		noErr(t, err)
		more = res.More
	}
	if n := number(t, "SELECT count(*) FROM "+h.record()+" WHERE name = 'odd' OR scope LIKE 'modes%'"); purged.Records != 1 || n != 0 {
		t.Errorf("purged %d records, %d are left", purged.Records, n)
	}
	if n := number(t, "SELECT count(*) FROM "+h.schema+".everonce_step"); n != 0 {
		t.Errorf("%d steps without a record are left", n)
	}
}

// A connection whose settings would change what statements mean is refused at its first use, before anything is
// written.
func TestSettingsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*pgx.ConnConfig){
		"array_nulls off": func(c *pgx.ConnConfig) { c.RuntimeParams["array_nulls"] = "off" },
		"bytea_output escape": func(c *pgx.ConnConfig) {
			c.DefaultQueryExecMode, c.RuntimeParams["bytea_output"] = pgx.QueryExecModeExec, "escape"
		},
		"accepts no writes": func(c *pgx.ConnConfig) { c.RuntimeParams["default_transaction_read_only"] = "on" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ready := setup{schema: newSchema(t)}
			newPgx(t, ready)
			s := setup{schema: ready.schema, config: change, pending: true}
			both(t, s, func(t *testing.T, h *handle[pgx.Tx]) { testRefused(t, h, name) }, func(t *testing.T, h *handle[*sql.Tx]) { testRefused(t, h, name) })
		})
	}
}

func testRefused[Tx any](t *testing.T, h *handle[Tx], why string) {
	r, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	_, claimErr := h.store.Claim(t.Context(), claimOf(testKey))
	_, transactErr := everonce.Transact(t.Context(), r, testKey, func(ctx context.Context, tx Tx) (string, error) { return "v", h.effect(ctx, tx, "charge") })
	for what, err := range map[string]error{"a claim": claimErr, "a transaction": transactErr} {
		if !errors.Is(err, driver.ErrStore) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want a failure of the store that says %q", what, err, why)
		}
	}
	if n := h.effects(t, "charge"); n != 0 {
		t.Errorf("%d effects", n)
	}
}

// Of many that insert one row outside of a transaction one does, and the others find it, whatever the default isolation
// is.
func TestInsertOnceUnderADefaultIsolation(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			const callers, keys = 16, 8
			schema := newSchema(t)
			strict := func(c *pgx.ConnConfig) { c.RuntimeParams["default_transaction_isolation"] = level }
			pool, db := newPool(t, strict, callers/2), newDB(t, strict)
			var ran atomic.Int64
			for i := range keys {
				in := pgxstore.Insert{Table: schema + ".effect", Columns: []string{"name", "n"}, Key: []string{"name"}, Returning: []string{"n"}, Values: []any{strconv.Itoa(i), 1}}
				scan := func(r pgxstore.Row) (n int64, err error) { return n, r.Scan(&n) }
				var group sync.WaitGroup
				for c := range callers {
					group.Go(func() {
						var inserted bool
						var err error
						if c%2 == 0 {
							_, inserted, err = pgxstore.InsertOnce(t.Context(), pool, in, scan)
						} else {
							_, inserted, err = pgxstore.InsertOnceSQL(t.Context(), db, in, scan)
						}
						if err != nil {
							t.Error(err)
						}
						if inserted {
							ran.Add(1)
						}
					})
				}
				group.Wait()
			}
			if ran.Load() != keys {
				t.Errorf("%d of %d rows were inserted", ran.Load(), keys)
			}
		})
	}
}
