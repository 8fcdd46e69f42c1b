package pgxstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/internal/sqldb"
)

// pgxConn sends the engine's calls. Several calls go in one round trip, and where no transaction is open they
// are one: the server ends it after the last of them.
type pgxConn struct{ to Querier }

func (c pgxConn) Send(ctx context.Context, calls ...*sqldb.Call) error {
	if len(calls) == 1 {
		return sendOne(ctx, c.to, calls[0])
	}
	var batch pgx.Batch
	for _, call := range calls {
		batch.Queue(call.Statement.Text, call.Args...)
	}
	results := c.to.SendBatch(ctx, &batch)
	err := readCalls(results, calls)
	return closeBatch(results, err)
}

func sendOne(ctx context.Context, to Querier, call *sqldb.Call) error {
	if call.Statement.Rows {
		rows, err := to.Query(ctx, call.Statement.Text, call.Args...)
		if err != nil {
			return err
		}
		return readRows(rows, call)
	}
	tag, err := to.Exec(ctx, call.Statement.Text, call.Args...)
	if err != nil {
		return err
	}
	return affected(call, tag.RowsAffected())
}

// readCalls reads the answers of calls, in their order.
func readCalls(results pgx.BatchResults, calls []*sqldb.Call) error {
	for _, call := range calls {
		if call.Statement.Rows {
			rows, err := results.Query()
			if err != nil {
				return err
			}
			if err := readRows(rows, call); err != nil {
				return err
			}
			continue
		}
		tag, err := results.Exec()
		if err != nil {
			return err
		}
		if err := affected(call, tag.RowsAffected()); err != nil {
			return err
		}
	}
	return nil
}

// closeBatch ends a batch, and returns the error that came first.
func closeBatch(results pgx.BatchResults, err error) error {
	if closeErr := results.Close(); err == nil {
		return closeErr
	}
	return err
}

func readRows(rows pgx.Rows, call *sqldb.Call) error {
	defer rows.Close()
	call.Affected = 0
	row := &pgxRow{rows}
	for rows.Next() {
		call.Affected++
		if call.Each != nil {
			if err := call.Each(row); err != nil {
				return err
			}
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return affected(call, call.Affected)
}

func affected(call *sqldb.Call, n int64) error {
	call.Affected = n
	if call.Missed() {
		return sqldb.ErrNothingWritten
	}
	return nil
}
