package patterns

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
)

// tampering is what happens to the statements that the patterns send, but not to the core's.
type tampering struct {
	// around makes a call to the database, or does not. what is "read", "write", or the names of the statements that are
	// sent together.
	around func(ctx context.Context, what string, call func() error) error
	// text changes the text of a statement.
	text func(name, text string) string

	changed sync.Map // statements by those that they stand for: drivers know them by their addresses
}

// tampered returns the same database, whose outbox and inbox are tampered with.
func tampered[Tx any](t testing.TB, h *handle[Tx], with *tampering) *handle[Tx] {
	t.Helper()
	return h.on(t, &tamperedStore[Tx]{h.store, &tamperedDB[Tx]{h.sqldb(t), with}})
}

// sqldb is the store's database.
func (h *handle[Tx]) sqldb(t testing.TB) sqldb.DB[Tx] {
	t.Helper()
	db, ok := sqldb.Of(h.store)
	if !ok {
		t.Fatal("the store is not in a SQL database")
	}
	return db
}

// on returns the handle with another store on the same database.
func (h *handle[Tx]) on(t testing.TB, store driver.TxStore[Tx]) *handle[Tx] {
	t.Helper()
	other := *h
	other.store = store
	var err error
	if other.receiver, err = everonce.NewTxReceiver(store, nil); err != nil {
		t.Fatal(err)
	}
	return &other
}

// tamperedStore is a store with another way to its database.
type tamperedStore[Tx any] struct {
	driver.TxStore[Tx]
	db sqldb.DB[Tx]
}

func (s *tamperedStore[Tx]) SQL() sqldb.DB[Tx] { return s.db }

type tamperedDB[Tx any] struct {
	sqldb.DB[Tx]
	with *tampering
}

func (d *tamperedDB[Tx]) Read(ctx context.Context, calls ...*sqldb.Call) error {
	d.with.rewrite(calls)
	return d.with.call(ctx, "read", func() error { return d.DB.Read(ctx, calls...) })
}

func (d *tamperedDB[Tx]) Write(ctx context.Context, op func(ctx context.Context, c sqldb.Conn) error) error {
	return d.with.call(ctx, "write", func() error {
		return d.DB.Write(ctx, func(ctx context.Context, c sqldb.Conn) error { return op(ctx, tamperedConn{c, d.with}) })
	})
}

func (d *tamperedDB[Tx]) Join(ctx context.Context, tx Tx) (sqldb.TxConn[Tx], error) {
	c, err := d.DB.Join(ctx, tx)
	if err != nil {
		return nil, err
	}
	return tamperedTx[Tx]{c, tamperedConn{c, d.with}}, nil
}

// Listen is the database's, if it has it.
func (d *tamperedDB[Tx]) Listen(ctx context.Context, channel string, heard func()) error {
	if l, ok := d.DB.(sqldb.Listener); ok {
		return l.Listen(ctx, channel, heard)
	}
	return errors.ErrUnsupported
}

type tamperedConn struct {
	sqldb.Conn
	with *tampering
}

func (c tamperedConn) Send(ctx context.Context, calls ...*sqldb.Call) error {
	names := make([]string, len(calls))
	for i, call := range calls {
		names[i] = call.Statement.Name
	}
	c.with.rewrite(calls)
	return c.with.call(ctx, strings.Join(names, " "), func() error { return c.Conn.Send(ctx, calls...) })
}

type tamperedTx[Tx any] struct {
	sqldb.TxConn[Tx]
	conn tamperedConn
}

func (t tamperedTx[Tx]) Send(ctx context.Context, calls ...*sqldb.Call) error {
	return t.conn.Send(ctx, calls...)
}

func (w *tampering) call(ctx context.Context, what string, call func() error) error {
	if w.around == nil {
		return call()
	}
	return w.around(ctx, what, call)
}

func (w *tampering) rewrite(calls []*sqldb.Call) {
	if w.text == nil {
		return
	}
	for _, call := range calls {
		changed, ok := w.changed.Load(call.Statement)
		if !ok {
			st := *call.Statement
			st.Text = w.text(st.Name, st.Text)
			changed, _ = w.changed.LoadOrStore(call.Statement, &st)
		}
		call.Statement = changed.(*sqldb.Statement) //nolint:errcheck,forcetypeassert // nothing else is in it
	}
}
