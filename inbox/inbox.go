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
// message is received, and must not change it.
type Options struct {
	// Key returns the key that identifies a message, at most 255 bytes. Default [consume.ProducerID]. Set
	// [consume.CloudEvent] for CloudEvents of several sources: their ids are unique only within a source.
	Key consume.Key
	// Type returns the type of a message, which chooses its handlers, at most 255 bytes. Default: [consume.Message.Type];
	// else the type of a CloudEvent in the headers or the body, the header "type", or [consume.Message.Subject].
	Type func(m *consume.Message) string
	// OrderKey, if set, returns the key within which messages are handled in order, at most 255 bytes. Messages with an
	// empty key have no order. The producer's key is [consume.Message.OrderKey].
	OrderKey func(m *consume.Message) string
	// Priority, if set, returns a priority from 0, the default, to 9. Each step lets a message overtake messages that
	// arrived up to 10 s earlier, so no priority starves another.
	Priority func(m *consume.Message) int
	// Expires, if set, returns how long a message may wait; 0 is for ever. A message that has waited longer is discarded,
	// visibly.
	Expires func(m *consume.Message) time.Duration
	// MaxBody is the size of the largest body, in bytes. Default 1 MiB.
	MaxBody int
	// NoAnnounce makes Receive send no announcement (NOTIFY), so that commits do not take PostgreSQL's lock on
	// announcements. Set it if no worker listens, because all of them poll.
	NoAnnounce bool
	// Lifetime is how long the store remembers a handled message after its row was removed. Default [everonce.ForQueue];
	// see [everonce.ForWeb] and [everonce.ForFinance].
	Lifetime everonce.Lifetime
}

const (
	defaultMaxBody = 1 << 20
	maxPriority    = 9
	priorityStep   = 10 * time.Second
)

// Inbox is the table of one consumer's messages beside the store of a receiver. Tx is the handle of the application's
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

// spec describes the queue of a consumer's messages, or of all messages.
func spec(consumer string) sqlqueue.Spec {
	return sqlqueue.Spec{
		Table: "inbox", Group: "consumer", Lane: "type", In: consumer, Unique: []string{"consumer", "id"},
		Own: []string{"source", "content_type", "headers", "body", "priority", "expires_at"},
	}
}

// New returns the inbox of a consumer beside the receiver's store, which must be in a SQL database: store/pgxstore,
// store/mysqlstore or store/sqlitestore. Each consumer of an event handles it. New does no I/O. The error wraps
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

// open returns the table restricted to a consumer, or the whole table if consumer is "".
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

// Migrate creates or upgrades the table. It does nothing if the table is up to date. Several processes may call it at
// once. If the table has a newer version, the error is [everonce.ErrSchema].
func (in *Inbox[Tx]) Migrate(ctx context.Context) error {
	return in.table.Migrate(ctx)
}

// Schema returns the statements that Migrate runs on an empty database, for another migration tool. They change only
// with a new version of the schema, which the changelog names.
func (in *Inbox[Tx]) Schema() string { return in.table.Schema() }

// Backlog returns the consumer's messages in the table, for operators.
func (in *Inbox[Tx]) Backlog() *backlog.Table { return in.table.Backlog().(*backlog.Table) }

// All returns the messages of all consumers in the table beside the receiver's store, as [Inbox.Backlog] returns one
// consumer's messages. The error wraps [everonce.ErrInvalidArgument].
func All[Tx any](receiver *everonce.TxReceiver[Tx]) (*backlog.Table, error) {
	table, err := open(receiver, "")
	if err != nil {
		return nil, err
	}
	return table.Backlog().(*backlog.Table), nil
}

// Get returns a message in the table, in any state. [everonce.ErrNotFound]: the consumer has no message with this ID.
// [everonce.ErrCorruptRecord]: the row cannot be read, and the message holds the readable fields.
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
