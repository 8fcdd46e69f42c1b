package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/internal/retry"
)

// queryTimeout is how long a query or a change may take.
const queryTimeout = 30 * time.Second

// withConn runs work on a new connection, and closes it: it is needed only once a minute.
func (l *listener) withConn(ctx context.Context, work func(ctx context.Context, conn *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, l.config)
	if err != nil {
		return err
	}
	defer hangUp(ctx, conn.Close)
	return work(ctx, conn)
}

// prepare makes sure that the publication exists and that the slot, if it exists, can be used. It returns the
// publication's name, and the position from which to listen: before it the publication may not exist, and then the
// server ends the stream.
func (l *listener) prepare(ctx context.Context, slot string) (publication string, from pglogrepl.LSN, err error) {
	err = l.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		var level string
		if err := conn.QueryRow(ctx, "SELECT current_setting('wal_level')").Scan(&level); err != nil {
			return err
		}
		if level != "logical" {
			return fmt.Errorf("%w: the server's wal_level is %s (set wal_level = logical and restart it, or use LISTEN or polling)", ErrRefused, level)
		}
		if publication, err = l.publish(ctx, conn); err != nil {
			return err
		}
		if err := conn.QueryRow(ctx, "SELECT pg_current_wal_lsn()::text").Scan(&from); err != nil {
			return err
		}
		err := l.look(ctx, conn, slot)
		if errors.Is(err, ErrRetained) || errors.Is(err, errLost) { // this happened while no process listened
			l.set.Log.Error("replication: the slot is dropped and created again", "slot", slot, "error", err)
			_, err = conn.Exec(ctx, "SELECT pg_drop_replication_slot($1)", slot)
		}
		return err
	})
	return publication, from, err
}

// errLost says that the server has invalidated the slot.
var errLost = errors.New("replication: the server gave up the slot (max_slot_wal_keep_size)")

// look checks how much WAL the slot holds back.
func (l *listener) look(ctx context.Context, conn *pgx.Conn, slot string) error {
	var retained int64
	var lost bool
	err := conn.QueryRow(ctx, "SELECT coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)), 0)::bigint, coalesce(bool_or(wal_status = 'lost'), false)"+
		" FROM pg_replication_slots WHERE slot_name = $1", slot).Scan(&retained, &lost)
	switch {
	case err != nil:
	case lost:
		err = errLost
	case retained > l.set.MaxRetained:
		err = fmt.Errorf("%w: %d bytes; %d are allowed (look for a transaction that stays open, or raise Options.MaxRetained)", ErrRetained, retained, l.set.MaxRetained)
	}
	l.observe(func(s *Status) { s.Slot, s.Retained, s.Err = slot, retained, err })
	return err
}

// guard checks the slot at intervals until ctx ends, and ends the session if the slot holds back too much.
func (l *listener) guard(ctx context.Context, slot string, end context.CancelCauseFunc) {
	for retry.Pause(ctx, l.set.CheckEvery) == nil {
		err := l.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error { return l.look(ctx, conn, slot) })
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrRetained):
			end(err)
			return
		case err != nil:
			l.observe(func(s *Status) { s.Err = err })
			l.set.Log.Warn("replication: checking the slot failed; trying again later", "slot", slot, "error", err)
		}
	}
}

// drop removes the permanent slot, once the server has noticed that its connection is gone. A temporary slot has gone
// with the connection.
func (l *listener) drop(ctx context.Context) error {
	if l.set.Slot == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queryTimeout)
	defer cancel()
	conn, err := l.connect(ctx)
	if err == nil {
		defer hangUp(ctx, conn.Close)
		err = pglogrepl.DropReplicationSlot(ctx, conn, l.set.Slot, pglogrepl.DropReplicationSlotOptions{Wait: true})
	}
	if err != nil {
		return fmt.Errorf("replication: the slot could not be dropped (call pg_drop_replication_slot): %w", err)
	}
	return nil
}
