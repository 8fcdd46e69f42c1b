package pgxstore_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/pgxstore"
)

// expire makes records be over: their results, and the records too if whole.
func expire(t *testing.T, record string, whole bool) {
	t.Helper()
	past := time.Now().Add(-time.Hour).UnixMicro()
	mustExec(t, "UPDATE "+record+" SET result_until = $1, due_at = $1", past)
	if whole {
		mustExec(t, "UPDATE "+record+" SET purge_at = $1", past)
	}
}

func finished[Tx any](t *testing.T, h *handle[Tx], id string) driver.Record {
	t.Helper()
	res, err := h.store.Claim(t.Context(), claimOf(everonce.Key{Scope: "purge", ID: id}))
	rec := decided(t, res, err, driver.DecideClaimed).Record
	_, err = h.store.Complete(t.Context(), completionOf(&rec, "v"))
	noErr(t, err)
	return rec
}

// A purge that waited for a row would remove the key that was claimed in the meantime, or hold up what
// holds it: it passes over locked rows.
func TestPurgePassesOverLockedRows(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testPurgeLocked[pgx.Tx], testPurgeLocked[*sql.Tx])
}

func testPurgeLocked[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	locked, free := finished(t, h, "locked"), finished(t, h, "free")
	for _, whole := range []bool{false, true} {
		expire(t, h.record(), whole)
		other, err := admin(t).Begin(ctx)
		noErr(t, err)
		defer other.Rollback(ctx) //nolint:errcheck // it only holds a lock
		_, err = other.Exec(ctx, "SELECT FROM "+h.record()+" WHERE id = $1 FOR UPDATE", locked.ID[:])
		noErr(t, err)
		atOnce(t, "a purge beside a locked row", func() {
			res, err := h.store.Purge(ctx, driver.PurgeRequest{Limit: 10})
			noErr(t, err)
			if got := res.Results + res.Records; got != 1 || res.More {
				t.Errorf("whole: %v: purged %+v, want one", whole, res)
			}
		})
		noErr(t, other.Rollback(ctx))
		res, err := h.store.Purge(ctx, driver.PurgeRequest{Limit: 10})
		noErr(t, err)
		if got := res.Results + res.Records; got != 1 {
			t.Errorf("whole: %v: then purged %+v, want the other", whole, res)
		}
	}
	for _, rec := range []driver.Record{locked, free} {
		if n := number(t, "SELECT count(*) FROM "+h.record()+" WHERE id = $1", rec.ID[:]); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	}
}

// The removing statement repeats its predicate: a row that becomes another between the choice and the removal is left
// alone. The rows are locked late by a claim that runs beside the purge.
func TestPurgeLeavesWhatWasClaimedAnew(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testPurgeReclaimed[pgx.Tx], testPurgeReclaimed[*sql.Tx])
}

func testPurgeReclaimed[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	const keys, rounds = 20, 10
	for round := range rounds {
		for i := range keys {
			finished(t, h, fmt.Sprint(round, "/", i))
		}
		expire(t, h.record(), true)
		claimed := make(chan map[string]driver.Record)
		go func() {
			got := map[string]driver.Record{}
			for i := range keys {
				id := fmt.Sprint(round, "/", i)
				res, err := h.store.Claim(ctx, claimOf(everonce.Key{Scope: "purge", ID: id}))
				if err != nil || res.Decision != driver.DecideClaimed {
					t.Errorf("claim: %v, %v", res.Decision, err)
				}
				got[id] = res.Record
			}
			claimed <- got
		}()
		for range keys {
			_, err := h.store.Purge(ctx, driver.PurgeRequest{Limit: 2})
			noErr(t, err)
		}
		for id, rec := range <-claimed {
			if _, err := h.store.Complete(ctx, completionOf(&rec, "second")); err != nil {
				t.Errorf("%s was claimed and is gone: %v", id, err)
			}
		}
	}
}

// A purge of many is bounded by its limit, and several at once neither wait for nor deadlock each other.
func TestPurgesAtOnce(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testPurgesAtOnce[pgx.Tx], testPurgesAtOnce[*sql.Tx])
}

func testPurgesAtOnce[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	const rows, limit, purgers = 3000, 100, 4
	rec := finished(t, h, "model")
	mustExec(t, `INSERT INTO `+h.record()+` (id, scope, name, token, rev, created_at, updated_at, purge_at, due_at, attempt, steps, state, format, nonce, result_kind)
		SELECT sha256(g::text::bytea), scope, g::text, token, rev, created_at, updated_at, purge_at, due_at, attempt, 1, state, format, nonce, result_kind
		FROM `+h.record()+`, generate_series(1, $1::int) AS g WHERE id = $2`, rows, rec.ID[:])
	mustExec(t, "INSERT INTO "+h.schema+".everonce_step (id, name, seq, began_at, attempt, state) SELECT id, 's', 1, 1, 1, 2 FROM "+h.record())
	expire(t, h.record(), true)
	type outcome struct {
		records int
		err     error
	}
	outcomes := make(chan outcome)
	for range purgers {
		go func() {
			var o outcome
			for more := true; more && o.err == nil; {
				var res driver.PurgeResult
				res, o.err = h.store.Purge(ctx, driver.PurgeRequest{Limit: limit})
				if res.Records+res.Results > limit {
					o.err = fmt.Errorf("one call purged %+v of a limit of %d", res, limit)
				}
				o.records += res.Records
				more = res.More
			}
			outcomes <- o
		}()
	}
	total := 0
	for range purgers {
		o := <-outcomes
		noErr(t, o.err)
		total += o.records
	}
	// A purger that found only locked rows stopped early, so that some may be left for the next.
	res, err := h.store.Purge(ctx, driver.PurgeRequest{Limit: rows})
	noErr(t, err)
	if total += res.Records; total != rows+1 {
		t.Errorf("%d records were purged, want %d", total, rows+1)
	}
	if n := number(t, "SELECT count(*) FROM "+h.schema+".everonce_step"); n != 0 {
		t.Errorf("%d steps are left", n)
	}
}

// A deletion passes over locked rows too, and says that there are more: who forgets a tenant must not take a record
// for deleted that a purge, say, held just then.
func TestDeleteScopeTellsOfLockedRows(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testDeleteScopeLocked[pgx.Tx], testDeleteScopeLocked[*sql.Tx])
}

func testDeleteScopeLocked[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	locked := finished(t, h, "locked")
	finished(t, h, "free")
	_, err := h.store.Claim(ctx, claimOf(everonce.Key{Scope: "purge", ID: "live"}))
	noErr(t, err)
	_, err = h.store.Claim(ctx, claimOf(everonce.Key{Scope: "purge2", ID: "another's"}))
	noErr(t, err)
	other, err := admin(t).Begin(ctx)
	noErr(t, err)
	defer other.Rollback(ctx) //nolint:errcheck // it only holds a lock
	_, err = other.Exec(ctx, "SELECT FROM "+h.record()+" WHERE id = $1 FOR UPDATE", locked.ID[:])
	noErr(t, err)
	for _, more := range []bool{true, false} {
		atOnce(t, "a deletion beside a locked row", func() {
			res, err := h.store.DeleteScope(ctx, driver.DeleteScopeRequest{Scope: "purge"})
			noErr(t, err)
			if res.Records != 1 || res.More != more {
				t.Errorf("deleted %+v, want one, and more: %v", res, more)
			}
		})
		if more {
			noErr(t, other.Rollback(ctx))
		}
	}
}

// A tenant is found and forgotten whole in a database that counts bytes where others count letters, too.
func TestScopesInADatabaseWithoutAnEncoding(t *testing.T) {
	t.Parallel()
	name := "ascii_" + random(t)
	mustExec(t, "CREATE DATABASE "+name+" ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	t.Cleanup(func() { mustExec(t, "DROP DATABASE "+name+" WITH (FORCE)") })
	h := newPgx(t, setup{opts: pgxstore.Options{Schema: "own"}, config: func(c *pgx.ConnConfig) { c.Database = name }})
	for _, parts := range [][]string{{"müller", "route"}, {"müller"}, {"müllerin", "route"}} {
		res, err := h.store.Claim(t.Context(), claimOf(everonce.Key{Scope: driver.ScopeOf(parts...), ID: "order-7"}))
		rec := decided(t, res, err, driver.DecideClaimed).Record
		_, err = h.store.Complete(t.Context(), completionOf(&rec, "v"))
		noErr(t, err)
	}
	list, err := h.store.List(t.Context(), driver.ListRequest{Scope: "müller"})
	noErr(t, err)
	if len(list.Records) != 2 {
		t.Errorf("%d records of the tenant, want 2", len(list.Records))
	}
	gone, err := h.store.DeleteScope(t.Context(), driver.DeleteScopeRequest{Scope: "müller"})
	noErr(t, err)
	if gone.Records != 2 || gone.More {
		t.Errorf("deleted %+v, want 2", gone)
	}
}
