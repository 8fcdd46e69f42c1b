package pgxstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlstore"
)

// now is the database's clock, not the transaction's start, as now() would be.
const now = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

// newDialect says how the texts of statements are PostgreSQL's.
func newDialect(s *settings) *sqldb.Dialect {
	t := &s.tables
	d := &sqldb.Dialect{
		Name:         "PostgreSQL",
		Placeholder:  placeholder,
		Now:          now,
		WriteNow:     now,
		OneStatement: true,
		SkipLocked:   "FOR UPDATE SKIP LOCKED",
		Arrays:       true,
		Table:        t.name,
		Index:        func(name string) string { return pgx.Identifier{t.prefix + name}.Sanitize() },
		Serial:       "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
		Int:          "bigint",
		Text:         `text COLLATE "C"`,
		Bytes:        "bytea",
		Announce:     "SELECT pg_notify({1t}, '')",
	}
	if !s.async {
		d.WriteNow, d.Durable = now+" + CASE WHEN "+raiseCommit+" THEN 1 ELSE 0 END", durable
	}
	return d
}

// raiseCommit is false, and has the transaction commit at "on" at least. It stands in the statements that write, so
// that it costs no message, is true of the caller's transactions too, and of a connection whose settings a pooler lends
// to many.
const raiseCommit = "CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') " +
	"THEN set_config('synchronous_commit', 'on', true) IS NULL ELSE false END"

const durable = "CASE WHEN " + raiseCommit + " THEN 0 ELSE 1 END"

// newStatements returns the statements of the engine, for PostgreSQL.
func (d *database) newStatements() *sqlstore.Statements {
	return sqlstore.NewStatements(sqlstore.Dialect{
		Dialect: d.dialect,
		Record:  d.tables.record, Step: d.tables.step, Meta: d.tables.meta,
		// A lock that is asked for, never waited for: a lock_timeout would abort the transaction. Two
		// keys share one with a probability of 2⁻⁶⁴, and are then in progress while they are not.
		TryLock:   func(id string) string { return "pg_try_advisory_xact_lock(" + d.lockOf("record", id) + ")" },
		Notify:    d.notifyEnd(),
		Greatest:  "greatest",
		RowID:     "ctid",
		RowIDType: "tid",
	})
}

// lockOf is the number of the advisory lock on a key, of those for one purpose.
func (d *database) lockOf(purpose, id string) string {
	seed := lockNumber("everonce/" + purpose + "/" + d.tables.record)
	return "hashtextextended(encode(" + id + ", 'hex') COLLATE \"C\", " + strconv.FormatInt(seed, 10) + ")"
}

// placeholder says the type of every argument, so that no mode of a client has to guess it.
func placeholder(n int, kind sqldb.ArgKind) string {
	return "$" + strconv.Itoa(n) + [...]string{sqldb.ArgInt: "::bigint", sqldb.ArgText: "::text", sqldb.ArgBytes: "::bytea"}[kind]
}

// Traits describes PostgreSQL to the engine.
func (d *database) Traits() sqlstore.Traits {
	return sqlstore.Traits{
		MigrateHint: "run the store's Migrate once, or the text of its Schema with your own migration tool",
		Notes:       d.notes,
		Check:       d.hasSessions,
	}
}

// durability are the settings without which a commit that was answered can be lost, and what that takes.
var durability = []struct{ setting, good, loss string }{
	{"fsync", "on", "a crash of the machine can lose and corrupt everything"},
	{"full_page_writes", "on", "a crash of the machine can corrupt the tables"},
	{"synchronous_commit", "", "a crash of the server loses the commits of the last moments"},
}

var readSettings = &sqldb.Statement{
	Name: "settings", Rows: true,
	Text: "SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'), " +
		"CASE WHEN pg_is_in_recovery() THEN 1 ELSE 0 END, " +
		"(SELECT count(*) FROM pg_class WHERE oid IN (to_regclass($1::text), to_regclass($2::text)) AND relpersistence <> 'p')",
}

// notes returns what in the database's settings weakens the store's guarantees.
func (d *database) notes(ctx context.Context) ([]string, error) {
	var notes []string
	err := d.read(ctx, &sqldb.Call{Statement: readSettings, Args: []any{d.tables.record, d.tables.step}, Each: func(row sqldb.Row) error {
		values := make([]string, len(durability))
		var standby, unlogged int64
		if err := row.Scan(&values[0], &values[1], &values[2], &standby, &unlogged); err != nil {
			return err
		}
		if unlogged != 0 {
			notes = append(notes, "The tables are UNLOGGED: a crash of the server empties them, a standby does not have their rows, and all operations are new then.")
		}
		for i, guard := range durability {
			if values[i] != guard.good && (guard.good != "" || values[i] == "off" && d.async) {
				notes = append(notes, fmt.Sprintf("%s is %s: %s.", guard.setting, values[i], guard.loss))
			}
		}
		if len(notes) == 0 {
			notes = append(notes, "Acknowledged writes are on the disk of the server (fsync is on, and each commit waits for it). A failover to a standby that had not received them loses them.")
		}
		if standby != 0 {
			notes = append(notes, "The server is a standby: it accepts no writes.")
		}
		return nil
	}})
	return notes, err
}
