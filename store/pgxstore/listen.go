package pgxstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// session runs use with a separate connection and closes it afterwards: it may have listened, or hold locks.
type session func(ctx context.Context, use func(*pgx.Conn) error) error

func (d *pgxDriver) session(ctx context.Context, use func(*pgx.Conn) error) error {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	own := conn.Hijack()
	defer own.Close(context.WithoutCancel(ctx)) //nolint:errcheck // no longer used
	return use(own)
}

// session needs pgx's stdlib.
func (d *sqlDriver) session(ctx context.Context, use func(*pgx.Conn) error) error {
	if !d.asks {
		return fmt.Errorf("pgxstore: LISTEN through another driver than pgx's: %w", errors.ErrUnsupported)
	}
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it is closed below already
	return conn.Raw(func(c any) error {
		own := c.(*stdlib.Conn).Conn()              //nolint:forcetypeassert // asks says so
		defer own.Close(context.WithoutCancel(ctx)) //nolint:errcheck // no longer used
		return use(own)
	})
}

// Listen waits for announcements on a separate connection: see sqldb.Listener.
func (d *pgxDriver) Listen(ctx context.Context, channel string, heard func()) error {
	return d.session(ctx, func(conn *pgx.Conn) error { return listen(ctx, conn, channel, heard) })
}

// Listen waits for announcements on a separate connection: see sqldb.Listener. It needs pgx's stdlib.
func (d *sqlDriver) Listen(ctx context.Context, channel string, heard func()) error {
	return d.session(ctx, func(conn *pgx.Conn) error { return listen(ctx, conn, channel, heard) })
}

func listen(ctx context.Context, conn *pgx.Conn, channel string, heard func()) error {
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	heard() // what came before
	for {
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
		heard()
	}
}
