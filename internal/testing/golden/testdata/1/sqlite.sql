CREATE TABLE IF NOT EXISTS everonce_meta (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS everonce_record (
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
) STRICT;
CREATE INDEX IF NOT EXISTS everonce_record_due ON everonce_record (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS everonce_record_open ON everonce_record (id) WHERE state <> 4;
CREATE TABLE IF NOT EXISTS everonce_step (
	id             BLOB NOT NULL REFERENCES everonce_record (id) ON DELETE CASCADE,
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
) STRICT, WITHOUT ROWID;
INSERT INTO everonce_meta (name, value) VALUES ('schema', '1');
