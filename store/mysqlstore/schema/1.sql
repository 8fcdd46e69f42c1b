-- The records: one row per key. Times are microseconds since 1970 by the database's clock; NULL is never. Texts are bytes, so that
-- no collation takes two keys for one. Rows whose due_at is NULL have nothing to be purged.
CREATE TABLE IF NOT EXISTS {record} (
	id             varbinary(64)  NOT NULL,
	token          bigint         NOT NULL,
	rev            bigint         NOT NULL,
	lease_until    bigint,
	prev_claimed   bigint,
	created_at     bigint         NOT NULL,
	claimed_at     bigint,
	updated_at     bigint         NOT NULL,
	completed_at   bigint,
	result_until   bigint,
	purge_at       bigint,
	due_at         bigint,
	attempt        int            NOT NULL,
	steps          int            NOT NULL,
	state          smallint       NOT NULL,
	format         smallint       NOT NULL,
	result_kind    smallint,
	prev_state     smallint,
	nonce          varbinary(64)  NOT NULL,
	fp_sum         varbinary(64),
	scope          varbinary(1024) NOT NULL,
	name           varbinary(1024) NOT NULL,
	owner          varbinary(512),
	fp_alg         varbinary(255),
	result_codec   varbinary(255),
	unknown_step   varbinary(1024),
	prev_owner     varbinary(512),
	last_error     blob,
	result_summary blob,
	result_data    longblob,
	PRIMARY KEY (id),
	KEY record_due (due_at),
	KEY record_open (state, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- The steps of records, in the order of seq.
CREATE TABLE IF NOT EXISTS {step} (
	id             varbinary(64)  NOT NULL,
	name           varbinary(512) NOT NULL,
	seq            bigint         NOT NULL,
	began_at       bigint         NOT NULL,
	ended_at       bigint,
	attempt        int            NOT NULL,
	state          smallint       NOT NULL,
	result_kind    smallint,
	result_codec   varbinary(255),
	result_summary blob,
	result_data    longblob,
	PRIMARY KEY (id, name),
	CONSTRAINT {step_of} FOREIGN KEY (id) REFERENCES {record} (id) ON DELETE CASCADE
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
