package sqlitestore

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"

	"github.com/everonce/everonce/internal/sqldb"
)

// rawConn is one connection below database/sql, with the engine's statements prepared. It is used by one
// goroutine at a time.
type rawConn struct {
	conn     sqldriver.Conn
	keep     map[*sqldb.Statement]bool // statements of the engine that stay prepared; shared
	prepared map[*sqldb.Statement]*prepared
	broken   bool // an error of the connection itself: do not use it again
}

// prepared is a statement of one connection.
type prepared struct {
	stmt  sqldriver.Stmt
	exec  sqldriver.StmtExecContext
	query sqldriver.StmtQueryContext
	order []int // which argument goes to which place; nil where they are the same
	named []sqldriver.NamedValue
	row   valueRow
}

func newRawConn(c sqldriver.Conn, keep map[*sqldb.Statement]bool) *rawConn {
	return &rawConn{conn: c, keep: keep, prepared: make(map[*sqldb.Statement]*prepared, len(keep))}
}

func (r *rawConn) Close() error {
	var errs []error
	for _, p := range r.prepared {
		errs = append(errs, p.stmt.Close())
	}
	return errors.Join(append(errs, r.conn.Close())...)
}

func (r *rawConn) prepare(ctx context.Context, st *sqldb.Statement) (*prepared, error) {
	if p, ok := r.prepared[st]; ok {
		return p, nil
	}
	text, order := sqldb.Unnumbered(st.Text)
	preparer, ok := r.conn.(sqldriver.ConnPrepareContext)
	if !ok {
		return nil, errDriver(r.conn)
	}
	s, err := preparer.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	p := &prepared{stmt: s, order: order}
	p.exec, ok = s.(sqldriver.StmtExecContext)
	if p.query, _ = s.(sqldriver.StmtQueryContext); !ok || p.query == nil {
		return nil, errors.Join(errDriver(s), s.Close())
	}
	if r.keeps(st) {
		r.prepared[st] = p
	}
	return p, nil
}

// keeps reports whether a statement stays prepared.
func (r *rawConn) keeps(st *sqldb.Statement) bool { return st.Keep || r.keep[st] }

func errDriver(v any) error {
	return fmt.Errorf("sqlitestore: %T lacks a method of database/sql/driver that this version needs", v)
}

// send runs one call. ctx may interrupt the statement, which costs a goroutine: see quick.
func (r *rawConn) send(ctx context.Context, call *sqldb.Call) error {
	p, err := r.prepare(ctx, call.Statement)
	if err != nil {
		return err
	}
	if !r.keeps(call.Statement) {
		defer p.stmt.Close() //nolint:errcheck // its errors are the statement's, which are returned
	}
	args := p.arguments(call.Args)
	if !call.Statement.Rows {
		res, err := p.exec.ExecContext(ctx, args)
		if err == nil {
			call.Affected, err = res.RowsAffected()
		}
		return r.noted(err)
	}
	rows, err := p.query.QueryContext(ctx, args)
	if err != nil {
		return r.noted(err)
	}
	err = p.row.each(rows, call)
	if closeErr := rows.Close(); err == nil {
		err = r.noted(closeErr)
	}
	return err
}

func (r *rawConn) noted(err error) error {
	if errors.Is(err, sqldriver.ErrBadConn) {
		r.broken = true
	}
	return err
}

func (p *prepared) arguments(args []any) []sqldriver.NamedValue {
	n := len(args)
	if p.order != nil {
		n = len(p.order)
	}
	if cap(p.named) < n {
		p.named = make([]sqldriver.NamedValue, n)
	}
	p.named = p.named[:n]
	for i := range p.named {
		at := i
		if p.order != nil {
			at = p.order[i]
		}
		p.named[i] = sqldriver.NamedValue{Ordinal: i + 1, Value: args[at]}
	}
	return p.named
}

// valueRow is a row of driver values.
type valueRow struct{ values []sqldriver.Value }

// each reads all rows of an answer.
func (v *valueRow) each(rows sqldriver.Rows, call *sqldb.Call) error {
	call.Affected = 0
	if n := len(rows.Columns()); len(v.values) != n {
		v.values = make([]sqldriver.Value, n)
	}
	for {
		if err := rows.Next(v.values); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		call.Affected++
		if call.Each == nil {
			continue
		}
		if err := call.Each(v); err != nil {
			return err
		}
	}
}

// Scan copies the columns: see sqldb.Row.
func (v *valueRow) Scan(dest ...any) error {
	if len(dest) != len(v.values) {
		return fmt.Errorf("sqlitestore: %d columns for %d destinations", len(v.values), len(dest))
	}
	return sqldb.Assign(dest, v.values)
}
