package sqlstore

import "github.com/everonce/everonce/internal/sqldb"

import "strings"

// nth is the n-th of values of one length that stand in one argument, one behind the other.
func nth(arg, n, length string) string {
	return "substring(" + arg + " FROM CAST((" + n + " - 1) * " + length + " + 1 AS INTEGER) FOR " + length + ")"
}

// readLockedAll tries all the locks before it reads anything. Each record is looked for separately, behind a fence: the
// planner does not know how many there are, and would rather read the whole table.
func (w writer) readLockedAll() *sqldb.Statement {
	return w.rows("read_locked_all", 2, "WITH tried AS MATERIALIZED (SELECT k.n, k.id, "+w.TryLock("k.id")+" AS locked FROM (SELECT g.n, "+
		nth("{1b}", "g.n", "32")+" AS id FROM generate_series(1, {2i}) AS g (n) OFFSET 0) AS k) "+
		"SELECT clock.now, "+oneIf("r.locked")+", r.n, "+qualifiedColumns+
		" FROM "+w.from()+" LEFT JOIN (SELECT tried.n, tried.locked, f.* FROM tried LEFT JOIN LATERAL "+
		"(SELECT * FROM {record} WHERE id = tried.id OFFSET 0) AS f ON true) AS r ON r.id IS NOT NULL OR NOT r.locked")
}

// finishAll takes what is the same for all once, what has one length in one argument, and the rest as arrays.
func (w writer) finishAll() *sqldb.Statement {
	values := strings.NewReplacer("{1b}", nth("{1b}", "u.n", "32"), "{4t}", "u.name", "{5i}", "u.token", "{6b}", nth("{6b}", "u.n", "16"),
		"{9b}", nth("{9b}", "u.n", "32"), "{13b}", "u.data", "{14b}", "u.summary").Replace(finishValues)
	return w.rows("finish_all", 16, "INSERT INTO {record} ("+finishColumns+") SELECT "+timed(values, "clock.now")+" FROM "+w.fromToWrite()+
		", ROWS FROM (unnest({4t}::text[]), unnest({5t}::bigint[]), unnest({13t}::bytea[]), unnest({14t}::bytea[])) "+
		"WITH ORDINALITY AS u (name, token, data, summary, n) WHERE u.n <= {2i} ON CONFLICT (id) DO NOTHING RETURNING 1")
}
