package pgxstore

import (
	"embed"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/internal/sqlstore"
)

// schema holds a file for each version: 1.sql brings an empty database to version 1, and so on. In
// them {record}, {step} and {meta} are the tables, {record_…} and {step_…} the names of their indexes.
//
//go:embed schema/*.sql
var schema embed.FS

// migrations returns the statements of every version.
func migrations(t tables) [][]string {
	index := func(name string) string { return pgx.Identifier{t.prefix + name}.Sanitize() }
	names := strings.NewReplacer(
		"{record}", t.record, "{step}", t.step, "{meta}", t.meta,
		"{record_pkey}", index("record_pkey"), "{record_due}", index("record_due"),
		"{record_open}", index("record_open"), "{step_pkey}", index("step_pkey"),
	)
	return sqlstore.Migrations(schema, names)
}

// Schema is [Store.Schema] of a store with these options, without a database.
func Schema(opts *Options) (string, error) {
	d, err := newDatabase(opts)
	if err != nil {
		return "", err
	}
	return sqlstore.SchemaText(d.statements, d.migrations), nil
}

// createSchema returns the statement that creates the tables' schema, or "" if the tables have no separate schema. It
// does not try to create a schema that exists, because that would need a permission that is otherwise not needed.
//
// It looks into the catalog, and does not ask to_regnamespace: that one answers from the connection's own memory of the
// catalog, which may be older than the lock that was waited for. To read the table brings the memory up to date.
func createSchema(t tables) string {
	if t.schema == "" {
		return ""
	}
	name := pgx.Identifier{t.schema}.Sanitize()
	return "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = '" + t.schema + "') THEN CREATE SCHEMA " + name + "; END IF; END $$"
}
