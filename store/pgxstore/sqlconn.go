package pgxstore

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"github.com/everonce/everonce/store/sqlstore"
)

// sqlSender is what a *sql.DB, a *sql.Conn and a *sql.Tx have in common.
type sqlSender interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// sqlConn sends the engine's calls one after the other: database/sql can not pipeline.
type sqlConn struct{ to sqlSender }

func (c sqlConn) Send(ctx context.Context, calls ...*sqlstore.Call) error {
	for _, call := range calls {
		if err := c.send(ctx, call); err != nil {
			return err
		}
	}
	return nil
}

func (c sqlConn) send(ctx context.Context, call *sqlstore.Call) error {
	if !call.Statement.Rows {
		res, err := c.to.ExecContext(ctx, call.Statement.Text, call.Args...)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return err
		}
		return affected(call, n)
	}
	rows, err := c.to.QueryContext(ctx, call.Statement.Text, call.Args...)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // rows.Err has it
	call.Affected = 0
	for rows.Next() {
		call.Affected++
		if call.Each != nil {
			if err := call.Each(sqlRow{rows}); err != nil {
				return err
			}
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return affected(call, call.Affected)
}

// sqlRow reads NULL as the zero value.
type sqlRow struct{ rows *sql.Rows }

func (r sqlRow) Scan(dest ...any) error {
	for i, d := range dest {
		switch d := d.(type) {
		case *int64:
			dest[i] = (*sqlInt)(d)
		case *string:
			dest[i] = (*sqlText)(d)
		}
	}
	return r.rows.Scan(dest...)
}

type sqlInt int64

func (n *sqlInt) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*n = 0
	case int64:
		*n = sqlInt(v)
	case []byte: // drivers that speak in texts
		i, err := strconv.ParseInt(string(v), 10, 64)
		*n = sqlInt(i)
		return err
	default:
		return fmt.Errorf("pgxstore: a number came as %T", src)
	}
	return nil
}

type sqlText string

func (t *sqlText) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*t = ""
	case string:
		*t = sqlText(v)
	case []byte:
		*t = sqlText(v)
	default:
		return fmt.Errorf("pgxstore: a text came as %T", src)
	}
	return nil
}
