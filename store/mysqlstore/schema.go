package mysqlstore

import (
	"embed"
	"strings"

	"github.com/everonce/everonce/internal/sqlstore"
)

// schema holds a file for each version: 1.sql brings an empty database to version 1, and so on. In them {record} and
// {step} are the tables, and {step_of} is the name of a constraint. A statement that is run again does nothing: each
// commits alone, so a migration may end halfway.
//
//go:embed schema/*.sql
var schema embed.FS

// migrations returns the statements of every version.
func migrations(t tables) [][]string {
	names := strings.NewReplacer("{record}", t.record, "{step}", t.step, "{step_of}", quoted(t.prefix+"step_of"))
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
