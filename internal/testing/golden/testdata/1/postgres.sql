CREATE TABLE IF NOT EXISTS "everonce_meta" (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL);
-- The records: one row per key. Times are microseconds since 1970 by the database's clock; NULL is never.
-- The fill factor leaves room in a page for a claim's renewals and its completion.
CREATE TABLE "everonce_record" (
	id             bytea    NOT NULL,
	token          bigint   NOT NULL,
	rev            bigint   NOT NULL,
	lease_until    bigint,
	prev_claimed   bigint,
	created_at     bigint   NOT NULL,
	claimed_at     bigint,
	updated_at     bigint   NOT NULL,
	completed_at   bigint,
	result_until   bigint,
	purge_at       bigint,
	due_at         bigint,
	attempt        integer  NOT NULL,
	steps          integer  NOT NULL,
	state          smallint NOT NULL,
	format         smallint NOT NULL,
	result_kind    smallint,
	prev_state     smallint,
	nonce          bytea    NOT NULL,
	fp_sum         bytea,
	scope          text     COLLATE "C" NOT NULL,
	name           text     COLLATE "C" NOT NULL,
	owner          text     COLLATE "C",
	fp_alg         text     COLLATE "C",
	result_codec   text     COLLATE "C",
	unknown_step   text     COLLATE "C",
	prev_owner     text     COLLATE "C",
	last_error     text     COLLATE "C",
	result_summary bytea,
	result_data    bytea,
	CONSTRAINT "everonce_record_pkey" PRIMARY KEY (id)
) WITH (fillfactor = 90);
-- What a purge looks through: rows that have something to be purged, in the order in which it is due.
CREATE INDEX "everonce_record_due" ON "everonce_record" (due_at) WHERE due_at IS NOT NULL;
-- What is not completed: few rows, that operators look for among many.
CREATE INDEX "everonce_record_open" ON "everonce_record" (id) WHERE state <> 4;
-- The steps of records, in the order of seq.
CREATE TABLE "everonce_step" (
	id             bytea    NOT NULL REFERENCES "everonce_record" (id) ON DELETE CASCADE,
	name           text     COLLATE "C" NOT NULL,
	seq            bigint   NOT NULL,
	began_at       bigint   NOT NULL,
	ended_at       bigint,
	attempt        integer  NOT NULL,
	state          smallint NOT NULL,
	result_kind    smallint,
	result_codec   text     COLLATE "C",
	result_summary bytea,
	result_data    bytea,
	CONSTRAINT "everonce_step_pkey" PRIMARY KEY (id, name)
);
INSERT INTO "everonce_meta" (name, value) VALUES ('schema', '1');
