package inbox

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/envelope"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// Options are the options of an inbox. The zero value of each field is its default. The functions are called when a
// message is taken in, and must not change it.
type Options struct {
	// Key finds what a message is recognised by, at most 255 bytes. Default [consume.ProducerID]. Set [consume.CloudEvent] if
	// CloudEvents of several sources are taken in: their ids are unique only within a source.
	Key consume.Key
	// Type finds what a message is about, by which handlers are chosen, at most 255 bytes. Default: [consume.Message.Type];
	// else that of a CloudEvent in the headers or the body, the header "type", or [consume.Message.Subject].
	Type func(m *consume.Message) string
	// OrderKey, if set, finds the key within which messages are handled in order, at most 255 bytes; an empty one orders
	// nothing. The producer's is [consume.Message.OrderKey].
	OrderKey func(m *consume.Message) string
	// Priority, if set, is from 0, the default, to 9. A message goes before those that came up to 10 s earlier for each step;
	// so no priority starves another.
	Priority func(m *consume.Message) int
	// Expires, if set, is for how long a message is worth handling; 0 is for ever. One that is older is discarded, visibly.
	Expires func(m *consume.Message) time.Duration
	// MaxBody is the size of the largest body, in bytes. Default 1 MiB.
	MaxBody int
	// NoAnnounce has Receive announce nothing, so that commits do not take PostgreSQL's lock on announcements. Set it where no
	// worker listens, because all poll.
	NoAnnounce bool
	// Lifetime is how long the store remembers a handled message after its row was removed. Default [everonce.ForQueue]; see
	// [everonce.ForWeb] and [everonce.ForFinance].
	Lifetime everonce.Lifetime
}

const (
	defaultMaxBody = 1 << 20
	maxPriority    = 9
	priorityStep   = 10 * time.Second
)

// Inbox is the messages of one consumer in a table beside the store of a receiver. Tx is the handle of the application's
// transactions. It is safe for concurrent use.
type Inbox[Tx any] struct {
	receiver *everonce.TxReceiver[Tx]
	consumer string
	table    *sqlqueue.Table[Tx]
	opts     Options
	call     everonce.CallOption
	insert   *sqldb.Statement
	read     *sqldb.Statement
	look     *sqldb.Statement // on MySQL, before an insertion
}

// spec is the queue of a consumer's messages, or of all.
func spec(consumer string) sqlqueue.Spec {
	return sqlqueue.Spec{
		Table: "inbox", Group: "consumer", Lane: "type", In: consumer, Unique: []string{"consumer", "id"},
		Own: []string{"source", "content_type", "headers", "body", "priority", "expires_at"},
	}
}

// New returns the inbox of a consumer beside the receiver's store, which must be one in a SQL database: store/pgxstore,
// store/mysqlstore or store/sqlitestore. Consumers of one event do not skip each other's work. It sends nothing. The error wraps
// [everonce.ErrInvalidArgument].
func New[Tx any](receiver *everonce.TxReceiver[Tx], consumer string, opts *Options) (*Inbox[Tx], error) {
	if consumer == "" || len(consumer) > sqlqueue.MaxText || !sqlqueue.Stores(consumer) {
		return nil, fmt.Errorf("inbox: %w: the consumer's name is empty, longer than %d bytes, or not UTF-8 without NUL", everonce.ErrInvalidArgument, sqlqueue.MaxText)
	}
	table, err := open(receiver, consumer)
	if err != nil {
		return nil, err
	}
	in := &Inbox[Tx]{receiver: receiver, consumer: consumer, table: table}
	if opts != nil {
		in.opts = *opts
	}
	o := &in.opts
	if o.MaxBody < 0 {
		return nil, fmt.Errorf("inbox: %w: MaxBody is negative", everonce.ErrInvalidArgument)
	}
	o.MaxBody = cmp.Or(o.MaxBody, defaultMaxBody)
	if o.Key == nil {
		o.Key = consume.ProducerID()
	}
	if o.Type == nil {
		o.Type = typeOf
	}
	if o.Lifetime == (everonce.Lifetime{}) {
		o.Lifetime = everonce.ForQueue()
	}
	if in.call, err = receiver.Prepare(everonce.WithLifetime(o.Lifetime)); err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	d := table.DB.Dialect()
	in.insert = d.Statement("inbox_insert", 11,
		"INSERT INTO {inbox} (consumer, id, type, order_key, source, content_type, headers, body, priority, expires_at, state, attempts, rank, due_at, created_at, token, error)"+
			" SELECT {1t}, {2t}, {3t}, {4t}, {5t}, {6t}, {7t}, {8b}, {9i}, CASE WHEN {10i} = 0 THEN 0 ELSE c.now + {10i} END, 0{alive}, 0, c.now - {11i}, c.now, c.now, 0, ''"+
			" FROM (SELECT {now} AS now) AS c WHERE true"+d.Once("consumer, id"), "inbox")
	in.insert.Keep = true
	const there = "SELECT body FROM {inbox} WHERE consumer = {1t} AND id = {2t} "
	in.read, in.look = d.Statement("inbox_read", 2, there+"{latest}", "inbox"), d.Statement("inbox_look", 2, there+"AND 0{alive} = 0", "inbox")
	in.look.Keep = true
	return in, nil
}

// open returns the table, as a consumer sees it, or as a whole.
func open[Tx any](receiver *everonce.TxReceiver[Tx], consumer string) (*sqlqueue.Table[Tx], error) {
	if receiver == nil {
		return nil, fmt.Errorf("inbox: %w: the receiver is nil", everonce.ErrInvalidArgument)
	}
	return sqlqueue.Open("inbox", "Inbox", receiver.Store(), spec(consumer),
		"source {text} NOT NULL", "content_type {text} NOT NULL", "headers {long} NOT NULL", "body {bytes} NOT NULL",
		"priority {int} NOT NULL", "expires_at {int} NOT NULL")
}

// typeOf is the default of [Options.Type].
func typeOf(m *consume.Message) string {
	if m.Type != "" {
		return m.Type
	}
	return cmp.Or(envelope.Read(m.ContentType, m.Headers, m.Body).Type, m.Headers["type"], m.Subject)
}

// Migrate creates the table, or brings it to this version. Several processes may run it at once, and it does nothing if
// there is nothing to do. It refuses a table of a newer version with [everonce.ErrSchema].
func (in *Inbox[Tx]) Migrate(ctx context.Context) error {
	return in.table.Migrate(ctx)
}

// Schema returns what Migrate runs on an empty database, as text for a migration tool of your own. It changes only with
// a new version of the schema, which the changelog names.
func (in *Inbox[Tx]) Schema() string { return in.table.Schema() }

// Backlog shows the consumer's messages in the table, and lets an operator retry or give up what was set aside.
func (in *Inbox[Tx]) Backlog() *backlog.Table { return backlog.New(in.table.Queue, in.table.Failed) }

// All shows the messages of every consumer in the table beside the receiver's store, as [Inbox.Backlog] does those of
// one. The error wraps [everonce.ErrInvalidArgument].
func All[Tx any](receiver *everonce.TxReceiver[Tx]) (*backlog.Table, error) {
	table, err := open(receiver, "")
	if err != nil {
		return nil, err
	}
	return backlog.New(table.Queue, table.Failed), nil
}

// Get returns a message in the table, whatever its state. [everonce.ErrNotFound]: the consumer has none with this ID.
// [everonce.ErrCorruptRecord]: it cannot be read, and the message has what can.
func (in *Inbox[Tx]) Get(ctx context.Context, id string) (*consume.Message, error) {
	rows, err := sqlqueue.List(ctx, in.table.Queue, sqlqueue.Filter{ID: id, Limit: 1}, (*row).places)
	switch {
	case err != nil:
		return nil, in.table.Failed("get", err)
	case len(rows) == 0 || id == "":
		return nil, fmt.Errorf("inbox: %w: no message with this ID", everonce.ErrNotFound)
	}
	return rows[0].read()
}
