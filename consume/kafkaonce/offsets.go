package kafkaonce

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/sqldb"
)

// Offsets keeps the offsets of consumer groups in a table beside the store of a receiver. It is for
// [consume.TxSpec.Offsets]: each transaction that handles messages also writes the offset, so that effects, records
// and offset are one commit. The consumer begins at the offset of the table, whatever offset Kafka has. Kafka gets it
// later, for tools that show the lag.
//
// A partition has one owner in the table: the member and the generation of the group that took it last. The
// transaction of any other member rolls back with [ErrFenced], for example in a process that was paused for longer
// than its session. So does a transaction that finds an earlier offset than the last committed one, as after a
// failover of the database that lost commits: [Consumer.Run] then ends, and the next one begins at the table's offset.
//
// A partition is handled in its order: the default of Workers.Concurrency is 1. For more speed, set Workers.Batch: a
// batch is one transaction. With more Concurrency the table has the offset of the first unfinished message, and
// transactions of one partition wait for each other at its row. Transactions at repeatable read or serializable need a
// Concurrency of 1.
//
// Groups of the protocol of KIP-848 are not supported.
//
// It is safe for concurrent use. Tx is the handle of the application's transactions.
type Offsets[Tx any] struct {
	db                sqldb.DB[Tx]
	schema            sqldb.Schema
	read, take, write *sqldb.Statement
}

// ErrFenced says that another member of the group has taken the partition, or that its row was removed or set back.
// The transaction was rolled back.
var ErrFenced = fmt.Errorf("%w: kafkaonce: another member of the group has taken the partition in the table of offsets, or its row was removed or set back", consume.ErrGone)

// takeTimeout bounds the wait for a row, so that a long wait is logged.
const takeTimeout = 5 * time.Second

// columns are the key of a row. A topic that is created anew has another ID, and its offsets start from zero.
const columns = "consumer_group, topic, topic_id, part"

// NewOffsets returns the offsets beside the receiver's store, which must be in PostgreSQL or SQLite. It sends nothing.
// The error wraps [everonce.ErrInvalidArgument].
func NewOffsets[Tx any](receiver *everonce.TxReceiver[Tx]) (*Offsets[Tx], error) {
	if receiver == nil {
		return nil, fmt.Errorf("%w: kafkaonce: the receiver is nil", everonce.ErrInvalidArgument)
	}
	db, ok := sqldb.Of(receiver.Store())
	if !ok || db.Dialect().MySQL {
		return nil, fmt.Errorf("%w: kafkaonce: the receiver's store has no room for offsets (use store/pgxstore or store/sqlitestore)", everonce.ErrInvalidArgument)
	}
	d := db.Dialect()
	const at, owned = "consumer_group = {1t} AND topic = {2t} AND topic_id = {3t} AND part = {4i}", " AND generation = {5i} AND member = {6t}"
	// kept rejects a write after the database has lost commits, in a failover or a restore: it would skip the lost
	// messages.
	const kept = " AND (epoch > {10i} OR epoch = {10i} AND next >= {9i})"
	// ahead is true for a later position. Epoch and offset grow along a log; where the log was truncated, the epoch is
	// newer.
	const ahead = "(epoch < {8i} OR epoch = {8i} AND next < {7i})"
	o := &Offsets[Tx]{
		db: db,
		schema: sqldb.Schema{
			Name: "kafka_offsets", Meta: sqldb.NewMeta(d), Hint: "call Offsets.Migrate once, or run the text of Offsets.Schema with your own migration tool",
			Migrations: [][]string{{d.Definition("CREATE TABLE {kafka_offsets} (consumer_group {text} NOT NULL, topic {text} NOT NULL, topic_id {text} NOT NULL, part {int} NOT NULL,"+
				" generation {int} NOT NULL, member {text} NOT NULL, next {int} NOT NULL, epoch {int} NOT NULL, PRIMARY KEY ("+columns+"))", "kafka_offsets")}},
		},
		read: d.Statement("kafka_offsets_read", 4, "SELECT generation, member FROM {kafka_offsets} WHERE "+at, "kafka_offsets"),
		take: d.Statement("kafka_offsets_take", 8, "INSERT INTO {kafka_offsets} AS o ("+columns+", generation, member, next, epoch) VALUES ({1t}, {2t}, {3t}, {4i}, {5i}, {6t}, -1, -1)"+
			" ON CONFLICT ("+columns+") DO UPDATE SET generation = {5i}, member = {6t} WHERE o.generation = {7i} AND o.member = {8t} RETURNING next, epoch", "kafka_offsets"),
		write: d.Statement("kafka_offsets_write", 10, "UPDATE {kafka_offsets} SET next = CASE WHEN "+ahead+" THEN {7i} ELSE next END, epoch = CASE WHEN "+ahead+" THEN {8i} ELSE epoch END"+
			" WHERE "+at+owned+kept, "kafka_offsets"),
	}
	o.write.Keep = true
	return o, nil
}

// Migrate creates the table or upgrades it. Several processes may run it at once. It does nothing if the table is up
// to date. It refuses a table of a newer version with [everonce.ErrSchema].
func (o *Offsets[Tx]) Migrate(ctx context.Context) error {
	return o.storeError("migrate", o.schema.Migrate(ctx, o.db))
}

// Schema returns the SQL that Migrate runs on an empty database, for another migration tool.
func (o *Offsets[Tx]) Schema() string { return o.schema.Text() }

// Note implements [consume.Offsets]. It writes the offset that is valid once the transaction has committed.
func (o *Offsets[Tx]) Note(ctx context.Context, tx Tx, ms []*consume.Message) error {
	p, ok := ctx.Value(inPartition{}).(*partition)
	if !ok {
		return fmt.Errorf("%w: kafkaonce: Offsets is for consumers of this package, whose TxSpec.Context derives from the context that it is given", everonce.ErrInvalidArgument)
	}
	at, err := p.markWith(ms)
	if err != nil {
		return err
	}
	conn, err := o.db.Join(ctx, tx)
	if err != nil {
		return err
	}
	call := o.writing(&at)
	if err := conn.Send(ctx, call); err != nil {
		return o.storeError("write the offset", err)
	}
	if call.Affected == 0 {
		p.fence()
		return ErrFenced
	}
	return nil
}

// owner is a member of a group in one generation. The two together are unique.
type owner struct {
	group, member string
	generation    int32
}

// mark is the position of an owner in a partition.
type mark struct {
	owner
	place
	topicID string
	next    kgo.EpochOffset
	least   kgo.EpochOffset // which the table has, as its owner has heard
}

// offsetsTable is [Offsets] without its type parameter.
type offsetsTable interface {
	check(ctx context.Context) error
	isNil() bool
	ownerOf(ctx context.Context, m *mark) (owner, error)
	takeOver(ctx context.Context, m *mark, from owner) (taken bool, err error)
	save(ctx context.Context, ms []mark) (fenced []bool, err error)
}

// isNil reports whether o is a nil pointer in a non-nil interface.
func (o *Offsets[Tx]) isNil() bool { return o == nil }

func (o *Offsets[Tx]) check(ctx context.Context) error {
	return o.storeError("look at the table", o.schema.Check(ctx, o.db))
}

func (m *mark) key() []any {
	return []any{m.group, m.topic, m.topicID, int64(m.number)}
}

func (o *Offsets[Tx]) writing(m *mark) *sqldb.Call {
	return &sqldb.Call{Statement: o.write, Args: append(m.key(), int64(m.generation), m.member, m.next.Offset, int64(m.next.Epoch), m.least.Offset, int64(m.least.Epoch))}
}

// ownerOf returns the owner of a partition, or the zero value if it has none.
func (o *Offsets[Tx]) ownerOf(ctx context.Context, m *mark) (by owner, err error) {
	var generation int64
	err = o.db.Read(ctx, (&sqldb.Call{Statement: o.read, Args: m.key()}).ForEach(func(r sqldb.Row) error { return r.Scan(&generation, &by.member) }))
	by.generation = int32(generation) //nolint:gosec // it was one
	return by, o.storeError("read the owner", err)
}

// takeOver makes the mark's owner the owner of the partition, unless from no longer is, and reads the offset. It waits
// for a transaction that has written the row, but only up to takeTimeout: the transaction of a dead host stays open
// until the server notices.
func (o *Offsets[Tx]) takeOver(ctx context.Context, m *mark, from owner) (taken bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, takeTimeout)
	defer cancel()
	err = o.db.Write(ctx, func(ctx context.Context, c sqldb.Conn) error {
		var epoch int64
		call := &sqldb.Call{Statement: o.take, Args: append(m.key(), int64(m.generation), m.member, int64(from.generation), from.member)}
		err := c.Send(ctx, call.ForEach(func(r sqldb.Row) error { return r.Scan(&m.next.Offset, &epoch) }))
		taken, m.next.Epoch = call.Affected > 0, int32(epoch) //nolint:gosec // it was one
		m.least = m.next
		return err
	})
	return taken, o.storeError("take a partition", err)
}

// save writes offsets outside of the transactions of handlers, for messages without one: retried messages and dead
// letters.
func (o *Offsets[Tx]) save(ctx context.Context, ms []mark) (fenced []bool, err error) {
	err = o.db.Write(ctx, func(ctx context.Context, c sqldb.Conn) error {
		fenced = make([]bool, len(ms))
		for i := range ms {
			call := o.writing(&ms[i])
			if err := c.Send(ctx, call); err != nil {
				return err
			}
			fenced[i] = call.Affected == 0
		}
		return nil
	})
	return fenced, o.storeError("write the offsets", err)
}

func (o *Offsets[Tx]) storeError(what string, err error) error {
	if err == nil || errors.Is(err, everonce.ErrSchema) {
		return err
	}
	return sqldb.Failed(o.db, "kafkaonce: "+what, o.schema.Hint, err)
}
