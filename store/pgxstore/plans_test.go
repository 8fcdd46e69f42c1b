package pgxstore_test

import (
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/store/pgxstore"
)

// multiplied fills the table with copies of one completed record.
func multiplied(t *testing.T, h *handle[pgx.Tx]) {
	t.Helper()
	rec := finished(t, h, "model")
	mustExec(t, `INSERT INTO `+h.record()+` (id, scope, name, token, rev, created_at, updated_at, purge_at, due_at, attempt, steps, state, format, nonce, result_kind, result_until)
		SELECT sha256(g::text::bytea), scope, g::text, token, rev, created_at, updated_at, purge_at, due_at, attempt, 0, state, format, nonce, result_kind, result_until
		FROM `+h.record()+`, generate_series(1, 20000) AS g WHERE id = $1`, rec.ID[:])
}

func explained(t *testing.T, text string, args ...any) string {
	t.Helper()
	rows, err := admin(t).Query(t.Context(), "EXPLAIN "+text, args...)
	noErr(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	noErr(t, err)
	return strings.Join(lines, "\n")
}

// The statement that docs/how-to/millions-of-records.md gives operators is bounded by the index, and not a filter over
// all of it.
func TestTheBacklogIsCountedByItsIndex(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/how-to/millions-of-records.md")
	noErr(t, err)
	text := regexp.MustCompile("`(SELECT count[^`]* WHERE due_at [^`]*)`").FindSubmatch(page)
	if text == nil {
		t.Fatal("the page has no such statement: the test looks in the wrong place")
	}
	h := newPgx(t, setup{})
	multiplied(t, h)
	mustExec(t, "UPDATE "+h.record()+" SET due_at = 1 WHERE name LIKE '77%'")
	mustExec(t, "ANALYZE "+h.record())
	statement := strings.Replace(string(text[1]), "everonce_record", h.record(), 1)
	if plan := explained(t, statement); !strings.Contains(plan, "everonce_record_due") || !strings.Contains(plan, "Index Cond: (due_at <=") {
		t.Errorf("the backlog is not counted by its index:\n%s", plan)
	}
	if n, want := number(t, statement), number(t, "SELECT count(*) FROM "+h.record()+" WHERE name LIKE '77%'"); n != want || n == 0 {
		t.Errorf("the backlog is %d, want %d", n, want)
	}
}

// A statement that looks at many records finds them by an index, however many others there are: a purge finds the
// records that are due, and an operator finds the records of a tenant and the few that are not completed.
func TestStatementsUseTheirIndexes(t *testing.T) {
	t.Parallel()
	h := newPgx(t, setup{})
	multiplied(t, h)
	mustExec(t, "UPDATE "+h.record()+" SET state = 3 WHERE name LIKE '77%'")
	mustExec(t, "ANALYZE "+h.record())
	texts, err := pgxstore.Texts(&pgxstore.Options{Schema: h.schema})
	noErr(t, err)
	var low, high driver.RecordID
	for i := range high {
		high[i] = math.MaxUint8
	}
	prefix := driver.ScopeRange("tenant")
	first, last := low, high
	copy(first[:], prefix[:])
	copy(last[:], prefix[:])
	everywhere := []any{low[:], low[:], high[:], "", "/"}
	tenant := []any{low[:], first[:], last[:], "tenant", "tenant/"}
	with := func(args []any, more ...any) []any { return append(args[:len(args):len(args)], more...) }
	for _, c := range []struct {
		statement *sqldb.Statement
		args      []any
		index     string
	}{
		{texts.PurgeRecords, []any{int64(1000), int64(0), nil}, "record_due"},
		{texts.PurgeResults, []any{int64(1000), int64(7), "(7,7)"}, "record_due"},
		{texts.PurgePassed, []any{int64(1000), int64(7), "(7,7)"}, "record_due"},
		{texts.List, with(everywhere, int64(100), int64(62)), "record_pkey"},
		{texts.List, with(tenant, int64(100), int64(62)), "record_pkey"},
		{texts.ListOpen, with(everywhere, int64(100), int64(8)), "record_open"},
		{texts.ListOpen, with(tenant, int64(100), int64(8)), "record_open"},
		{texts.ListKey, with(tenant, int64(1), int64(62), nil, "77"), "record_pkey"},
		{texts.DeleteScope, with(tenant, int64(1000)), "record_pkey"},
		{texts.ScopeLeft, tenant, "record_pkey"},
	} {
		plan := explained(t, c.statement.Text, c.args...)
		if !strings.Contains(plan, "using everonce_"+c.index+" ") && !strings.Contains(plan, "on everonce_"+c.index+" ") || strings.Contains(plan, "Seq Scan on everonce_record") {
			t.Errorf("%s is not by %s:\n%s", c.statement.Name, c.index, plan)
		}
		// A choice that is run again for every row would go past its limit.
		if strings.Contains(plan, "SubPlan") {
			t.Errorf("%s chooses its rows more than once:\n%s", c.statement.Name, plan)
		}
	}
}
