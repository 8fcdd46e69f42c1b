package patterntest

import (
	"context"
	"database/sql"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// bug is a fault that is planted in the text of a statement.
type bug struct {
	statement, part, instead string
}

// text is [tampering.text] with the bug. It panics if there is no place for it: then the test would be blind.
func (b bug) text(name, text string) string {
	if b.statement == "" || name != b.statement {
		return text
	}
	found := regexp.MustCompile(b.part)
	if !found.MatchString(text) {
		panic("no place for the bug in: " + text)
	}
	return found.ReplaceAllString(text, b.instead)
}

// The bugs, of which each makes one audit fail.
var (
	noBug          = bug{}
	sequenceCursor = bug{"outbox_claim", `q\.order_key = '' AND`, `q.order_key = '' AND q.seq > (SELECT coalesce(max(c.seq), 0) FROM TABLE AS c WHERE c.state = 4) AND`}
	markFirst      = bug{"outbox_claim", `SET token = `, `SET state = 4, done_at = 1, token = `}
	noHeads        = bug{"outbox_claim", `NOT EXISTS \(SELECT 1`, `EXISTS (SELECT 1 WHERE 1 = 1) OR EXISTS (SELECT 1`}
	noLease        = bug{"outbox_claim", `AND q\.due_at <= \S+`, ``}
	noToken        = bug{"outbox_finish", `q\.token = (\S+)`, `$1 IS NOT NULL`}
	noCount        = bug{"outbox_claim", `THEN attempts \+ 1`, `THEN attempts`}
	noLocks        = bug{"outbox_claim_free", `FOR UPDATE SKIP LOCKED`, ``}                        // of MariaDB, as the next
	noFirst        = bug{"outbox_claim", `ORDER BY p\.seq LIMIT 1`, `ORDER BY p.seq DESC LIMIT 1`} // claims begin at the end of a line
)

// planted runs an audit with a bug.
func planted[Tx any](t *testing.T, name string, b bug, found string, open func(testing.TB) *handle[Tx], audit func(ctx context.Context, t *testing.T, h *handle[Tx]) error) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		limit := hung
		if strings.Contains(found, errDidNotCome.Error()) {
			limit = inVain
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		h := open(t)
		b := b
		b.instead = strings.ReplaceAll(b.instead, "TABLE", h.sqldb(t).Dialect().Table("outbox"))
		err := audit(ctx, t, tampered(t, h, &tampering{text: b.text}))
		if err == nil || !regexp.MustCompile(found).MatchString(err.Error()) {
			t.Errorf("the audit did not find the bug: %v", err)
		}
	})
}

// Audits without a bug find nothing.
func TestAudits(t *testing.T) {
	t.Parallel()
	t.Run("a transaction that stays open", func(t *testing.T) {
		audited(t, "pgx", onPgx, auditOpenTransaction[pgx.Tx])
		audited(t, "postgres", onPostgres, auditOpenTransaction[*sql.Tx])
		audited(t, "mariadb", onMariaDB, auditOpenTransaction[*sql.Tx])
		if hasMySQL {
			audited(t, "mysql", onMySQL, auditOpenTransaction[*sql.Tx])
		}
	})
	all := []struct {
		name string
		pgx  func(ctx context.Context, t *testing.T, h *handle[pgx.Tx]) error
		sql  func(ctx context.Context, t *testing.T, h *handle[*sql.Tx]) error
	}{
		{"nothing comes before what stands before it", auditHeads[pgx.Tx], auditHeads[*sql.Tx]},
		{"nothing is in two hands", auditNothingTwiceInHand[pgx.Tx], auditNothingTwiceInHand[*sql.Tx]},
		{"a paused relay", pausedRelay[pgx.Tx](noBug), pausedRelay[*sql.Tx](noBug)},
		{"the budget", auditBudget[pgx.Tx], auditBudget[*sql.Tx]},
	}
	for _, a := range all {
		t.Run(a.name, func(t *testing.T) {
			audited(t, "pgx", onPgx, a.pgx)
			audited(t, "postgres", onPostgres, a.sql)
			audited(t, "mariadb", onMariaDB, a.sql)
			if hasMySQL {
				audited(t, "mysql", onMySQL, a.sql)
			}
			audited(t, "sqlite", onSQLite, a.sql)
		})
	}
}

func audited[Tx any](t *testing.T, name string, open func(testing.TB) *handle[Tx], audit func(ctx context.Context, t *testing.T, h *handle[Tx]) error) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), hung)
		defer cancel()
		if err := audit(ctx, t, open(t)); err != nil {
			t.Error(err)
		}
	})
}

func pausedRelay[Tx any](b bug) func(ctx context.Context, t *testing.T, h *handle[Tx]) error {
	return func(ctx context.Context, t *testing.T, h *handle[Tx]) error {
		return auditPausedRelay(ctx, t, h, b.text)
	}
}

// Each planted bug is found by an audit.
func TestPlantedBugs(t *testing.T) {
	t.Parallel()
	planted(t, "a cursor of sequence numbers", sequenceCursor, errDidNotCome.Error(), onPgx, auditOpenTransaction[pgx.Tx])
	planted(t, "mark before publish", markFirst, "came after|"+errDidNotCome.Error(), onPgx, auditHeads[pgx.Tx])
	planted(t, "claims without heads", noHeads, "came after", onSQLite, auditHeads[*sql.Tx])
	planted(t, "claims of claimed events", noLease, "in two hands", onSQLite, auditNothingTwiceInHand[*sql.Tx])
	planted(t, "marks without a token", noBug, "has marked", onPgx, pausedRelay[pgx.Tx](noToken))
	planted(t, "tries that are not counted", noCount, "with a budget", onSQLite, auditBudget[*sql.Tx])
	planted(t, "claims without locks, MariaDB", noLocks, "in two hands", onMariaDB, auditNothingTwiceInHand[*sql.Tx])
	planted(t, "claims without heads, MariaDB", noFirst, "came after", onMariaDB, auditHeads[*sql.Tx])
}
