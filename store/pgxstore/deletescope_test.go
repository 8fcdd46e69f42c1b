package pgxstore_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/driver"
)

// deletions are the IDs behind which records of a scope were deleted.
type deletions struct{ behind [][]byte }

func (d *deletions) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, "DELETE FROM") && len(q.Args) == 6 {
		d.behind = append(d.behind, bytes.Clone(q.Args[0].([]byte)))
	}
	return ctx
}

func (*deletions) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A call continues where the call before it stopped. An old transaction still sees the deleted rows, and without this
// each call would walk over all of them. Records that appear meanwhile before that place are deleted too.
func TestDeleteScopeGoesOn(t *testing.T) {
	t.Parallel()
	var asked deletions
	h := newPgx(t, setup{conns: 1, config: func(c *pgx.ConnConfig) { c.Tracer = &asked }})
	const n, late, limit = 30, 20, 10
	for i := range n {
		finished(t, h, fmt.Sprint(i))
	}
	deleted := 0
	for calls := 1; ; calls++ {
		res, err := h.store.DeleteScope(t.Context(), driver.DeleteScopeRequest{Scope: "purge", Limit: limit})
		noErr(t, err)
		if deleted += res.Records; !res.More {
			break
		}
		if calls == n/limit {
			for i := range late {
				finished(t, h, fmt.Sprint("late ", i))
			}
		}
	}
	left := number(t, "SELECT count(*) FROM "+h.record())
	if deleted != n+late || left != 0 {
		t.Errorf("%d records were deleted, and %d are left, of %d", deleted, left, n+late)
	}
	if len(asked.behind) < n/limit {
		t.Fatalf("%d statements deleted: the test is blind", len(asked.behind))
	}
	for i := range n/limit - 1 {
		if bytes.Compare(asked.behind[i], asked.behind[i+1]) >= 0 {
			t.Errorf("call %d looks behind %x, and the next one behind %x", i+1, asked.behind[i], asked.behind[i+1])
		}
	}
}
