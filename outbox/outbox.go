package outbox

import (
	"cmp"
	"context"
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
	// NoAnnounce makes Publish send no announcement (NOTIFY), so that commits do not take PostgreSQL's lock on
	// announcements. Set it if no relay listens, because all of them poll or are woken by outbox/replication.
	NoAnnounce bool
}

// Outbox is a table of events beside the store of a receiver. Tx is the handle of the application's transactions. It is
// safe for concurrent use.
type Outbox[Tx any] struct {
	receiver  *everonce.TxReceiver[Tx]
	table     *sqlqueue.Table[Tx]
	opts      Options
	insert    map[int]*sqldb.Statement // by the number of events
	read      *sqldb.Statement
	look      *sqldb.Statement // on MySQL, before an insertion
	published *sqldb.Statement // published before a time
	remove    *sqldb.Statement
	aside     *sqldb.Statement // sets a published event aside that cannot be read
}

// spec describes the queue of events.
var spec = sqlqueue.Spec{
	Table: "outbox", Group: "topic", Lane: "topic", Own: []string{"type", "content_type", "headers", "payload"}, Unique: []string{"id"},
}

// New returns the outbox beside the receiver's store, which must be in a SQL database: store/pgxstore, store/mysqlstore
// or store/sqlitestore. It does no I/O. The error wraps [everonce.ErrInvalidArgument].
func New[Tx any](receiver *everonce.TxReceiver[Tx], opts *Options) (*Outbox[Tx], error) {
	if receiver == nil {
		return nil, fmt.Errorf("outbox: %w: the receiver is nil", everonce.ErrInvalidArgument)
	}
	table, err := sqlqueue.Open("outbox", "Outbox", receiver.Store(), spec,
		"type {text} NOT NULL", "content_type {text} NOT NULL", "headers {long} NOT NULL", "payload {bytes} NOT NULL")
	if err != nil {
		return nil, err
	}
	o := &Outbox[Tx]{receiver: receiver, table: table, insert: make(map[int]*sqldb.Statement)}
	if opts != nil {
		o.opts = *opts
	}
	if o.opts.MaxPayload < 0 {
		return nil, fmt.Errorf("outbox: %w: MaxPayload is negative", everonce.ErrInvalidArgument)
	}
	o.opts.MaxPayload = cmp.Or(o.opts.MaxPayload, defaultMaxPayload)
	d := table.DB.Dialect()
	for n := 1; n <= maxInsert; n *= 2 {
		o.insert[n] = insertion(d, n)
	}
	const there = "SELECT id, topic, order_key, type, content_type, headers, payload FROM {outbox} WHERE "
	o.read = d.Statement("outbox_read", 1, there+inIDs(d)+" {latest}", "outbox")
	o.look = d.Statement("outbox_look", 1, there+inIDs(d)+" AND 0{alive} = 0", "outbox")
	const old = " WHERE q.state IN (4, 5) AND q.state = 4 AND q.done_at <= {now} - {1i} ORDER BY q.done_at LIMIT {2i}"
	from := "{outbox} AS q" + old
	if d.MySQL { // without locks in the index, for which transactions that have just published would wait
		from = "(SELECT q.seq AS n FROM {outbox} AS q FORCE INDEX (done)" + old + ") AS old STRAIGHT_JOIN {outbox} AS q ON q.seq = old.n WHERE q.state = 4"
	}
	o.published = d.Statement("outbox_published", 2,
		"SELECT q.seq, q.id, q.topic, q.order_key, q.type, q.content_type, q.headers, q.payload, q.attempts, q.created_at FROM "+from+" {skip locked}", "outbox")
	o.aside = d.Statement("outbox_aside", 2, "UPDATE {outbox} SET state = 3, error = {2t} WHERE "+d.InInts("seq", "{1t}"), "outbox")
	o.remove = d.Statement("outbox_remove", 1, "DELETE FROM {outbox} WHERE "+d.InInts("seq", "{1t}"), "outbox")
	return o, nil
}

// Migrate creates or upgrades the table. It does nothing if the table is up to date. Several processes may call it at
// once. If the table has a newer version, the error is [everonce.ErrSchema].
func (o *Outbox[Tx]) Migrate(ctx context.Context) error {
	return o.table.Migrate(ctx)
}

// Schema returns the statements that Migrate runs on an empty database, for another migration tool. They change only
// with a new version of the schema, which the changelog names.
func (o *Outbox[Tx]) Schema() string { return o.table.Schema() }

// Table returns the name of the table as SQL statements write it.
func (o *Outbox[Tx]) Table() string { return o.table.DB.Dialect().Table("outbox") }

// Backlog returns the events in the table, for operators.
func (o *Outbox[Tx]) Backlog() *backlog.Table { return o.table.Backlog().(*backlog.Table) }

// Get returns an event in the table, in any state. [everonce.ErrNotFound]: no event has this ID.
// [everonce.ErrCorruptRecord]: the row cannot be read, and the event holds the readable fields.
func (o *Outbox[Tx]) Get(ctx context.Context, id string) (*Event, error) {
	rows, err := sqlqueue.List(ctx, o.table.Queue, sqlqueue.Filter{ID: id, Limit: 1}, (*row).places)
	switch {
	case err != nil:
		return nil, o.table.Failed("get", err)
	case len(rows) == 0 || id == "":
		return nil, fmt.Errorf("outbox: %w: no event with this ID", everonce.ErrNotFound)
	}
	return rows[0].read()
}
