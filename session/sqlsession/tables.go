package sqlsession

import (
	"strings"

	"github.com/everonce/everonce/internal/sqldb"
)

// The tables: a row for each session; one for each result above its session's mark; and a single row that registrations
// lock. A session's era is its last time in units of 67 s: it is indexed in place of last, so that a request rarely
// changes the index.
var tables = []string{"session", "session_answer", "session_state"}

const (
	eraBits     = "26"
	sessionRows = "id {int} NOT NULL PRIMARY KEY, nonce {text} NOT NULL, principal {text} NOT NULL, ordered {int} NOT NULL, epoch {int} NOT NULL," +
		" mark {int} NOT NULL, high {int} NOT NULL, bytes {int} NOT NULL, last {int} NOT NULL, era {int} NOT NULL"
	answerRows = "session_id {int} NOT NULL, number {int} NOT NULL, elided {int} NOT NULL, fingerprint {bytes} NOT NULL, size {int} NOT NULL, result {bytes}," +
		" PRIMARY KEY (session_id, number)"
	stateRows = "id {int} NOT NULL PRIMARY KEY, last_id {int} NOT NULL, sessions {int} NOT NULL"
)

func definitions(d *sqldb.Dialect) []string {
	templates := []string{
		"CREATE TABLE {session} (" + sessionRows + ")",
		"CREATE UNIQUE INDEX {session_nonce} ON {session} (nonce)",
		"CREATE INDEX {session_principal} ON {session} (principal)",
		"CREATE INDEX {session_era} ON {session} (era)",
		"CREATE TABLE {session_answer} (" + answerRows + ")",
		"CREATE TABLE {session_state} (" + stateRows + ")",
		"INSERT INTO {session_state} (id, last_id, sessions) VALUES (1, 0, 0)",
	}
	if d.MySQL { // each statement commits alone, and may be repeated
		const end = ") ENGINE = InnoDB ROW_FORMAT = DYNAMIC"
		templates = []string{
			"CREATE TABLE IF NOT EXISTS {session} (" + sessionRows + ", UNIQUE KEY nonce (nonce), KEY principal (principal), KEY era (era)" + end,
			"CREATE TABLE IF NOT EXISTS {session_answer} (" + answerRows + end,
			"CREATE TABLE IF NOT EXISTS {session_state} (" + stateRows + end,
			"INSERT IGNORE INTO {session_state} (id, last_id, sessions) VALUES (1, 0, 0)",
		}
	}
	for i, template := range templates {
		templates[i] = d.Definition(template, tables...)
	}
	return templates
}

// statements are all statements of a Store. None waits for a row lock, except for the row of session_state, which no
// transaction holds that waits for another lock.
type statements struct {
	lock, answer                                     *sqldb.Statement // for one request
	touch, forget, keep, alive                       *sqldb.Statement
	answers, touchAll, forgetAll, keepAll            many             // for many requests
	state, byNonce, nonces, held, insert, registered *sqldb.Statement // for registrations
	lockAll, renew, advance                          *sqldb.Statement // for keep-alives
	readAll, lastID                                  *sqldb.Statement // for sessions that could not be locked
	expired, quietest, dropAnswers, drop, fewer      *sqldb.Statement // for ends
}

// many is a statement for many rows.
type many struct {
	*sqldb.Statement
	rows sqldb.Rows
}

func newStatements(d *sqldb.Dialect) *statements {
	st := func(name string, args int, template string) *sqldb.Statement {
		s := d.Statement("session_"+name, args, template, tables...)
		s.Keep = true
		return s
	}
	all := func(name, template string, columns ...string) many {
		rows := d.Rows(columns...)
		return many{st(name, rows.Args(), strings.ReplaceAll(template, "{u}", rows.From())), rows}
	}
	// Each row is looked up separately, whatever the planner estimates.
	answers := "{u} CROSS JOIN LATERAL (SELECT * FROM {session_answer} WHERE session_id = u.id AND number > (SELECT mark FROM {session} WHERE id = u.id)" +
		" AND (number = u.number OR number <= u.mark) OFFSET 0) AS a"
	touch := "UPDATE {session} AS s SET epoch = u.epoch, mark = u.mark, high = u.high, bytes = u.bytes, last = {now}, era = {now} >> " + eraBits + " FROM {u} WHERE s.id = u.id"
	forget := "DELETE FROM {session_answer} AS a USING {u} WHERE a.session_id = u.id AND a.number > u.since AND a.number <= u.mark"
	if !d.Arrays {
		const own = " ON a.session_id = u.id AND a.number > "
		first := "{u} CROSS JOIN {session_answer} AS a"
		if d.MySQL {
			first = "{u} STRAIGHT_JOIN {session_answer} AS a FORCE INDEX (PRIMARY)"
			touch = "UPDATE {u} STRAIGHT_JOIN {session} AS s FORCE INDEX (PRIMARY) ON s.id = u.id SET s.epoch = u.epoch, s.mark = u.mark, s.high = u.high," +
				" s.bytes = u.bytes + 0{alive}, s.last = {now}, s.era = {now} >> " + eraBits
			forget = "DELETE a FROM " + first + own + "u.since AND a.number <= u.mark"
		} else {
			forget = "DELETE FROM {session_answer} WHERE (session_id, number) IN (SELECT a.session_id, a.number FROM " + first + own + "u.since AND a.number <= u.mark)"
		}
		answers = first + own + "(SELECT mark FROM {session} WHERE id = u.id) AND (a.number = u.number OR a.number <= u.mark)"
	}
	const columns = "SELECT id, nonce, principal, ordered, epoch, mark, high, bytes, last, {now} FROM {session} WHERE "
	ids := d.InInts("id", "{1t}")
	lockAll, renew := columns+ids+" ORDER BY id", "UPDATE {session} SET last = {now}, era = {now} >> "+eraBits+" WHERE "+ids
	drop, dropAnswers := "DELETE FROM {session} WHERE "+ids, "DELETE FROM {session_answer} WHERE "+d.InInts("session_id", "{1t}")
	if d.MySQL { // it locks every row that it reads, and waits for the locks: force the index in a small table
		const list, on = "({1t}) AS u STRAIGHT_JOIN ", " AS s FORCE INDEX (PRIMARY) ON s."
		own := list + "{session}" + on + "id = u.id"
		lockAll = strings.NewReplacer("SELECT id", "SELECT s.id", "{session} WHERE ", own).Replace(columns) + " ORDER BY s.id"
		renew = "UPDATE " + own + " SET s.last = {now}, s.era = {now} >> " + eraBits
		drop, dropAnswers = "DELETE s FROM "+own, "DELETE s FROM "+list+"{session_answer}"+on+"session_id = u.id"
	}
	return &statements{
		lock: st("lock", 1, columns+"id = {1i} {skip locked}"),
		// From the mark on, because PostgreSQL's index keeps deleted rows below it until the vacuum.
		answer: st("answer", 3, "SELECT number, size, elided, fingerprint, CASE WHEN number = {2i} THEN result END FROM {session_answer}"+
			" WHERE session_id = {1i} AND number > (SELECT mark FROM {session} WHERE id = {1i}) AND (number = {2i} OR number <= {3i})"),
		// If the server has ended the transaction, this must fail: it would commit alone.
		touch:  st("touch", 5, "UPDATE {session} SET epoch = {2i}, mark = {3i}, high = {4i}, bytes = {5i} + 0{alive}, last = {now}, era = {now} >> "+eraBits+" WHERE id = {1i}"),
		forget: st("forget", 3, "DELETE FROM {session_answer} WHERE session_id = {1i} AND number > {2i} AND number <= {3i}"),
		keep:   st("keep", 6, "INSERT INTO {session_answer} (session_id, number, elided, fingerprint, size, result) VALUES ({1i}, {2i}, {3i}, {4b}, {5i}, {6b})"),
		alive:  st("alive", 0, "SELECT 0{alive}"),
		answers: all("answers", "SELECT u.id, u.number, a.number, a.size, a.elided, a.fingerprint, CASE WHEN a.number = u.number THEN a.result END FROM "+answers,
			"id", "number", "mark"),
		touchAll:  all("touch_all", touch, "id", "epoch", "mark", "high", "bytes"),
		forgetAll: all("forget_all", forget, "id", "since", "mark"),
		keepAll: all("keep_all", "INSERT INTO {session_answer} (session_id, number, elided, fingerprint, size, result)"+
			" SELECT u.id, u.number, u.elided, u.b_fingerprint, u.size, u.b_result FROM {u}", "id", "number", "elided", "b_fingerprint", "size", "b_result"),

		state:   st("state", 0, "SELECT last_id, sessions FROM {session_state} WHERE id = 1 {for update}"),
		byNonce: st("by_nonce", 1, columns+"nonce = {1t} {skip locked}"),
		nonces:  st("nonces", 1, "SELECT count(*) FROM {session} WHERE nonce = {1t}"),
		held:    st("held", 2, "SELECT count(*) FROM {session} WHERE principal = {1t} AND last > {now} - {2i}"),
		insert: st("insert", 5, "INSERT INTO {session} (id, nonce, principal, ordered, epoch, mark, high, bytes, last, era)"+
			" VALUES ({1i}, {2t}, {3t}, {4i}, {5i}, 0, 0, 0{alive}, {now}, {now} >> "+eraBits+")"),
		registered: st("registered", 2, "UPDATE {session_state} SET last_id = {1i}, sessions = {2i} WHERE id = 1"),

		lockAll: st("lock_all", 1, lockAll+" {skip locked}"),
		readAll: st("read_all", 1, columns+ids),
		lastID:  st("last_id", 0, "SELECT last_id FROM {session_state} WHERE id = 1"),
		renew:   st("renew", 1, renew),
		advance: st("advance", 4, "UPDATE {session} SET epoch = {2i}, mark = {3i},"+
			" bytes = bytes - (SELECT coalesce(sum(size), 0) FROM {session_answer} WHERE session_id = {1i} AND number > {4i} AND number <= {3i}) WHERE id = {1i}"),

		expired: st("expired", 2, "SELECT id FROM {session} WHERE era <= ({now} - {1i}) >> "+eraBits+" AND last <= {now} - {1i} ORDER BY era LIMIT {2i} {skip locked}"),
		// Sessions of the same era, which are few.
		quietest:    st("quietest", 0, "SELECT id FROM {session} ORDER BY era, last, id LIMIT 1 {skip locked}"),
		dropAnswers: st("drop_answers", 1, dropAnswers),
		drop:        st("drop", 1, drop),
		fewer:       st("fewer", 1, "UPDATE {session_state} SET sessions = sessions - {1i} WHERE id = 1"),
	}
}
