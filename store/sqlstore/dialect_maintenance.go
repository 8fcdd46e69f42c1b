package sqlstore

import (
	"strconv"

	"github.com/everonce/everonce"
)

// alive is true of a claim whose lease holds, and of one whose lease no version has written: nobody knows.
const alive = "(r.state = 1 AND r.lease_until NOT BETWEEN 1 AND {now})"

// newer is true of what a newer version wrote.
var newer = "r.format > " + strconv.Itoa(everonce.FormatVersion)

// deletable is true of what forgetting a tenant removes: no live claim, and not what a newer version wrote, which may be one.
var deletable = "NOT " + alive + " AND NOT " + newer

// ripe is true of what a purge may look at. Every row that is due has something to be purged, so that no
// row stands in the way of those behind it, unless it is damaged: that one stays, and takes its place in each batch. The lower bound is a comparison of rows, which goes by the index as well: two
// plain bounds a planner takes for a small range, to be read whole and sorted.
func (w writer) ripe() string {
	return w.among("{record} WHERE due_at <= {now} AND (due_at, 0) >= ({2i}, 0) ORDER BY due_at LIMIT {1i}")
}

// among is true of the rows r that a sub-select from a table chooses and locks.
func (w writer) among(choice string) string {
	if w.RowID == "" {
		return "r.id IN (SELECT id FROM " + choice + w.skipLocked() + ")"
	}
	return "r." + w.RowID + " = ANY (ARRAY (SELECT " + w.RowID + " FROM " + choice + w.skipLocked() + "))"
}

// oneOf is true of what a sub-select finds, which is run first and once: a planner that takes what is rare for frequent would rather
// walk over all records in their order, one by one, until a page is full.
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

// selected chooses records by range of IDs and by scope. The length is the database's: some count bytes, not letters.
const selected = "r.id > {1b} AND r.id >= {2b} AND r.id <= {3b} AND ({4t} = '' OR r.scope = {4t} OR substr(r.scope, 1, length({5t})) = {5t})"

// stateBit is a record's state at the store's time as a bit, 0 for a record that is gone, and all of them for one whose state is none, and for one
// with a time that tells it and is missing, or before all times.
const stateBit = "CASE WHEN {gone} THEN 0 WHEN r.state = 1 AND r.lease_until IS NULL OR r.lease_until < 1 OR r.result_until < 1 OR r.purge_at < 1 THEN 62 WHEN " + alive + " THEN 2 WHEN r.state = 1 OR r.state = 3 THEN 8 WHEN r.state = 2 THEN 4 " +
	"WHEN r.state <> 4 THEN 62 WHEN r.result_until <= {now} THEN 32 ELSE 16 END"

func (w writer) maintenance(s *Statements) {
	const drop = "UPDATE {record} AS r SET result_codec = NULL, result_data = NULL, steps = 0, due_at = r.purge_at, rev = r.rev + 1 WHERE "
	const over = " AND r.state = 4 AND r.result_until <= {now} AND r.purge_at > {now}"
	remove := "DELETE FROM {record} AS r WHERE " + w.ripe() + " AND {gone}"
	if w.OneStatement {
		clock := w.clock("")
		s.PurgeResults = w.rows("purge_results", 2, clock[:len(clock)-1]+", dropped AS ("+drop+w.ripe()+over+" RETURNING r.id, r.result_until), "+
			"steps AS (DELETE FROM {step} AS s USING dropped WHERE s.id = dropped.id) SELECT result_until FROM dropped")
		s.PurgeRecords = w.rows("purge_records", 2, remove+" RETURNING r.due_at")
	} else {
		s.PurgeSteps = w.exec("purge_steps", 2, "DELETE FROM {step} WHERE id IN (SELECT r.id FROM {record} AS r WHERE "+w.ripe()+over+")")
		s.PurgeResults = w.exec("purge_results", 2, drop+w.ripe()+over)
		s.PurgeRecords = w.exec("purge_records", 2, remove)
	}

	list := func(name string, args int, which string) *Statement {
		return w.rows(name, args, "SELECT {now}, 1, 0, "+withoutData(qualifiedColumns)+" FROM {record} AS r WHERE "+which+
			" AND ({7i} & "+stateBit+") <> 0 ORDER BY r.id LIMIT {6i}")
	}
	s.List, s.ListOpen = list("list", 7, selected), list("list_open", 7, selected+" AND r.state <> 4")
	s.ListKey = list("list_key", 9, "r.id "+w.oneOf("SELECT r.id FROM {record} AS r WHERE "+selected+
		" AND ({8b} IS NULL OR substr(r.id, 9, 8) = {8b}) AND ({9t} = '' OR r.name = {9t})"))
	s.DeleteScope = w.exec("delete_scope", 6, "DELETE FROM {record} AS r WHERE "+
		w.among("{record} AS r WHERE "+selected+" AND "+deletable+" ORDER BY r.id LIMIT {6i}")+" AND "+deletable)
	s.ScopeLeft = w.rows("scope_left", 5, "SELECT 1 FROM {record} AS r WHERE "+selected+" AND "+deletable+" LIMIT 1")
	s.Remove = w.exec("remove", 1, "DELETE FROM {record} WHERE id = {1b}")
	s.Health = w.rows("health", 0, "SELECT {now}, count(*) FILTER (WHERE b = 2), count(*) FILTER (WHERE b = 8), count(*) FILTER (WHERE b = 4), "+
		"count(*) FILTER (WHERE b = 16 OR b = 32), count(*) FILTER (WHERE b = 62), min(updated_at) FILTER (WHERE b = 8) "+
		"FROM (SELECT CASE WHEN {gone} THEN 0 WHEN "+newer+" THEN 62 ELSE "+stateBit+" END AS b, r.updated_at FROM {record} AS r) AS x")
}

func (w writer) meta(s *Statements) {
	s.CreateMeta = w.exec("create_meta", 0, "CREATE TABLE IF NOT EXISTS {meta} (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
	s.GetMeta = w.rows("get_meta", 1, "SELECT value FROM {meta} WHERE name = {1t}")
	s.PutMeta = w.exec("put_meta", 2, "INSERT INTO {meta} (name, value) VALUES ({1t}, {2t}) ON CONFLICT (name) DO NOTHING")
	s.SetMeta = w.exec("set_meta", 2, "INSERT INTO {meta} (name, value) VALUES ({1t}, {2t}) ON CONFLICT (name) DO UPDATE SET value = excluded.value")
}
