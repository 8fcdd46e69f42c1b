package sqldb

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
)

// SQLQuerier is a *sql.DB, *sql.Conn or *sql.Tx.
type SQLQuerier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// SendSQL implements [Conn.Send] through database/sql, for drivers. It makes one call after the other.
func SendSQL(ctx context.Context, q SQLQuerier, calls ...*Call) error {
	for _, call := range calls {
		if err := sendSQL(ctx, q, call); err != nil {
			return err
		}
		if call.Missed() {
			return ErrNothingWritten
		}
	}
	return nil
}

// SQLTxDone reports whether a transaction has ended for database/sql: by Commit or Rollback, or with the context of
// its BeginTx. It runs a statement of no database, which database/sql refuses with ErrTxDone if the transaction has
// ended, and otherwise with another error. Nothing is sent.
func SQLTxDone(tx *sql.Tx) bool {
	_, err := tx.Stmt(&sql.Stmt{}).Exec() //nolint:noctx // it does not come to that
	return errors.Is(err, sql.ErrTxDone)
}

func sendSQL(ctx context.Context, q SQLQuerier, call *Call) error {
	if !call.Statement.Rows {
		res, err := q.ExecContext(ctx, call.Statement.Text, call.Args...)
		switch {
		case err != nil:
		case call.Statement.WantInsertID:
			call.InsertID, err = res.LastInsertId()
			call.Affected = min(call.InsertID, 1)
		default:
			call.Affected, err = res.RowsAffected()
		}
		return err
	}
	rows, err := q.QueryContext(ctx, call.Statement.Text, call.Args...)
	if err != nil {
		return err
	}
	call.Affected = 0
	for rows.Next() && err == nil {
		call.Affected++
		if call.Each != nil {
			err = call.Each(rowOf(call.Statement, rows))
		}
	}
	if closeErr := rows.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = rows.Err()
	}
	return err
}

func rowOf(s *Statement, rows *sql.Rows) Row {
	if s.Foreign {
		return foreignRow{rows}
	}
	return sqlRow{rows}
}

// foreignRow is a row of the application, which database/sql converts. NULL is a zero value.
type foreignRow struct{ rows *sql.Rows }

func (r foreignRow) Scan(dest ...any) error {
	dest = slices.Clone(dest) // the slice is the caller's
	for i, d := range dest {
		switch d := d.(type) {
		case *int64:
			dest[i] = zeroNull[int64]{d}
		case *string:
			dest[i] = zeroNull[string]{d}
		}
	}
	return r.rows.Scan(dest...)
}

// zeroNull scans NULL as a zero value.
type zeroNull[T any] struct{ to *T }

// Scan implements [sql.Scanner].
func (z zeroNull[T]) Scan(value any) error {
	var n sql.Null[T]
	err := n.Scan(value)
	*z.to = n.V
	return err
}

// sqlRow is a row of database/sql in which NULL is a zero value.
type sqlRow struct{ rows *sql.Rows }

func (r sqlRow) Scan(dest ...any) error {
	into, columns := make([]any, len(dest)), make([]column, len(dest))
	for i, d := range dest {
		switch into[i] = d; d.(type) {
		case *int64, *string, *[]byte:
			columns[i].to, into[i] = d, &columns[i]
		}
	}
	if err := r.rows.Scan(into...); err != nil {
		return err
	}
	for i := range columns {
		if columns[i].holds != "" {
			return &Misfit{Column: i, Holds: columns[i].holds}
		}
	}
	return nil
}

// column is where a value is copied to, and the type of one that does not fit.
type column struct {
	to    any
	holds string
}

// Scan implements [sql.Scanner]. It returns no error, which would keep the columns behind it from being copied.
func (c *column) Scan(value any) error {
	if b, ok := value.([]byte); ok {
		value = bytes.Clone(b) // it is the driver's
	}
	if !assign(c.to, value) {
		c.holds = fmt.Sprintf("%T", value)
	}
	return nil
}
