package sqlstore

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
)

// Dialect holds the differences between databases in the texts of [NewStatements].
type Dialect struct {
	*sqldb.Dialect
	// Record, Step and Meta are the tables, quoted and qualified.
	Record, Step, Meta string
	// TryLock returns an expression that locks the key until the end of the transaction and is true, or is at once
	// false if another transaction has it. It is nil if the database needs none.
	TryLock func(id string) string
	// Notify, if set, is an expression of a number that notifies the watchers of the written record if its attempt has
	// ended.
	Notify string
	// Greatest is the function for the larger of two numbers: "greatest", "max".
	Greatest string
	// RowID is a row's address, by which it is found again within a statement, and which orders rows that are due at
	// the same time: "ctid", "rowid". RowIDType is its type, which a text is cast to.
	RowID, RowIDType string
}

// NewStatements returns the texts for a dialect that has INSERT … ON CONFLICT … RETURNING, as PostgreSQL and SQLite
// have, or for MySQL and MariaDB.
func NewStatements(d Dialect) *Statements {
	w := writer{d}
	if d.MySQL {
		s := new(Statements)
		w.mysql(s)
		return s
	}
	s := &Statements{
		Read:        w.read("read", ""),
		ReadSteps:   w.rows("read_steps", 1, "SELECT "+StepColumns+" FROM {step} WHERE id = {1b} ORDER BY seq, name"),
		Swap:        w.swap(),
		Insert:      w.insert(),
		Complete:    w.complete(),
		Release:     w.release(),
		Renew:       w.renew(),
		DropOrphans: w.dropOrphans(),
	}
	s.Finish, s.FinishNew = w.finish()
	if d.Arrays {
		s.ReadLockedAll, s.FinishAll = w.readLockedAll(), w.finishAll()
	}
	if d.Now != "" {
		s.Brief = w.brief()
	}
	if d.Now == "" && d.TryLock == nil {
		s.Probe = w.rows("probe", 1, "SELECT 1 FROM {record} WHERE id = {1b}")
	}
	s.ReadLocked = s.Read
	if d.TryLock != nil {
		s.ReadLocked = w.read("read_locked", d.TryLock(w.arg(1, sqldb.ArgBytes)))
	}
	if d.OneStatement {
		s.Claim, s.SaveStep, s.SaveStepOnce = w.claimOrRead(),
			w.saveStep("save_step", stepKept+") SELECT 1 FROM touched"),
			w.saveStep("save_step_once", stepOnce+" RETURNING 1) SELECT 1 FROM written")
	} else {
		s.Claim, s.SaveStep, s.PutStep = w.claim(), w.touchForStep(), w.putStep("put_step", stepKept)
		s.PutStepOnce = w.putStep("put_step_once", stepOnce)
		s.DropSteps = w.exec("drop_steps", 1, "DELETE FROM {step} WHERE id = {1b}")
	}
	w.maintenance(s)
	s.Meta = sqldb.NewMeta(d.Dialect)
	return s
}

// writer expands templates: {1i}, {2t}, {3b} are arguments (a number, a text, bytes), {now} the store's
// time, {record}, {step} and {meta} the tables.
type writer struct{ Dialect }

func (w writer) arg(n int, kind sqldb.ArgKind) string { return w.Placeholder(n, kind) }

func (w writer) exec(name string, args int, text string) *sqldb.Statement {
	return &sqldb.Statement{Name: name, Text: w.expand(text, args)}
}

func (w writer) rows(name string, args int, text string) *sqldb.Statement {
	return &sqldb.Statement{Name: name, Text: w.expand(text, args), Rows: true}
}

func (w writer) expand(text string, args int) string {
	now := w.arg(args+1, sqldb.ArgInt)
	if w.Now != "" {
		now = "(SELECT now FROM clock)"
		if strings.Contains(text, "{now}") && !strings.Contains(text, "clock AS") {
			text = w.clock("") + text
		}
	}
	text = strings.NewReplacer("{record}", w.Record, "{step}", w.Step, "{meta}", w.Meta, "{now}", now,
		"{greatest}", w.Greatest, "{gone}", goneAt(now)).Replace(text)
	return w.Arguments(text, args)
}

// timed writes a time in the place of {now}, where one is at hand: a sub-select for each costs a database
// more than the statement itself.
func timed(text, now string) string {
	return strings.NewReplacer("{now}", now, "{gone}", goneAt(now)).Replace(text)
}

// from is the database's clock as a table of one row, read once.
func (w writer) from() string { return "(SELECT " + w.Now + " AS now) AS clock" }

// fromToWrite is from for a statement that writes what others rely on once it is answered.
func (w writer) fromToWrite() string {
	return "(SELECT " + cmp.Or(w.WriteNow, w.Now) + " AS now) AS clock"
}

// returning ends a write that may end an attempt. Only the number of returned rows matters.
func (w writer) returning() string {
	if w.Notify == "" {
		return " RETURNING 1"
	}
	return " RETURNING " + w.Notify
}

// ends is returning for a statement that returns no rows unless it notifies.
func (w writer) ends() string {
	if w.Notify == "" {
		return ""
	}
	return w.returning()
}

// oneIf is 1 if the condition holds, else 0.
func oneIf(condition string) string { return "CASE WHEN " + condition + " THEN 1 ELSE 0 END" }

// update changes the record if the condition holds. It is one statement, or a part of a larger one.
func (w writer) update(set, where string) string {
	if w.Now == "" {
		return "UPDATE {record} AS r SET " + set + " WHERE " + where
	}
	if w.MySQL {
		return "UPDATE {record} AS r SET " + timed(set, w.Now) + " WHERE " + timed(where, w.Now)
	}
	return "UPDATE {record} AS r SET " + timed(set, "clock.now") + " FROM " + w.fromToWrite() + " WHERE " + timed(where, "clock.now")
}

// clock opens the common table expressions with the one that reads the database's clock, once.
func (w writer) clock(more string) string { return clockOf(w.Now, more) }

func clockOf(now, more string) string {
	return "WITH clock AS MATERIALIZED (SELECT " + now + " AS now" + more + ") "
}

// answer is the row of Read and Claim.
func (w writer) read(name, lock string) *sqldb.Statement {
	if w.Now == "" { // the caller knows the time; no row is no record
		return w.rows(name, 1, "SELECT {now}, 1, 0, "+RecordColumns+" FROM {record} WHERE id = {1b}")
	}
	locked := "1"
	if lock != "" {
		locked = oneIf("clock.locked")
		lock = ", " + lock + " AS locked"
	}
	return w.rows(name, 1, "SELECT clock.now, "+locked+", 0, "+qualifiedColumns+
		" FROM (SELECT "+w.Now+" AS now"+lock+") AS clock LEFT JOIN {record} AS r ON r.id = {1b}")
}

const claimColumns = "id, scope, name, state, token, nonce, owner, attempt, lease_until, fp_alg, fp_sum, format, " +
	"created_at, claimed_at, updated_at, purge_at, due_at, steps, rev"

func claimValues(now string) string {
	return strings.ReplaceAll("{1b}, {2t}, {3t}, 1, NOW, {4b}, {5t}, 1, NOW + {6i}, {7t}, {8b}, {9i}, NOW, NOW, NOW, NOW + {10i}, NOW + {11i}, 0, 1", "NOW", now)
}

func (w writer) claim() *sqldb.Statement {
	return w.exec("claim", 11, "INSERT INTO {record} ("+claimColumns+") VALUES ("+claimValues("{now}")+") ON CONFLICT (id) DO NOTHING")
}

func (w writer) claimOrRead() *sqldb.Statement {
	lock, where := "", ""
	locked := "1"
	if w.TryLock != nil {
		lock, where = ", "+w.TryLock(w.arg(1, sqldb.ArgBytes))+" AS locked", " WHERE clock.locked"
		locked = oneIf("clock.locked")
	}
	return w.rows("claim", 11, strings.TrimSuffix(clockOf(cmp.Or(w.WriteNow, w.Now), lock), " ")+
		", inserted AS (INSERT INTO {record} ("+claimColumns+") SELECT "+claimValues("clock.now")+
		" FROM clock"+where+" ON CONFLICT (id) DO NOTHING RETURNING 1) "+
		"SELECT clock.now, "+locked+", (SELECT count(*) FROM inserted), "+qualifiedColumns+
		" FROM clock LEFT JOIN {record} AS r ON r.id = {1b}")
}

// swapArgs are the arguments of SwapColumns from the n-th on.
func (w writer) swapArgs(n int) []string {
	args := make([]string, len(swapKinds))
	for i, kind := range swapKinds {
		args[i] = w.arg(n+i, kind)
	}
	return args
}

func (w writer) swap() *sqldb.Statement {
	var set strings.Builder
	args := w.swapArgs(3)
	for i, column := range strings.Split(SwapColumns, ", ") {
		set.WriteString(column + " = " + args[i] + ", ")
	}
	text := "UPDATE {record} SET " + set.String() + "rev = rev + 1 WHERE id = {1b} AND rev = {2i}"
	if w.TryLock != nil {
		text += " AND " + w.TryLock(w.arg(1, sqldb.ArgBytes))
	}
	if !w.OneStatement || w.MySQL {
		return w.exec("swap", len(args)+2, text)
	}
	told := ""
	if w.Notify != "" {
		told = ", " + w.Notify
	}
	return w.rows("swap", len(args)+2, "WITH swapped AS ("+text+" RETURNING id, steps, "+cmp.Or(w.Durable, "1")+told+"), "+
		"dropped AS (DELETE FROM {step} AS s USING swapped WHERE s.id = swapped.id AND swapped.steps = 0) "+
		"SELECT 1 FROM swapped")
}

func (w writer) insert() *sqldb.Statement {
	args := w.swapArgs(4)
	text := "INSERT INTO {record} (id, scope, name, " + SwapColumns + ", rev) VALUES ({1b}, {2t}, {3t}, " +
		strings.Join(args, ", ") + ", 1) ON CONFLICT (id) DO NOTHING"
	if w.Durable == "" {
		return w.exec("insert", len(args)+3, text)
	}
	return w.rows("insert", len(args)+3, text+" RETURNING "+w.Durable)
}

// held is true of the record of the attempt with that token and nonce, unless a newer version has written it
// since.
var held = "r.id = {1b} AND r.token = {2i} AND r.nonce = {3b} AND r.state = 1 AND r.format <= " + strconv.Itoa(driver.FormatVersion)

func (w writer) complete() *sqldb.Statement {
	return w.exec("complete", 9, w.update("state = 4, lease_until = NULL, unknown_step = NULL, "+
		"result_kind = {4i}, result_codec = {5t}, result_data = {6b}, result_summary = {7b}, "+
		"updated_at = {now}, completed_at = {now}, result_until = {now} + {8i}, purge_at = {now} + {9i}, "+
		"due_at = {now} + CASE WHEN {5t} IS NULL AND {6b} IS NULL AND r.steps = 0 THEN {9i} ELSE {8i} END, rev = r.rev + 1", held)+w.ends())
}

func (w writer) release() *sqldb.Statement {
	return w.exec("release", 7, w.update("state = {4i}, lease_until = NULL, last_error = {5t}, unknown_step = {6t}, "+
		"updated_at = {now}, purge_at = {now} + {7i}, due_at = {now} + {7i}, rev = r.rev + 1", held)+w.ends())
}

// renewed sets what a renewal does, by the lease, the total lifetime and the time until due.
const renewed = "updated_at = {now}, lease_until = {now} + {4i}, " +
	"purge_at = CASE WHEN r.purge_at IS NULL THEN NULL ELSE {now} + {5i} END, " +
	"due_at = CASE WHEN r.purge_at IS NULL THEN NULL ELSE {now} + {6i} END, rev = r.rev + 1"

func (w writer) renew() *sqldb.Statement {
	return w.exec("renew", 6, w.update(renewed, held))
}

// touched is renewed for the write of a step, which may come without a lease.
const touched = "updated_at = {now}, lease_until = coalesce({now} + {4i}, r.lease_until), " +
	"purge_at = CASE WHEN r.purge_at IS NULL OR {4i} IS NULL THEN r.purge_at ELSE {now} + {5i} END, " +
	"due_at = CASE WHEN r.purge_at IS NULL OR {4i} IS NULL THEN r.due_at ELSE {now} + {6i} END, " +
	"steps = " + countStep + ", rev = r.rev + 1"

// countStep counts a step that is new.
const countStep = "r.steps + CASE WHEN EXISTS (SELECT 1 FROM {step} AS s WHERE s.id = {1b} AND s.name = {7t}) THEN 0 ELSE 1 END"

func (w writer) touch() string {
	// The record's own number of steps is cheap, and may be too high: a call whose repetition comes while it still runs
	// is counted twice. To count the steps themselves is right only if the record was not written since the statement's
	// snapshot.
	limit := " < " + strconv.Itoa(driver.MaxSteps)
	return w.update(touched, held+" AND (r.steps"+limit+
		" OR EXISTS (SELECT 1 FROM {step} AS s WHERE s.id = {1b} AND s.name = {7t})"+
		" OR (SELECT count(*) FROM {step} AS s WHERE s.id = {1b})"+limit+" AND r.rev = (SELECT rev FROM {record} WHERE id = {1b}))")
}

func (w writer) touchForStep() *sqldb.Statement { return w.exec("save_step", 7, w.touch()) }

const stepInsert = "INSERT INTO {step} AS s (id, seq, " + StepColumns + ") "

// stepKept leaves a step that stands ([transition.StepStands]) unchanged: a step that can be read, and is done, or has
// ended in the attempt that comes late to open it.
const stepKept = stepOver + "NOT (s.state = 2 AND coalesce(s.result_kind, 0) BETWEEN 1 AND 3 OR " +
	"s.state = 3 AND coalesce(s.result_kind, 0) = 0 AND s.attempt = excluded.attempt AND excluded.state = 1)"

// stepOnce writes over a step only if its effect is known not to have taken hold yet: the effect commits with the step.
// The work already learned of a step that this very attempt ended as not done.
const stepOnce = stepOver + "coalesce(s.result_kind, 0) = 0 AND (s.state = 1 OR s.state = 3 AND s.attempt < excluded.attempt)"

const stepOver = " ON CONFLICT (id, name) DO UPDATE SET state = excluded.state, attempt = excluded.attempt, " +
	"result_kind = excluded.result_kind, result_codec = excluded.result_codec, result_data = excluded.result_data, " +
	"result_summary = excluded.result_summary, ended_at = excluded.ended_at WHERE "

func (w writer) putStep(name, over string) *sqldb.Statement {
	return w.exec(name, 8, stepInsert+
		"SELECT {1b}, rev, {2t}, {3i}, {4i}, {5i}, {6t}, {7b}, {8b}, {now}, CASE WHEN {3i} = 1 THEN NULL ELSE {now} END FROM {record} WHERE id = {1b}"+over)
}

// saveStep writes a step of the attempt that holds the record, as what follows the insert says.
func (w writer) saveStep(name, over string) *sqldb.Statement {
	return w.rows(name, 13, "WITH touched AS ("+w.touch()+" RETURNING r.id, r.rev, r.updated_at AS now), written AS ("+stepInsert+
		"SELECT t.id, t.rev, {7t}, {8i}, {9i}, {10i}, {11t}, {12b}, {13b}, t.now, CASE WHEN {8i} = 1 THEN NULL ELSE t.now END FROM touched AS t"+over)
}

// dropOrphans removes the steps of a record that was gone when it was written anew.
func (w writer) dropOrphans() *sqldb.Statement {
	return w.exec("drop_orphans", 1, "DELETE FROM {step} WHERE id = {1b} AND NOT EXISTS (SELECT 1 FROM {record} AS r WHERE r.id = {1b} AND r.steps > 0)")
}

// finishColumns are the columns of a completed record, and finishValues their values.
const (
	finishColumns = "id, scope, name, state, token, nonce, owner, attempt, fp_alg, fp_sum, format, result_kind, result_codec, result_data, result_summary, " +
		"created_at, claimed_at, updated_at, completed_at, result_until, purge_at, due_at, steps, rev"
	finishValues = "{1b}, {3t}, {4t}, 4, CASE WHEN {5i} > 0 THEN {5i} ELSE {now} END, {6b}, {7t}, 1, {8t}, {9b}, {10i}, {11i}, {12t}, {13b}, {14b}, " +
		"{now}, {now}, {now}, {now}, {now} + {15i}, {now} + {16i}, " +
		"{now} + CASE WHEN {12t} IS NULL AND {13b} IS NULL THEN {16i} ELSE {15i} END, 0, 1"
)

// finishOver returns what Finish writes over an existing record, and the condition. An assignment that depends on an
// old value stands before the assignment that changes it.
func (w writer) finishOver() (set, where string) {
	where = "r.rev = {2i} OR " + readable + " AND ({gone} AND r.steps = 0 OR r.state = 2 AND r.nonce <> excluded.nonce AND r.format <= {10i} AND " +
		"CASE WHEN r.fp_alg = excluded.fp_alg AND r.fp_sum <> excluded.fp_sum THEN 1 ELSE 0 END = 0)"
	assigned := []string{"token = {greatest}(excluded.token, r.token + 1), unknown_step = NULL, " +
		"attempt = CASE WHEN {gone} THEN 1 ELSE r.attempt + 1 END, " +
		"fp_alg = CASE WHEN {gone} THEN excluded.fp_alg ELSE coalesce(excluded.fp_alg, r.fp_alg) END, " +
		"fp_sum = CASE WHEN {gone} THEN excluded.fp_sum ELSE coalesce(excluded.fp_sum, r.fp_sum) END, " +
		"prev_state = CASE WHEN {gone} THEN NULL WHEN r.state = 1 AND r.lease_until <= {now} THEN 3 ELSE r.state END, " +
		"prev_owner = CASE WHEN {gone} THEN NULL ELSE r.owner END, " +
		"prev_claimed = CASE WHEN {gone} THEN NULL ELSE r.claimed_at END, " +
		"last_error = CASE WHEN {gone} OR r.state = 1 THEN NULL ELSE r.last_error END, " +
		"created_at = CASE WHEN {gone} THEN excluded.created_at ELSE r.created_at END, " +
		"due_at = CASE WHEN {gone} THEN excluded.due_at WHEN r.steps > 0 THEN excluded.result_until ELSE excluded.due_at END, " +
		"steps = CASE WHEN {gone} THEN 0 ELSE r.steps END, rev = r.rev + 1, state = 4, lease_until = NULL"}
	for _, same := range strings.Fields("nonce owner format result_kind result_codec result_data result_summary claimed_at updated_at completed_at result_until purge_at") {
		assigned = append(assigned, same+" = excluded."+same)
	}
	return strings.Join(assigned, ", "), where
}

func (w writer) finish() (full, fresh *sqldb.Statement) {
	set, where := w.finishOver()
	source := "VALUES (" + finishValues + ")"
	if w.Now != "" {
		source = "SELECT " + timed(finishValues, "clock.now") + " FROM " + w.fromToWrite()
		set, where = timed(set, "excluded.updated_at"), timed(where, "excluded.updated_at")
	}
	if w.TryLock != nil { // it must not wait for a transaction that wrote the key and is still open
		source += " WHERE " + w.TryLock(w.arg(1, sqldb.ArgBytes))
	}
	full = w.rows("finish", 16, "INSERT INTO {record} AS r ("+finishColumns+") "+source+" ON CONFLICT (id) DO UPDATE SET "+set+" WHERE "+where+w.returning())
	if w.Now != "" { // to have an update at hand costs as much as the insert
		where = "{2i} = 0"
		if w.TryLock != nil {
			where += " AND " + w.TryLock(w.arg(1, sqldb.ArgBytes))
		}
		fresh = w.rows("finish_new", 16, "INSERT INTO {record} ("+finishColumns+") SELECT "+timed(finishValues, "clock.now")+" FROM "+w.fromToWrite()+
			" WHERE "+where+" ON CONFLICT (id) DO NOTHING"+w.returning())
	}
	return full, fresh
}
