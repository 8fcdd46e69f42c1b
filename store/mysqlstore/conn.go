package mysqlstore

import (
	"context"
	"database/sql"

	"github.com/everonce/everonce/internal/sqldb"
)

// conn sends the engine's calls one after the other.
type conn struct {
	*database
	q  sqldb.SQLQuerier
	tx *sql.Tx // nil outside of a transaction
}

func (c *conn) Send(ctx context.Context, calls ...*sqldb.Call) error {
	if _, err := c.known(ctx, c.q); err != nil {
		return err
	}
	for _, call := range calls {
		if c.tx != nil && (call.Must || call.Statement == c.statements.Lock) {
			if err := c.alive(ctx); err != nil {
				return err
			}
		}
		if err := c.send(ctx, call); err != nil {
			return err
		}
		if other := call.Other(); other != nil {
			if err := c.send(ctx, other); err != nil {
				return err
			}
			call.Affected, call.Busy = other.Affected, other.Busy
		}
		if call.Missed() {
			return sqldb.ErrNothingWritten
		}
	}
	return nil
}

// prepared is a statement as the server wants it: with its arguments by their places, and prepared, if it is sent
// often.
type prepared struct {
	text  string
	order []int
	stmt  *sql.Stmt
}

// prepare makes one. Outside of a transaction only: it may take another connection than that.
func (d *database) prepare(ctx context.Context, st *sqldb.Statement) *prepared {
	if p, ok := d.prepared.Load(st); ok {
		return p.(*prepared)
	}
	p := new(prepared)
	p.text, p.order = sqldb.Unnumbered(d.text(st.Text))
	if !d.kept[st] && !st.Keep || d.about.Load() == nil { // or its text is not known yet
		return p
	}
	stmt, err := d.db.PrepareContext(ctx, p.text)
	if err != nil { // the tables may be missing: sending the statement fails then
		return p
	}
	p.stmt = stmt
	if first, loaded := d.prepared.LoadOrStore(st, p); loaded {
		_ = stmt.Close() //nolint:errcheck // the other one is used
		return first.(*prepared)
	}
	return p
}

func (c *conn) send(ctx context.Context, call *sqldb.Call) error {
	var p *prepared
	if c.tx == nil {
		p = c.prepare(ctx, call.Statement)
	} else if known, ok := c.prepared.Load(call.Statement); ok {
		p = known.(*prepared)
	} else {
		p = new(prepared)
		p.text, p.order = sqldb.Unnumbered(c.text(call.Statement.Text))
	}
	q := c.q
	if p.stmt != nil {
		stmt := p.stmt
		if c.tx != nil {
			stmt = c.tx.StmtContext(ctx, stmt)
		}
		q = statement{stmt}
	}
	as := *call.Statement
	as.Text = p.text
	sent := sqldb.Call{Statement: &as, Args: call.Args, Each: call.Each}
	if p.order != nil {
		sent.Args = make([]any, len(p.order))
		for i, n := range p.order {
			sent.Args[i] = call.Args[n]
		}
	}
	err := settings(sqldb.SendSQL(ctx, q, &sent))
	call.Affected, call.InsertID, call.Busy = sent.Affected, sent.InsertID, false
	if call.Statement.NoWait && isNumber(err, lockWait, noWaiting) && !c.undone() {
		call.Affected, call.InsertID, call.Busy = 0, 0, true
		return nil
	}
	return err
}

// undone reports whether the transaction has ended because it did not get a lock in time.
func (c *conn) undone() bool {
	s := c.about.Load()
	return c.tx != nil && s != nil && s.undoesAll
}

// alive makes sure that a transaction has not ended. MariaDB checks that within the statements.
func (c *conn) alive(ctx context.Context) error {
	s, err := c.known(ctx, c.q)
	if err != nil || s.mariaDB {
		return err
	}
	// The server refuses this in a transaction, and only there. It would be the next one's, and is the default.
	if _, err = c.tx.ExecContext(ctx, "SET TRANSACTION READ WRITE"); isNumber(err, inTx) {
		return nil
	} else if err != nil {
		return err
	}
	return sqldb.ErrNothingWritten
}

// statement is a prepared one as what texts are sent by.
type statement struct{ stmt *sql.Stmt }

func (s statement) ExecContext(ctx context.Context, _ string, args ...any) (sql.Result, error) {
	return s.stmt.ExecContext(ctx, args...)
}

func (s statement) QueryContext(ctx context.Context, _ string, args ...any) (*sql.Rows, error) {
	return s.stmt.QueryContext(ctx, args...)
}
