package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// batchOf are n keys that were never used, and what is to be done about them adds an effect for each.
func batchOf[Tx any](t testing.TB, h *handle[Tx], n int) ([]everonce.BatchItem, everonce.BatchWork[[]byte, Tx]) {
	items := make([]everonce.BatchItem, n)
	for i := range items {
		items[i] = everonce.BatchItem{
			Key: everonce.Key{Scope: "batch/o'scope", ID: fmt.Sprintf(`o'key\ "ü" %d %s`, i, random(t))}, Fingerprint: everonce.FingerprintOf(i),
		}
	}
	return items, everonce.EachItem(func(ctx context.Context, tx Tx, i int) ([]byte, error) {
		return []byte("\x00\xff'\\binary\x00"), h.effect(ctx, tx, items[i].Key.ID)
	})
}

func transactBatch[Tx any](t testing.TB, h *handle[Tx], items []everonce.BatchItem, work everonce.BatchWork[[]byte, Tx], want everonce.Outcome) {
	t.Helper()
	receiver, err := everonce.NewTxReceiver(h.store, &everonce.Options{Codec: everonce.Raw()})
	noErr(t, err)
	all, err := everonce.TransactBatch(t.Context(), receiver, items, work)
	noErr(t, err)
	for i, res := range all {
		if res.Outcome != want || string(res.Value) != "\x00\xff'\\binary\x00" || h.effects(t, items[i].Key.ID) != 1 {
			t.Errorf("item %d: %v, %q, %v, with %d effects", i, res.Outcome, res.Value, res.Err, h.effects(t, items[i].Key.ID))
		}
	}
}

// Every mode in which pgx may be set up to send statements can send a batch.
func TestBatchInQueryExecModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			both(t, setup{config: func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = mode }}, testBatchMode[pgx.Tx], testBatchMode[*sql.Tx])
		})
	}
}

func testBatchMode[Tx any](t *testing.T, h *handle[Tx]) {
	items, work := batchOf(t, h, 5)
	transactBatch(t, h, items, work, everonce.Executed)
	transactBatch(t, h, items, work, everonce.Replayed)
	testBatchConflict(t, h)
}

// A record that came after the claims (past the lock, as only a stranger's program can write one) is a conflict at
// the commit, which takes the whole batch back.
func TestBatchConflict(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testBatchConflict[pgx.Tx], testBatchConflict[*sql.Tx])
}

func testBatchConflict[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	items, _ := batchOf(t, h, 3)
	seed := everonce.Key{Scope: "seed", ID: random(t)}
	res, err := h.store.Claim(ctx, claimOf(seed))
	rec := decided(t, res, err, driver.DecideClaimed).Record
	reqs := make([]driver.ClaimRequest, len(items))
	for i, item := range items {
		reqs[i] = txClaimOf(item.Key)
	}
	tx, _, err := h.store.Begin(ctx, driver.BeginRequest{})
	noErr(t, err)
	many := tx.(driver.TxBatch)
	claims, err := many.ClaimAll(ctx, driver.ClaimAllRequest{Claims: reqs})
	noErr(t, err)
	noErr(t, h.effect(ctx, tx.Tx(), items[0].Key.ID))
	_, err = admin(t).Exec(ctx, "UPDATE "+h.schema+".everonce_record SET id = $1 WHERE id = $2", reqs[1].ID[:], rec.ID[:])
	noErr(t, err)
	done := make([]driver.CompleteRequest, len(claims.Claims))
	for i := range claims.Claims {
		done[i] = completionOf(&claims.Claims[i].Record, "v")
	}
	if _, err := many.CommitAll(ctx, driver.CommitAllRequest{Completions: done}); !errors.Is(err, driver.ErrConflict) {
		t.Errorf("the commit answers %v, want %v", err, driver.ErrConflict)
	}
	if n := h.effects(t, items[0].Key.ID); n != 0 {
		t.Errorf("%d effects of a batch that was rolled back", n)
	}
}

// A batch looks up only its own records and never reads the whole table, however many records there are.
func TestBatchReadsNoTable(t *testing.T) {
	t.Parallel()
	h := newPgx(t, setup{conns: 1})
	items, work := batchOf(t, h, 200)
	transactBatch(t, h, items, work, everonce.Executed)
	_, err := admin(t).Exec(t.Context(), "ANALYZE "+h.schema+".everonce_record")
	noErr(t, err)
	for range 8 { // the plan is settled by then
		items, work := batchOf(t, h, 50)
		transactBatch(t, h, items, work, everonce.Executed)
	}
	tx, err := h.begin(t.Context(), 0)
	noErr(t, err)
	defer h.abort(t.Context(), tx) //nolint:errcheck // it has only read
	var name string
	noErr(t, tx.QueryRow(t.Context(), "SELECT name FROM pg_prepared_statements WHERE statement LIKE 'WITH tried AS%'").Scan(&name))
	_, err = tx.Exec(t.Context(), "SET LOCAL plan_cache_mode = force_generic_plan")
	noErr(t, err)
	rows, err := tx.Query(t.Context(), `EXPLAIN EXECUTE "`+name+`" ('\x00', 1)`, pgx.QueryExecModeSimpleProtocol)
	noErr(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	noErr(t, err)
	if text := strings.Join(plan, "\n"); !strings.Contains(text, "Index Scan using everonce_record_pkey") || strings.Contains(text, "Seq Scan on everonce_record") {
		t.Errorf("the plan is\n%s", text)
	}
}

// A constraint that the database checks only at the commit fails one message. Its neighbours are committed.
func TestBatchWhoseCommitTheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testBatchRefusedCommit[pgx.Tx], testBatchRefusedCommit[*sql.Tx])
}

func testBatchRefusedCommit[Tx any](t *testing.T, h *handle[Tx]) {
	const poison = 3
	mustExec(t, "CREATE TABLE "+h.schema+".child (name text REFERENCES "+h.schema+".effect (name) DEFERRABLE INITIALLY DEFERRED)")
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	items, _ := batchOf(t, h, 10)
	all, err := everonce.TransactBatch(t.Context(), receiver, items, everonce.EachItem(func(ctx context.Context, tx Tx, i int) (int, error) {
		if i == poison {
			return 0, h.exec(ctx, tx, "INSERT INTO "+h.schema+".child VALUES ('orphan')")
		}
		return 0, h.effect(ctx, tx, items[i].Key.ID)
	}))
	noErr(t, err)
	for i, res := range all {
		want, effects := everonce.Executed, int64(1)
		if i == poison {
			want, effects = everonce.Failed, 0
		}
		if got := h.effects(t, items[i].Key.ID); res.Outcome != want || got != effects {
			t.Errorf("item %d: %v, %v, with %d effects", i, res.Outcome, res.Err, got)
		}
	}
}
