package sqlstore

import (
	"strconv"
	"strings"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
)

// MySQL and MariaDB have neither ON CONFLICT nor RETURNING that both know, and no lock that can be tried for a key. So:
//
//   - An insert ends in [untouched]: an existing row is locked and left unchanged. LAST_INSERT_ID returns whether it
//     inserted, and the time too, in one round trip. A write over a row on a condition is a second statement,
//     [sqldb.Statement.Else].
//   - A claim in a transaction inserts a row that is gone from its beginning: no other transaction can insert the key
//     until this one ends, and if it commits without a result, the key is new to all others.
//   - A single-table UPDATE assigns from left to right: an assignment that depends on an old value stands before the
//     assignment that changes it.
const (
	untouched = " ON DUPLICATE KEY UPDATE rev = rev + LAST_INSERT_ID(0)"
	// noWait is for MariaDB alone, which MySQL takes for a comment and then waits.
	noWait = "/*M! SET STATEMENT innodb_lock_wait_timeout = 0 FOR */ "
	// alive is false if the server has rolled the transaction back, after a deadlock for example: a write sent then
	// would commit alone. For MySQL, to which it is a comment, the driver asks before.
	alive = " /*M! AND @@in_transaction = 1 */"
)

// lockRev is the revision of a row that a claim in a transaction has inserted. No other record has it, so that a claim
// whose row was rolled back with a savepoint writes over no record.
const lockRev = 1 << 62

func (w writer) mysql(s *Statements) {
	exec := func(name string, args int, text string) *sqldb.Statement {
		return w.exec(name, args, timed(text, w.Now))
	}
	insert := func(name string, args int, columns, values string) *sqldb.Statement {
		st := exec(name, args, noWait+"INSERT INTO {record} ("+columns+") SELECT "+values+" FROM DUAL WHERE 1 = 1"+untouched)
		st.NoWait, st.WantInsertID = true, true
		return st
	}
	s.Read = w.read("read", "")
	busy := *s.Read
	s.ReadBusy = &busy
	s.ReadBusy.Text, s.ReadBusy.NoWait = noWait+busy.Text, true
	s.ReadLocked = w.rows("read_locked", 1, timed("SELECT {now}, "+oneIf("1 = 1"+alive)+", 0, "+RecordColumns+" FROM {record} WHERE id = {1b} FOR UPDATE", w.Now))
	s.Brief = w.rows("brief", 1, timed("SELECT {now}, "+BriefColumns+" FROM {record} WHERE id = {1b}", w.Now))
	s.ReadSteps = w.rows("read_steps", 1, "SELECT "+StepColumns+" FROM {step} WHERE id = {1b} ORDER BY seq, name")

	s.Claim = insert("claim", 11, claimColumns, strings.Replace(claimValues("{now}"), ", 1, {now}, {4b}", ", 1, LAST_INSERT_ID({now}), {4b}", 1))
	args := w.swapArgs(4)
	s.Insert = insert("insert", len(args)+3, "id, scope, name, "+SwapColumns+", rev", "{1b}, {2t}, {3t}, "+strings.Join(args, ", ")+", LAST_INSERT_ID(1)")
	s.Lock = exec("lock", 5, noWait+"INSERT INTO {record} (id, scope, name, nonce, format, state, token, attempt, created_at, updated_at, purge_at, due_at, steps, rev) "+
		"SELECT {1b}, {2t}, {3t}, {4b}, {5i}, 2, 1, 1, LAST_INSERT_ID({now}), {now}, 1, 1, 0, "+strconv.FormatInt(lockRev, 10)+" FROM DUAL WHERE 1 = 1"+alive+untouched)
	s.Lock.NoWait, s.Lock.WantInsertID = true, true
	s.Swap = w.swap()
	s.Swap.Text, s.Swap.NoWait = noWait+s.Swap.Text, true
	s.DropSteps = exec("drop_steps", 1, "DELETE FROM {step} WHERE id = {1b}")
	s.DropOrphans = exec("drop_orphans", 1, "DELETE FROM {step} WHERE id = {1b} AND NOT EXISTS (SELECT 1 FROM {record} AS r WHERE r.id = {1b} AND r.steps > 0)")
	s.Complete, s.Release, s.Renew = w.complete(), w.release(), w.renew()

	limit := " < " + strconv.Itoa(driver.MaxSteps)
	// A look for a step locks what is beside it. So the record's number of steps only grows here, and the steps are
	// looked at only at the limit. These servers evaluate a condition that does not depend on the row beforehand. MySQL
	// also does so for an EXISTS that refers to the row, but not for a value.
	s.SaveStep = exec("save_step", 7, "UPDATE {record} AS r SET "+strings.Replace(touched, countStep, "r.steps + 1", 1)+" WHERE "+held+
		" AND CASE WHEN r.steps"+limit+" THEN 1 WHEN (SELECT 1 FROM {step} AS s WHERE s.id = r.id AND s.name = {7t}) THEN 1"+
		" ELSE (SELECT count(*) FROM {step} AS s WHERE s.id = r.id)"+limit+" END"+alive)
	s.PutStep, s.PutStepOnce = w.putStepElse("put_step", stepKept), w.putStepElse("put_step_once", stepOnce)
	s.Finish, s.FinishOver, s.FinishLocked = w.finishElse()
	w.maintenance(s)
	s.Meta = sqldb.NewMeta(w.Dialect.Dialect)
}

// putStepElse inserts a step, or changes the existing one if over, the end of other databases' insert, allows it. Its
// time is the time at which the record was changed for it.
func (w writer) putStepElse(name, over string) *sqldb.Statement {
	st := w.exec(name, 8, "INSERT INTO {step} (id, seq, "+StepColumns+") SELECT {1b}, rev * LAST_INSERT_ID(1), {2t}, {3i}, {4i}, {5i}, {6t}, {7b}, {8b}, "+
		"updated_at, CASE WHEN {3i} = 1 THEN NULL ELSE updated_at END FROM {record} WHERE id = {1b} ON DUPLICATE KEY UPDATE seq = seq + LAST_INSERT_ID(0)")
	st.WantInsertID = true
	set, where, _ := strings.Cut(strings.TrimPrefix(over, " ON CONFLICT (id, name) DO UPDATE SET "), " WHERE ")
	values := strings.NewReplacer("excluded.state", "{3i}", "excluded.attempt", "{4i}", "excluded.result_kind", "{5i}", "excluded.result_codec", "{6t}",
		"excluded.result_data", "{7b}", "excluded.result_summary", "{8b}", "excluded.ended_at", "CASE WHEN {3i} = 1 THEN NULL ELSE (SELECT updated_at FROM {record} WHERE id = {1b}) END")
	st.Else = w.exec(name, 8, "UPDATE {step} AS s SET "+values.Replace(set)+" WHERE s.id = {1b} AND s.name = {2t} AND ("+values.Replace(where)+")")
	return st
}

// finishElse inserts a completed record, or else writes it over the existing one; over tries the two in the other
// order. locked is over where the row is the claim's own and holds nothing to keep: that halves the server's cost.
func (w writer) finishElse() (insert, over, locked *sqldb.Statement) {
	set, where := w.finishOver()
	columns, values := strings.Split(finishColumns, ", "), strings.Split(finishValues, ", ")
	pairs := make([]string, 0, 2*len(columns))
	for i := len(columns) - 1; i >= 0; i-- { // a name may begin with another
		pairs = append(pairs, "excluded."+columns[i], "("+values[i]+")")
	}
	excluded := strings.NewReplacer(pairs...)
	expand := func(text string) string { return timed(text, w.Now) }
	inserting := noWait + "INSERT INTO {record} (" + finishColumns + ") SELECT " + strings.TrimSuffix(finishValues, "1") + "LAST_INSERT_ID(1) FROM DUAL WHERE 1 = 1" + alive + untouched
	updating := noWait + "UPDATE {record} AS r SET " + excluded.Replace(set) + " WHERE r.id = {1b} AND (" + excluded.Replace(where) + ")" + alive
	statement := func(text, other string) *sqldb.Statement {
		st, then := w.exec("finish", 16, expand(text)), w.exec("finish", 16, expand(other))
		for _, s := range []*sqldb.Statement{st, then} {
			s.NoWait, s.WantInsertID = true, strings.Contains(s.Text, "INSERT")
		}
		st.Else = then
		return st
	}
	own := make([]string, 0, len(columns))
	for i, column := range columns {
		if column != "id" && column != "scope" && column != "name" && column != "rev" {
			own = append(own, column+" = "+values[i])
		}
	}
	owned := noWait + "UPDATE {record} AS r SET " + strings.Join(own, ", ") + ", rev = r.rev + 1 WHERE r.id = {1b} AND r.rev = {2i}" + alive
	return statement(inserting, updating), statement(updating, inserting), statement(owned, inserting)
}
