package pgxstore_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/pgxstore"
)

// While a transaction is open that may still read what is deleted (a backup, a report), a purge of many batches does not walk
// over all that the batches before it have deleted.
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
			res, err := store.Purge(t.Context(), everonce.PurgeRequest{Limit: limit})
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

// What another transaction held when a purge passed it is removed by the end of the round, wherever the purge had got to.
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
		res, err := h.store.Purge(t.Context(), everonce.PurgeRequest{Limit: limit})
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
