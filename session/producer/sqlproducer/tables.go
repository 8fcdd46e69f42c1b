package sqlproducer

import "github.com/everonce/everonce/internal/sqldb"

// The tables: a row for each producer; one for each producer in a stream, with its [producer.State]; one for each
// stream, which appends lock; one for each batch; and a single row that grants lock.
var tables = []string{"producer", "producer_window", "producer_stream", "producer_log", "producer_state"}

const (
	eraBits      = 26 // an era is 2²⁶ µs, or 67 s: a producer's last time is written once in each
	producerRows = "id {int} NOT NULL PRIMARY KEY, name {text}, epoch {int} NOT NULL, last {int} NOT NULL"
	windowRows   = "stream {text} NOT NULL, producer_id {int} NOT NULL, granted {int} NOT NULL, named {int} NOT NULL, last {int} NOT NULL, state {bytes} NOT NULL," +
		" PRIMARY KEY (stream, producer_id)"
	streamRows = "name {text} NOT NULL PRIMARY KEY, first {int} NOT NULL, next {int} NOT NULL"
	logRows    = "stream {text} NOT NULL, last {int} NOT NULL, records {int} NOT NULL, producer_id {int} NOT NULL, epoch {int} NOT NULL, sequence {int} NOT NULL," +
		" at {int} NOT NULL, data {bytes} NOT NULL, PRIMARY KEY (stream, last)"
	stateRows = "id {int} NOT NULL PRIMARY KEY, last_id {int} NOT NULL"
)

func definitions(d *sqldb.Dialect) []string {
	templates := []string{
		"CREATE TABLE {producer} (" + producerRows + ")",
		"CREATE UNIQUE INDEX {producer_name} ON {producer} (name)",
		"CREATE INDEX {producer_last} ON {producer} (last)",
		"CREATE TABLE {producer_window} (" + windowRows + ")",
		"CREATE INDEX {producer_window_producer} ON {producer_window} (producer_id)",
		"CREATE TABLE {producer_stream} (" + streamRows + ")",
		"CREATE TABLE {producer_log} (" + logRows + ")",
		"CREATE TABLE {producer_state} (" + stateRows + ")",
		"INSERT INTO {producer_state} (id, last_id) VALUES (1, 0)",
	}
	if d.MySQL { // each statement commits alone, and may be repeated
		const end = ") ENGINE = InnoDB ROW_FORMAT = DYNAMIC"
		templates = []string{
			"CREATE TABLE IF NOT EXISTS {producer} (" + producerRows + ", UNIQUE KEY name (name), KEY last (last)" + end,
			"CREATE TABLE IF NOT EXISTS {producer_window} (" + windowRows + ", KEY producer (producer_id)" + end,
			"CREATE TABLE IF NOT EXISTS {producer_stream} (" + streamRows + end,
			"CREATE TABLE IF NOT EXISTS {producer_log} (" + logRows + end,
			"CREATE TABLE IF NOT EXISTS {producer_state} (" + stateRows + end,
			"INSERT IGNORE INTO {producer_state} (id, last_id) VALUES (1, 0)",
		}
	}
	for i, template := range templates {
		templates[i] = d.Definition(template, tables...)
	}
	return templates
}

// statements are all statements of a Store.
type statements struct {
	create, bounds                                    *sqldb.Statement // for streams
	lockStream, lockWindow, lockProducer, lastID      *sqldb.Statement // for appends
	advance, put, open, keep, touch                   *sqldb.Statement
	read                                              *sqldb.Statement
	lockState, byName, insert, granted, raise, raised *sqldb.Statement // for grants
	below, older, cut, first                          *sqldb.Statement // for truncation
	idle, lockWindows, countWindows                   *sqldb.Statement // for purges
	dropWindows, drop                                 *sqldb.Statement
}

func newStatements(d *sqldb.Dialect) *statements {
	st := func(name string, args int, template string) *sqldb.Statement {
		s := d.Statement("producer_"+name, args, template, tables...)
		s.Keep = true
		return s
	}
	create := "INSERT INTO {producer_stream} (name, first, next) VALUES ({1t}, 0, 0) ON CONFLICT (name) DO NOTHING"
	if d.MySQL {
		create = "INSERT IGNORE INTO {producer_stream} (name, first, next) VALUES ({1t}, 0, 0)"
	}
	const (
		stream = "SELECT first, next FROM {producer_stream} WHERE name = {1t}"
	)
	// MySQL locks every row that it reads: force the index in a small table too.
	last, windows, rows := "{producer} ", "{producer_window} ", ""
	if d.MySQL {
		last, windows, rows = last+"FORCE INDEX (last) ", windows+"FORCE INDEX (producer) ", windows
	}
	ofProducers := windows + "WHERE " + d.InInts("producer_id", "{1t}")
	return &statements{
		create: st("create", 1, create),
		bounds: st("bounds", 1, stream),

		lockStream:   st("lock_stream", 1, stream+" {for update}"),
		lockWindow:   st("lock_window", 2, "SELECT granted, named, last, {now}, state FROM {producer_window} WHERE stream = {1t} AND producer_id = {2i} {for update}"),
		lockProducer: st("lock_producer", 1, "SELECT epoch, CASE WHEN name IS NULL THEN 0 ELSE 1 END FROM {producer} WHERE id = {1i} {for update}"),
		lastID:       st("last_id", 0, "SELECT last_id FROM {producer_state} WHERE id = 1"),
		// If the server has ended the transaction, this must fail: it would commit alone.
		advance: st("advance", 2, "UPDATE {producer_stream} SET next = {2i} + 0{alive} WHERE name = {1t}"),
		put: st("put", 7, "INSERT INTO {producer_log} (stream, last, records, producer_id, epoch, sequence, at, data)"+
			" VALUES ({1t}, {2i}, {3i}, {4i}, {5i}, {6i}, {now}, {7b})"),
		open: st("open", 5, "INSERT INTO {producer_window} (stream, producer_id, granted, named, last, state) VALUES ({1t}, {2i}, {3i}, {4i}, {now}, {5b})"),
		keep: st("keep", 3, "UPDATE {producer_window} SET last = {now}, state = {3b} WHERE stream = {1t} AND producer_id = {2i}"),

		touch: st("touch", 1, "UPDATE {producer} SET last = {now} WHERE id = {1i}"),
		read: st("read", 3, "SELECT last, records, producer_id, epoch, sequence, at, data FROM {producer_log}"+
			" WHERE stream = {1t} AND last >= {2i} ORDER BY last LIMIT {3i}"),

		lockState: st("lock_state", 0, "SELECT last_id FROM {producer_state} WHERE id = 1 {for update}"),
		byName:    st("by_name", 1, "SELECT id, epoch FROM {producer} WHERE name = {1t} {for update}"),
		insert:    st("insert", 2, "INSERT INTO {producer} (id, name, epoch, last) VALUES ({1i}, {2t}, 0, {now})"),
		granted:   st("granted", 1, "UPDATE {producer_state} SET last_id = {1i} WHERE id = 1"),
		raise:     st("raise", 2, "UPDATE {producer} SET epoch = {2i}, last = {now} WHERE id = {1i}"),
		raised:    st("raised", 2, "UPDATE "+windows+"SET granted = {2i} WHERE producer_id = {1i}"),

		below: st("below", 3, "SELECT last, 0 FROM {producer_log} WHERE stream = {1t} AND last < {2i} ORDER BY last LIMIT {3i}"),
		older: st("older", 3, "SELECT last, CASE WHEN at <= {now} - {2i} THEN 0 ELSE 1 END FROM {producer_log} WHERE stream = {1t} ORDER BY last LIMIT {3i}"),
		cut:   st("cut", 2, "DELETE FROM {producer_log} WHERE stream = {1t} AND last <= {2i}"),
		first: st("first", 2, "UPDATE {producer_stream} SET first = {2i} WHERE name = {1t}"),

		idle:         st("idle", 2, "SELECT id FROM "+last+"WHERE last <= {now} - {1i} ORDER BY last LIMIT {2i} {skip locked}"),
		lockWindows:  st("lock_windows", 1, "SELECT producer_id, 1 FROM "+ofProducers+" {skip locked}"),
		countWindows: st("count_windows", 1, "SELECT producer_id, count(*) FROM "+ofProducers+" GROUP BY producer_id"),
		dropWindows:  st("drop_windows", 1, "DELETE "+rows+"FROM "+windows+"WHERE producer_id = {1i}"),
		drop:         st("drop", 1, "DELETE FROM {producer} WHERE id = {1i}"),
	}
}
