package sqlitestore

import "strings"

// migrations is the schema: entry i brings the tables from version i to i + 1. An entry that was
// released is never changed.
//
// Records lie in the order of their coming, and not of their IDs, which are hashes: what is written at the same time
// lies together, so a commit writes a few pages, and not one for each record; and a purge empties whole pages. Only the
// index of IDs, which an insert writes and nothing else, is in the order of a hash. Steps lie in the order of their
// records' IDs.
func migrations(prefix string) [][]string {
	version1 := []string{
		`CREATE TABLE IF NOT EXISTS {p}record (
	id             BLOB NOT NULL PRIMARY KEY,
	scope          TEXT NOT NULL,
	name           TEXT NOT NULL,
	state          INTEGER NOT NULL,
	token          INTEGER NOT NULL,
	nonce          BLOB NOT NULL,
	owner          TEXT NOT NULL,
	attempt        INTEGER NOT NULL,
	rev            INTEGER NOT NULL,
	steps          INTEGER NOT NULL,
	format         INTEGER NOT NULL,
	created_at     INTEGER NOT NULL,
	updated_at     INTEGER NOT NULL,
	claimed_at     INTEGER,
	lease_until    INTEGER,
	purge_at       INTEGER,
	due_at         INTEGER,
	fp_alg         TEXT,
	fp_sum         BLOB,
	completed_at   INTEGER,
	result_until   INTEGER,
	result_kind    INTEGER,
	result_codec   TEXT,
	result_data    BLOB,
	result_summary BLOB,
	unknown_step   TEXT,
	last_error     TEXT,
	prev_state     INTEGER,
	prev_owner     TEXT,
	prev_claimed   INTEGER
) STRICT`,
		`CREATE INDEX IF NOT EXISTS {p}record_due ON {p}record (due_at) WHERE due_at IS NOT NULL`,
		`CREATE INDEX IF NOT EXISTS {p}record_open ON {p}record (id) WHERE state <> 4`,
		`CREATE TABLE IF NOT EXISTS {p}step (
	id             BLOB NOT NULL REFERENCES {p}record (id) ON DELETE CASCADE,
	name           TEXT NOT NULL,
	seq            INTEGER NOT NULL,
	state          INTEGER NOT NULL,
	attempt        INTEGER NOT NULL,
	began_at       INTEGER NOT NULL,
	ended_at       INTEGER,
	result_kind    INTEGER,
	result_codec   TEXT,
	result_data    BLOB,
	result_summary BLOB,
	PRIMARY KEY (id, name)
) STRICT, WITHOUT ROWID`,
	}
	for i, text := range version1 {
		version1[i] = strings.ReplaceAll(text, "{p}", prefix)
	}
	return [][]string{version1}
}
