package pgxstore

import (
	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlstore"
)

// Texts returns the statements of a store with these options.
func Texts(opts *Options) (*sqlstore.Statements, error) {
	d, err := newDatabase(opts)
	if err != nil {
		return nil, err
	}
	return d.statements, nil
}

// Failing is the wrapper of statements that ride on a commit.
var Failing = failing

// RowOf is how the engine reads a row.
func RowOf(rows pgx.Rows) sqldb.Row { return &pgxRow{rows} }

// ScanBinary reports whether a row is read without pgx's help.
func ScanBinary(rows pgx.Rows, dest ...any) bool {
	return scanBinary(rows.FieldDescriptions(), rows.RawValues(), dest)
}

// ClassOf is what an error means to the engine.
func ClassOf(err error) sqldb.ErrorClass { return classify(err).Class }
