package sqlqueue

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
)

// Table is a queue beside a store, with its schema: what outbox, inbox and saga have one each of.
type Table[Tx any] struct {
	DB    sqldb.DB[Tx]
	Queue *Queue

	pkg    string
	schema sqldb.Schema
}

// Open returns the table of a spec, with its specific columns, beside a store, for a package and its type that has
// Migrate and Schema. It sends nothing. The error wraps [driver.ErrInvalidArgument].
func Open[Tx any](pkg, typ string, store driver.TxStore[Tx], spec Spec, own ...string) (*Table[Tx], error) {
	db, ok := sqldb.Of(store)
	if !ok {
		return nil, fmt.Errorf("%s: %w: the receiver's store is not in a SQL database (use store/pgxstore, store/mysqlstore or store/sqlitestore)", pkg, driver.ErrInvalidArgument)
	}
	d := db.Dialect()
	return &Table[Tx]{DB: db, Queue: New(db, spec), pkg: pkg, schema: sqldb.Schema{
		Name: spec.Table, Meta: sqldb.NewMeta(d), Migrations: [][]string{spec.Definitions(d, own...)},
		Hint: fmt.Sprintf("call %s.Migrate once, or run the text of %[1]s.Schema with your own migration tool", typ),
	}}, nil
}

// NewBacklog returns a *backlog.Table of a queue, whose errors wrap returns. Package backlog sets it.
var NewBacklog func(queue *Queue, wrap func(what string, err error) error) any

// Backlog returns the *backlog.Table of the table.
func (t *Table[Tx]) Backlog() any { return NewBacklog(t.Queue, t.Failed) }

// Migrate creates the table, or brings it to this version.
func (t *Table[Tx]) Migrate(ctx context.Context) error {
	return t.Failed("migrate", t.schema.Migrate(ctx, t.DB))
}

// Schema returns what Migrate runs on an empty database.
func (t *Table[Tx]) Schema() string { return t.schema.Text() }

// Check returns an error if the table is missing, or of another version: what is about to work on it.
func (t *Table[Tx]) Check(ctx context.Context, what string) error {
	return t.Failed(what, t.schema.Check(ctx, t.DB))
}

// Failed says what an error of the database means.
func (t *Table[Tx]) Failed(what string, err error) error {
	if err == nil || errors.Is(err, driver.ErrSchema) || errors.Is(err, driver.ErrInvalidArgument) {
		return err
	}
	return sqldb.Failed(t.DB, t.pkg+": "+what, t.schema.Hint, err)
}
