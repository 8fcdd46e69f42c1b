package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// Options are the options of an outbox. The zero value of each field is its default.
type Options struct {
	// MaxPayload is the size of the largest payload, in bytes. Default 1 MiB.
	MaxPayload int
	// NoAnnounce has Publish announce nothing, so that commits do not take PostgreSQL's lock on announcements. Set it where
	// no relay listens, because all poll or are woken by outbox/replication.
	NoAnnounce bool
}

// Outbox is a table of events beside the store of a receiver. Tx is the handle of the application's transactions. It is
// safe for concurrent use.
type Outbox[Tx any] struct {
	db     sqldb.DB[Tx]
	queue  *sqlqueue.Queue
	schema sqldb.Schema
	opts   Options
	insert map[int]*sqldb.Statement // by the number of events
	read   *sqldb.Statement
}

// hint says what to run if the tables are missing.
const hint = "call Outbox.Migrate once, or run the text of Outbox.Schema with your own migration tool"

// table is the queue of the events.
var table = sqlqueue.Spec{
	Table: "outbox", Group: "topic", Lane: "topic", Own: []string{"type", "content_type", "headers", "payload"}, Unique: []string{"id"},
}

// New returns the outbox beside the receiver's store, which must be one in a SQL database: store/pgxstore or
// store/sqlitestore. It sends nothing. The error wraps [everonce.ErrInvalidArgument].
func New[Tx any](receiver *everonce.TxReceiver[Tx], opts *Options) (*Outbox[Tx], error) {
	if receiver == nil {
		return nil, fmt.Errorf("outbox: %w: the receiver is nil", everonce.ErrInvalidArgument)
	}
	db, ok := sqldb.Of(receiver.Store())
	if !ok {
		return nil, fmt.Errorf("outbox: %w: the receiver's store is not in a SQL database (use store/pgxstore or store/sqlitestore)", everonce.ErrInvalidArgument)
	}
	o := &Outbox[Tx]{db: db, queue: sqlqueue.New(db, table), insert: make(map[int]*sqldb.Statement)}
	if opts != nil {
		o.opts = *opts
	}
	if o.opts.MaxPayload < 0 {
		return nil, fmt.Errorf("outbox: %w: MaxPayload is negative", everonce.ErrInvalidArgument)
	}
	o.opts.MaxPayload = cmp.Or(o.opts.MaxPayload, defaultMaxPayload)
	d := db.Dialect()
	o.schema = schema(d)
	for n := 1; n <= maxInsert; n *= 2 {
		o.insert[n] = insertion(d, n)
	}
	o.read = d.Statement("outbox_read", 1,
		"SELECT id, topic, order_key, type, content_type, headers, payload FROM {outbox} WHERE "+inIDs(d), "outbox")
	return o, nil
}

func schema(d *sqldb.Dialect) sqldb.Schema {
	return sqldb.Schema{Name: "outbox", Meta: sqldb.NewMeta(d), Hint: hint, Migrations: [][]string{
		table.Definitions(d, "type {text} NOT NULL", "content_type {text} NOT NULL", "headers {text} NOT NULL", "payload {bytes} NOT NULL"),
	}}
}

// Migrate creates the table, or brings it to this version. Several processes may run it at once, and it does nothing if
// there is nothing to do. It refuses a table of a newer version with [everonce.ErrSchema].
func (o *Outbox[Tx]) Migrate(ctx context.Context) error {
	return o.failed("migrate", o.schema.Migrate(ctx, o.db))
}

// Schema returns what Migrate runs on an empty database, as text for a migration tool of your own. It changes only with
// a new version of the schema, which the changelog names.
func (o *Outbox[Tx]) Schema() string { return o.schema.Text() }

// Table returns the name of the table as it stands in SQL statements.
func (o *Outbox[Tx]) Table() string { return o.db.Dialect().Table("outbox") }

// Backlog shows the events in the table, and lets an operator retry or give up what was set aside.
func (o *Outbox[Tx]) Backlog() *backlog.Table { return backlog.New(o.queue, o.failed) }

// Get returns an event in the table, whatever its state. [everonce.ErrNotFound]: there is none with this ID.
func (o *Outbox[Tx]) Get(ctx context.Context, id string) (*Event, error) {
	rows, err := sqlqueue.List(ctx, o.queue, sqlqueue.Filter{ID: id, Limit: 1}, (*row).places)
	switch {
	case err != nil:
		return nil, o.failed("get", err)
	case len(rows) == 0 || id == "":
		return nil, fmt.Errorf("outbox: %w: no event with this ID", everonce.ErrNotFound)
	}
	return rows[0].read()
}

// failed says what an error of the database means.
func (o *Outbox[Tx]) failed(what string, err error) error {
	if err == nil || errors.Is(err, everonce.ErrSchema) || errors.Is(err, everonce.ErrMismatch) || errors.Is(err, everonce.ErrInvalidArgument) {
		return err
	}
	return sqldb.Failed(o.db, "outbox: "+what, hint, err)
}
