package patterntest

import (
	"strings"
	"testing"

	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// TestMarksReadThePrimaryKey: the index of pending rows is small by its statistics, but while an old snapshot is held
// it has an entry for every row since. A mark that goes through it takes seconds then.
func TestMarksReadThePrimaryKey(t *testing.T) {
	t.Parallel()
	h := onPgx(t)
	newOutbox(t, h)
	if _, err := h.db.ExecContext(t.Context(), `INSERT INTO everonce_outbox (id, topic, order_key, type, content_type, headers, payload, state, attempts, rank, due_at, created_at, done_at, token, error)
		SELECT g::text, 't', '', '', '', '', '', CASE WHEN g > 4990 THEN 0 ELSE 4 END, 1, g, g, g, g, 0, '' FROM generate_series(1, 5000) AS g`); err != nil {
		t.Fatal(err)
	}
	if _, err := h.db.ExecContext(t.Context(), "ANALYZE everonce_outbox"); err != nil {
		t.Fatal(err)
	}
	db, _ := sqldb.Of(h.store)
	q := sqlqueue.New(db, sqlqueue.Spec{Table: "outbox", Group: "topic", Lane: "topic"})
	var ends []sqlqueue.End
	for seq := range int64(100) {
		ends = append(ends, sqlqueue.End{Seq: 4900 + seq})
	}
	for _, call := range q.Ends(1, ends...) {
		rows, err := h.db.QueryContext(t.Context(), "EXPLAIN "+call.Statement.Text, call.Args...)
		if err != nil {
			t.Fatal(err)
		}
		var plan strings.Builder
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				t.Fatal(err)
			}
			plan.WriteString(line + "\n")
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(plan.String(), "everonce_outbox_due") {
			t.Errorf("%s reads the index of pending rows:\n%s", call.Statement.Name, plan.String())
		}
	}
}
