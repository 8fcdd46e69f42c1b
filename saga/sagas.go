package saga

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// Sagas is a table of sagas beside the store of a receiver. Tx is the handle of the application's transactions. It is
// safe for concurrent use.
type Sagas[Tx any] struct {
	receiver *everonce.TxReceiver[Tx]
	guarded  *everonce.Receiver
	table    *sqlqueue.Table[Tx]
	insert   *sqldb.Statement
	read     *sqldb.Statement
	look     *sqldb.Statement // on MySQL, before an insertion
	note     *sqldb.Statement
	order    *sqldb.Statement
	reopen   *sqldb.Statement
}

// spec describes the queue of sagas.
var spec = sqlqueue.Spec{
	Table: "saga", Group: "definition", Lane: "lane", Unique: []string{"id"},
	Own: []string{"shape", "status", "input", "cause", "tries", "orders"},
}

// New returns the sagas beside the receiver's store, which must be in a SQL database: store/pgxstore, store/mysqlstore
// or store/sqlitestore. It does no I/O. The error wraps [everonce.ErrInvalidArgument].
func New[Tx any](receiver *everonce.TxReceiver[Tx]) (*Sagas[Tx], error) {
	if receiver == nil {
		return nil, fmt.Errorf("saga: %w: the receiver is nil", everonce.ErrInvalidArgument)
	}
	table, err := sqlqueue.Open("saga", "Sagas", receiver.Store(), spec,
		"shape {long} NOT NULL", "status {text} NOT NULL", "input {bytes} NOT NULL", "cause {long} NOT NULL", "tries {long} NOT NULL", "orders {long} NOT NULL")
	if err != nil {
		return nil, err
	}
	guarded, err := receiver.Guarded(everonce.Reexecute)
	if err != nil {
		return nil, fmt.Errorf("saga: %w", err)
	}
	s := &Sagas[Tx]{receiver: receiver, guarded: guarded, table: table}
	d := table.DB.Dialect()
	s.insert = d.Statement("saga_insert", 5,
		"INSERT INTO {saga} (id, definition, lane, shape, input, order_key, status, cause, tries, orders, state, attempts, rank, due_at, created_at, token, error)"+
			" SELECT {1t}, {2t}, {3t}, {4t}, {5b}, '', 'running', '', '', '', 0{alive}, 0, c.now, c.now, c.now, 0, '' FROM (SELECT {now} AS now) AS c WHERE true"+d.Once("id"), "saga")
	const byID = "SELECT lane, input FROM {saga} WHERE id = {1t} "
	s.read, s.look = d.Statement("saga_read", 1, byID+"{latest}", "saga"), d.Statement("saga_look", 1, byID+"AND 0{alive} = 0", "saga")
	s.note = d.Statement("saga_note", 5, "UPDATE {saga} SET status = {3t}, cause = {4t}, tries = {5t} WHERE seq = {1i} AND token = {2i}", "saga")
	s.order = d.Statement("saga_order", 2, "UPDATE {saga} SET orders = concat(orders, {2t}) WHERE id = {1t} AND state IN (0, 2, 3)", "saga")
	// Orders given while a runner had claimed the saga make it due when the runner releases it.
	s.reopen = d.Statement("saga_heed", 2, "UPDATE {saga} SET state = 0, due_at = {now}, rank = {now} WHERE seq = {1i} AND token = 0 AND state IN (0, 2) AND orders <> {2t}", "saga")
	return s, nil
}

// Migrate creates or upgrades the tables. It does nothing if they are up to date. Several processes may call it at
// once. If the tables have a newer version, the error is [everonce.ErrSchema].
func (s *Sagas[Tx]) Migrate(ctx context.Context) error {
	return s.table.Migrate(ctx)
}

// Schema returns the statements that Migrate runs on an empty database, for another migration tool. They change only
// with a new version of the schema, which the changelog names.
func (s *Sagas[Tx]) Schema() string { return s.table.Schema() }

// Backlog returns the sagas in the table, for operators. [backlog.Table.Discard] gives a saga up in its current state,
// hadNoEffect its compensations: prefer [Sagas.Abort] and [Sagas.Skip].
func (s *Sagas[Tx]) Backlog() *backlog.Table { return s.table.Backlog().(*backlog.Table) }

// maxInput is the size of the largest input, in bytes.
const maxInput = 1 << 20

// Start inserts a saga into the caller's transaction: it begins when that commits. id names it, at most 255 bytes. A
// saga with the same ID is not started again; if its definition or input differs, the error is [everonce.ErrMismatch].
// [everonce.ErrInvalidArgument], [everonce.ErrTooLarge]: nothing was sent. [everonce.ErrStore]: the database failed.
func (d *Definition[In, Tx]) Start(ctx context.Context, sagas *Sagas[Tx], tx Tx, id string, input In) error {
	if id == "" || len(id) > sqlqueue.MaxText || !sqlqueue.Stores(id) {
		return fmt.Errorf("saga: %w: the ID is empty, longer than %d bytes, or not UTF-8 without NUL", everonce.ErrInvalidArgument, sqlqueue.MaxText)
	}
	raw, err := json.Marshal(input)
	switch {
	case err != nil:
		return fmt.Errorf("saga: %w: the input cannot be encoded: %w", everonce.ErrInvalidArgument, err)
	case len(raw) > maxInput:
		return fmt.Errorf("saga: %w: the input has %d bytes; at most %d are possible", everonce.ErrTooLarge, len(raw), maxInput)
	}
	conn, err := sagas.table.DB.Join(ctx, tx)
	if err != nil {
		return fmt.Errorf("saga: start: %w", err)
	}
	dialect := sagas.table.DB.Dialect()
	find := func(st *sqldb.Statement) (found bool, err error) {
		var lane string
		var kept []byte
		read := dialect.Call(st, id).ForEach(func(r sqldb.Row) error { return r.Scan(&lane, &kept) })
		if err := conn.Send(ctx, read); err != nil {
			return false, sagas.table.Failed("start", err)
		}
		if name, _, _ := strings.Cut(lane, "@"); read.Affected > 0 && (name != d.name || !bytes.Equal(kept, raw)) {
			return true, errOther
		}
		return read.Affected > 0, nil
	}
	if dialect.MySQL { // an insertion would lock an existing row
		if found, err := find(sagas.look); found || err != nil {
			return err
		}
	}
	insert := dialect.Call(sagas.insert, id, d.name, d.lane(), d.shape, raw)
	calls := []*sqldb.Call{insert}
	if announce := sagas.table.Queue.Announce(); announce != nil {
		calls = append(calls, announce)
	}
	if err := conn.Send(ctx, calls...); err != nil {
		return sagas.table.Failed("start", err)
	}
	if dialect.Inserted(insert.Affected, 1) > 0 {
		return nil
	}
	if found, err := find(sagas.read); found || err != nil {
		return err
	}
	return errOther // the insertion found it, and it was removed since
}

var errOther = fmt.Errorf("saga: %w: a saga with the same ID and another definition or input exists, or existed a moment ago", everonce.ErrMismatch)
