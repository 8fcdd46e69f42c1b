package sqlstore

import (
	"cmp"
	"strings"

	"github.com/everonce/everonce/internal/sqldb"
)

// ripe are the records that a purge looks at: records that are due, from a place in the order in which they are due.
// Each has something to be purged, unless it is damaged or a newer version's: the purge passes over such a record. An
// index holds records that are due at the same time in the order of their addresses; to ask for that order would make a
// planner sort. The lower bound is a comparison of rows, for which the index is used as well: two plain bounds look to
// a planner like a small range, to be read whole and sorted.
func (w writer) ripe() string {
	if w.MySQL { // which reads no range by a comparison of rows, and has the primary key in each index
		return "{record} WHERE due_at <= {now} AND due_at >= {2i} AND (due_at > {2i} OR id > UNHEX({3t})) ORDER BY due_at, id"
	}
	return "{record} WHERE due_at <= {now} AND (due_at, " + w.RowID + ") > ({2i}, CAST({3t} AS " + w.RowIDType + ")) ORDER BY due_at"
}

// among is true of the rows r that a sub-select from a table chooses and locks.
func (w writer) among(choice string) string {
	return "r." + w.RowID + " " + w.oneOf("SELECT "+w.RowID+" FROM "+choice+w.skipLocked())
}

// oneOf is true of what a sub-select finds, which is run first and once: a planner that takes what is rare for frequent
// would rather walk over all records in their order, one by one, until a page is full.
func (w writer) oneOf(choice string) string {
	if w.Arrays {
		return "= ANY (ARRAY (" + choice + "))"
	}
	return "IN (" + choice + ")"
}

func (w writer) skipLocked() string {
	if w.SkipLocked == "" {
		return ""
	}
	return " " + w.SkipLocked
}

// selected chooses records by range of IDs and by scope.
const selected = "r.id > {1b} AND r.id >= {2b} AND r.id <= {3b} AND " + inScope

// anywhere is selected for a database that walks over all records by their index where it is offered one, though it
// wants what is not in it, and finds that wherever the record came to lie: in an order of hashes.
const anywhere = "NOT (r.id <= {1b} OR r.id < {2b} OR r.id > {3b}) AND " + inScope

// inScope is true of a scope and those inside it. The length is the database's: some count bytes, not letters.
const inScope = "({4t} = '' OR r.scope = {4t} OR substr(r.scope, 1, length({5t})) = {5t})"

func (w writer) maintenance(s *Statements) {
	const drop = "UPDATE {record} AS r SET result_codec = NULL, result_data = NULL, steps = 0, due_at = r.purge_at, rev = r.rev + 1 WHERE "
	ripe := w.ripe() + " LIMIT {1i}"
	results := w.among(ripe) + " AND " + over
	if w.MySQL {
		w.maintenanceMySQL(s, drop, ripe)
	}
	records := "DELETE FROM {record} AS r WHERE " + w.among(ripe) + " AND {gone}"
	switch {
	case w.MySQL:
	case w.OneStatement:
		clock := clockOf(cmp.Or(w.WriteNow, w.Now), "")
		s.PurgeResults = w.rows("purge_results", 3, clock[:len(clock)-1]+", dropped AS ("+drop+results+" RETURNING r.id, r.result_until), "+
			"steps AS (DELETE FROM {step} AS s USING dropped WHERE s.id = dropped.id) SELECT result_until FROM dropped")
		s.PurgeRecords = w.rows("purge_records", 3, w.removing(records, "due_at"))
	default:
		s.PurgeSteps = w.exec("purge_steps", 3, "DELETE FROM {step} WHERE id IN (SELECT r.id FROM {record} AS r WHERE "+results+")")
		s.PurgeResults = w.exec("purge_results", 3, drop+results)
		s.PurgeRecords = w.exec("purge_records", 3, records)
	}
	s.PurgePassed = w.rows("purge_passed", 3, w.at("SELECT due_at, "+w.rowText()+" FROM "+w.ripe()+" LIMIT 1 OFFSET {1i}"))

	list := func(name string, args int, which string) *sqldb.Statement {
		return w.rows(name, args, w.at("SELECT {now}, 1, 0, "+withoutData(qualifiedColumns)+" FROM {record} AS r WHERE "+which+
			" AND ({7i} & "+stateBit+") <> 0 ORDER BY r.id LIMIT {6i}"))
	}
	s.List, s.ListOpen = list("list", 7, selected), list("list_open", 7, selected+" AND r.state <> 4")
	ofKey := func(name, where string) *sqldb.Statement {
		return list(name, 9, "r.id "+w.oneOf("SELECT r.id FROM {record} AS r WHERE "+where+
			" AND ({8b} IS NULL OR substr(r.id, 9, 8) = {8b}) AND ({9t} = '' OR r.name = {9t})"))
	}
	s.ListKey, s.ListName = ofKey("list_key", selected), ofKey("list_name", anywhere)
	if !w.MySQL {
		s.DeleteScope = w.rows("delete_scope", 6, w.removing("DELETE FROM {record} AS r WHERE "+
			w.among("{record} AS r WHERE "+selected+" AND "+deletable+" ORDER BY r.id LIMIT {6i}")+" AND "+deletable, "id"))
	}
	s.ScopeLeft = w.rows("scope_left", 5, w.at("SELECT count(*), "+countOf(deletable)+", "+countOf(live)+", "+countOf(newer)+" FROM {record} AS r WHERE "+selected))
	s.Remove = w.exec("remove", 1, "DELETE FROM {record} WHERE id = {1b}")
	// The limit, which limits nothing, makes the server compute a state once, and not for each count.
	s.Health = w.rows("health", 0, w.at("SELECT {now}, "+countOf("b = 2")+", "+countOf("b = 8")+", "+countOf("b = 4")+", "+
		countOf("b = 16 OR b = 32")+", "+countOf("b = "+anyState)+", min(CASE WHEN b = 8 THEN updated_at END) "+
		"FROM (SELECT "+stateBit+" AS b, r.updated_at FROM {record} AS r LIMIT 9223372036854775807) AS x"))
}

// removing has a statement that deletes records delete their steps too, and return a column: a session may have
// switched off what the reference of the one table to the other does (session_replication_role).
func (w writer) removing(records, column string) string {
	if !w.OneStatement {
		return records + " RETURNING " + column
	}
	clock := ""
	if strings.Contains(records, "{now}") || strings.Contains(records, "{gone}") {
		clock = strings.TrimPrefix(strings.TrimSuffix(w.clock(""), " "), "WITH ") + ", "
	}
	return "WITH " + clock + "removed AS (" + records + " RETURNING r.id, r.due_at, r.steps, " + cmp.Or(w.Durable, "1") + "), " +
		"dropped AS (DELETE FROM {step} AS s USING removed WHERE s.id = removed.id AND removed.steps > 0) " +
		"SELECT " + column + " FROM removed"
}

// countOf counts the rows of which a condition is true.
func countOf(condition string) string { return "count(CASE WHEN " + condition + " THEN 1 END)" }

// at writes the clock itself in the place of the time for a database that reads it once in a statement, however often
// that names it.
func (w writer) at(text string) string {
	if w.MySQL {
		return timed(text, w.Now)
	}
	return text
}

// rowText is a row's address as a text.
func (w writer) rowText() string {
	if w.MySQL {
		return "HEX(id)"
	}
	return "CAST(" + w.RowID + " AS TEXT)"
}

// maintenanceMySQL changes records one by one, each by its ID: what chooses them in a sub-select locks, and waits, far
// beyond them.
func (w writer) maintenanceMySQL(s *Statements, drop, ripe string) {
	choose := func(name string, args int, choice, where string) *sqldb.Statement {
		return w.rows(name, args, w.at("SELECT id, steps FROM (SELECT id, steps, format, state, lease_until, result_until, purge_at FROM "+choice+") AS r WHERE "+where))
	}
	one := func(name, text string) *sqldb.Statement {
		st := w.exec(name, 1, noWait+w.at(text))
		st.NoWait = true
		return st
	}
	s.ChooseOver, s.PurgeResults = choose("choose_over", 3, ripe, over), one("purge_results", drop+"r.id = {1b} AND "+over)
	s.ChooseGone, s.PurgeRecords = choose("choose_gone", 3, ripe, "{gone}"), one("purge_records", "DELETE r FROM {record} AS r WHERE r.id = {1b} AND {gone}")
	s.ChooseScope = choose("choose_scope", 6, "{record} AS r WHERE "+selected+" AND "+deletable+" ORDER BY r.id LIMIT {6i}", "1 = 1")
	s.DeleteScope = one("delete_scope", "DELETE r FROM {record} AS r WHERE r.id = {1b} AND "+deletable)
}
