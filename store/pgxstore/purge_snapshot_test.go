package pgxstore_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/pgxstore"
)

// While a transaction is open that may still read what is deleted (a backup, a report), a purge of many batches does
// not walk over all that the batches before it have deleted.
func TestPurgeBesideAnOldSnapshot(t *testing.T) {
	t.Parallel()
	const rows, limit = 3000, 100
	for _, whole := range []bool{true, false} {
		pool := newPool(t, nil, 1)
		schema := newSchema(t)
		store, err := pgxstore.New(pool, &pgxstore.Options{Schema: schema})
		noErr(t, err)
		noErr(t, store.Migrate(t.Context()))
		gone := "2"
		if !whole { // the result only
			gone = "9000000000000000"
		}
		mustExec(t, `INSERT INTO `+schema+`.everonce_record (id, scope, name, token, rev, created_at, updated_at, due_at, result_until, purge_at, attempt, steps, state, format, nonce, result_kind, result_data)
			SELECT sha256(g::text::bytea), 's', g::text, 1, 1, 1, 1, g, g, `+gone+`, 1, 0, 4, 1, '\x01', 1, '\x01' FROM generate_series(1, $1::int) AS g`, rows)
		report, err := admin(t).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		noErr(t, err)
		_, err = report.Exec(t.Context(), "SELECT count(*) FROM "+schema+".everonce_record")
		noErr(t, err)

		purged, calls := 0, 0
		for more := true; more; calls++ {
			res, err := store.Purge(t.Context(), driver.PurgeRequest{Limit: limit})
			noErr(t, err)
			purged, more = purged+res.Results+res.Records, res.More
		}
		if purged != rows || calls > rows/limit+1 {
			t.Errorf("%d were purged by %d calls, want %d", purged, calls, rows)
		}
		_, err = pool.Exec(t.Context(), "SELECT pg_stat_force_next_flush()")
		noErr(t, err)
		read := number(t, "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE schemaname = $1 AND indexrelname = 'everonce_record_due'", schema)
		if read < rows || read > 6*rows {
			t.Errorf("whole: %v: a purge of %d rows by %d read %d entries of the index", whole, rows, limit, read)
		}
		noErr(t, report.Rollback(t.Context()))
	}
}

// A record that another transaction held when a purge passed it is removed by the end of the round, wherever the purge
// had got to.
func TestPurgeComesBackForWhatWasLocked(t *testing.T) {
	t.Parallel()
	h := newPgx(t, setup{})
	const rows = 30
	mustExec(t, `INSERT INTO `+h.record()+` (id, scope, name, token, rev, created_at, updated_at, due_at, result_until, purge_at, attempt, steps, state, format, nonce, result_kind)
		SELECT sha256(g::text::bytea), 's', g::text, 1, 1, 1, 1, g, g, g, 1, 0, 4, 1, '\x01', 1 FROM generate_series(1, $1::int) AS g`, rows)
	other, err := admin(t).Begin(t.Context())
	noErr(t, err)
	defer other.Rollback(t.Context()) //nolint:errcheck // it only holds a lock
	_, err = other.Exec(t.Context(), "SELECT FROM "+h.record()+" WHERE name = '1' FOR UPDATE")
	noErr(t, err)
	purge := func(limit, want int, more bool) {
		t.Helper()
		res, err := h.store.Purge(t.Context(), driver.PurgeRequest{Limit: limit})
		noErr(t, err)
		if res.Records != want || res.More != more {
			t.Errorf("purged %+v, want %d, and more: %v", res, want, more)
		}
	}
	purge(10, 10, true)
	noErr(t, other.Rollback(t.Context()))
	purge(10, 10, true)
	purge(10, 10, true) // the last nine, and the one that was locked
	purge(10, 0, false)
}

// Damaged records may not be removed. A purge looks at each of them once in a round, however many there are, also where
// all of them are due at the same time: no batch grows with them, and records that are due behind them are removed.
func TestPurgeBesideWhatStays(t *testing.T) {
	t.Parallel()
	const stay, gone, limit = 2000, 300, 100
	for _, together := range []bool{false, true} {
		pool := newPool(t, nil, 1)
		schema := newSchema(t)
		store, err := pgxstore.New(pool, &pgxstore.Options{Schema: schema})
		noErr(t, err)
		noErr(t, store.Migrate(t.Context()))
		due := "g"
		if together {
			due = "1"
		}
		mustExec(t, `INSERT INTO `+schema+`.everonce_record (id, scope, name, token, rev, created_at, updated_at, due_at, lease_until, purge_at, attempt, steps, state, format, nonce)
			SELECT sha256(g::text::bytea), 's', g::text, 1, 1, 1, 1, `+due+`, CASE WHEN g > $1 THEN 1 END, 1, 1, 0, 1, 1, '\x01' FROM generate_series(1, $1::int + $2) AS g`, stay, gone)
		for range 2 {
			_, err = pool.Exec(t.Context(), "SELECT pg_stat_force_next_flush()")
			noErr(t, err)
			read := func() int64 {
				return number(t, "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE schemaname = $1 AND indexrelname = 'everonce_record_due'", schema)
			}
			before, removed, calls := read(), 0, 0
			for more := true; more; calls++ {
				res, err := store.Purge(t.Context(), driver.PurgeRequest{Limit: limit})
				noErr(t, err)
				removed, more = removed+res.Records, res.More
				if calls > 2*(stay+gone)/limit {
					t.Fatal("a round of a purge does not end")
				}
			}
			_, err = pool.Exec(t.Context(), "SELECT pg_stat_force_next_flush()")
			noErr(t, err)
			if n := read() - before; !together && n > 6*(stay+gone) {
				t.Errorf("a purge by %d beside %d that stay read %d entries of the index", limit, stay, n)
			}
			if left := number(t, "SELECT count(*) FROM "+schema+".everonce_record"); left != stay {
				t.Errorf("together %v: %d records were removed, and %d are left, want the %d that may not be", together, removed, left, stay)
			}
		}
	}
}

// Nor is it left where more records lie before it than a batch has which may not be removed: each round begins at the
// beginning.
func TestPurgeComesBackBehindWhatStays(t *testing.T) {
	t.Parallel()
	h := newPgx(t, setup{})
	const stay, rows, limit = 5, 10, 2
	mustExec(t, `INSERT INTO `+h.record()+` (id, scope, name, token, rev, created_at, updated_at, due_at, lease_until, purge_at, attempt, steps, state, format, nonce)
		SELECT sha256(g::text::bytea), 's', g::text, 1, 1, 1, 1, g, CASE WHEN g > $1 THEN 1 END, 1, 1, 0, 1, 1, '\x01' FROM generate_series(1, $1::int + $2) AS g`, stay, rows)
	other, err := admin(t).Begin(t.Context())
	noErr(t, err)
	defer other.Rollback(t.Context()) //nolint:errcheck // it only holds a lock
	_, err = other.Exec(t.Context(), "SELECT FROM "+h.record()+" WHERE due_at = $1 FOR UPDATE", stay+1)
	noErr(t, err)
	for _, want := range []int{rows - 1, 1, 0} {
		removed := 0
		for more := true; more; {
			res, err := h.store.Purge(t.Context(), driver.PurgeRequest{Limit: limit})
			noErr(t, err)
			removed, more = removed+res.Records, res.More
		}
		if removed != want {
			t.Errorf("a round has removed %d records, want %d", removed, want)
		}
		_ = other.Rollback(t.Context()) //nolint:errcheck // after the first round it is over
	}
}
