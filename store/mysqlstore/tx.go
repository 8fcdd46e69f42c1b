package mysqlstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlstore"
)

// rollbackTimeout bounds a rollback that is sent to the server.
const rollbackTimeout = 5 * time.Second

// errBroken says that the connection was gone before the commit was sent: all of the transaction was undone.
var errBroken = errors.New("the connection broke before the commit was sent")

// errUnsent says why a commit could not be sent, and that nothing was committed. The client does not distinguish the
// two reasons.
var errUnsent = errors.New("mysqlstore: nothing more can be sent in the transaction: the work left rows open (read them to the end or close them), or the connection has ended")

// Begin begins a transaction, for the engine.
func (d *database) Begin(ctx context.Context, opts sqlstore.BeginOptions, first ...*sqldb.Call) (sqldb.TxConn[*sql.Tx], error) {
	for st := range d.kept { // later it would take a second connection
		if _, ok := d.prepared.Load(st); !ok {
			d.prepare(ctx, st)
		}
	}
	// database/sql rolls back when the context of BeginTx ends, so that must not be the caller's. It is the caller's as
	// long as Begin runs.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	release := context.AfterFunc(ctx, end)
	tx := &ownTx{conn: conn{database: d}, life: life, end: end}
	tx.limit = sqldb.NewLimit(opts.Timeout, end)
	inner, err := d.db.BeginTx(life, &sql.TxOptions{Isolation: d.level})
	err = settings(err)
	if err == nil {
		tx.q, tx.tx = inner, inner
		err = tx.conn.Send(life, first...)
	}
	if !release() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = tx.Rollback(ctx)  //nolint:errcheck // the earlier error is returned
		if ctx.Err() != nil { // what cut it short, not what that looked like
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return nil, tx.limit.Reason(err)
	}
	return tx, nil
}

// ownTx is a transaction that the store began.
type ownTx struct {
	conn
	life  context.Context    //nolint:containedctx // what the transaction lives in
	end   context.CancelFunc // ends it
	limit sqldb.Limit
	over  bool // it has ended
}

func (t *ownTx) Tx() *sql.Tx { return t.tx }

func (t *ownTx) Send(ctx context.Context, calls ...*sqldb.Call) error {
	if t.over {
		return t.limit.Reason(sql.ErrTxDone)
	}
	return t.limit.Reason(t.conn.Send(ctx, calls...))
}

func (t *ownTx) Commit(ctx context.Context, last ...*sqldb.Call) error {
	if t.over {
		return t.limit.Reason(sql.ErrTxDone)
	}
	if err := t.conn.Send(ctx, last...); err != nil {
		_ = t.rollback() //nolint:errcheck // the earlier error is returned
		if errors.Is(err, sqldriver.ErrBadConn) {
			err = errUnsent
		} else if classify(err).Class == sqldb.ClassUnavailable {
			err = fmt.Errorf("%w: %w", errBroken, err)
		}
		return t.limit.Reason(err)
	}
	if err := ctx.Err(); err != nil { // nothing of the commit was sent
		_ = t.rollback() //nolint:errcheck // the earlier error is returned
		return err
	}
	if !t.limit.Stop() { // from here on it is the commit that decides
		_ = t.rollback() //nolint:errcheck // the earlier error is returned
		return t.limit.Reason(sql.ErrTxDone)
	}
	t.over = true
	err := commit(ctx, t.tx, t.end)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone): // it had ended before: nothing was sent
		return err
	case commitLost(err):
		return fmt.Errorf("%w: %w", sqldb.ErrCommitLost, err)
	}
	return err
}

// commit commits, and calls end, if any, when that has returned. Commit takes no context, and the client does not look
// at any: where the caller's ends, the commit is left to itself.
func commit(ctx context.Context, tx *sql.Tx, end func()) error {
	done := make(chan error, 1)
	go func() {
		if end != nil {
			defer end()
		}
		done <- tx.Commit()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *ownTx) Rollback(context.Context) error {
	_ = t.rollback() //nolint:errcheck // a connection that cannot roll back is closed, so that the server rolls back
	return nil
}

func (t *ownTx) rollback() error {
	t.limit.Stop()
	if t.over || t.tx == nil {
		t.end()
		return nil
	}
	t.over = true
	done := make(chan error, 1)
	go func() {
		defer t.end()
		done <- t.tx.Rollback()
	}()
	timer := time.NewTimer(rollbackTimeout)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C: // the server rolls back when it learns that the connection is gone
		return context.DeadlineExceeded
	}
}
