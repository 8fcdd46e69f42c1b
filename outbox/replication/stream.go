package replication

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

var (
	errSilent = errors.New("replication: the server no longer answers")
	errEnded  = errors.New("replication: the server ended the stream")
)

// maxSilentBeats is after how many heartbeats without an answer a connection is closed.
const maxSilentBeats = 6

// Two messages of pgoutput are used. The first byte is their kind.
const (
	kindInsert = 'I'
	kindCommit = 'C'
)

// stream reads from the server until the connection is lost. It confirms the position of all that it has read: a wake
// need not be repeated, because each new connection calls wake. On request the server also reports how far it has read
// changes that it does not send; confirming that position lets it remove the WAL of other tables.
func (l *listener) stream(ctx context.Context, conn *pgconn.PgConn) error {
	var position pglogrepl.LSN
	inserted := false
	answered, next := time.Now(), time.Time{}
	for {
		if now := time.Now(); !now.Before(next) {
			if now.Sub(answered) > maxSilentBeats*l.set.Heartbeat {
				return errSilent
			}
			err := pglogrepl.SendStandbyStatusUpdate(ctx, conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: position, ReplyRequested: true})
			if err != nil {
				return err
			}
			next = now.Add(l.set.Heartbeat)
		}
		data, err := receive(ctx, conn, next)
		if err != nil {
			return err
		}
		if len(data) == 0 {
			continue
		}
		answered = time.Now()
		switch data[0] {
		case pglogrepl.PrimaryKeepaliveMessageByteID:
			alive, err := pglogrepl.ParsePrimaryKeepaliveMessage(data[1:])
			if err != nil {
				return err
			}
			position = max(position, alive.ServerWALEnd)
			if alive.ReplyRequested {
				next = time.Time{}
			}
		case pglogrepl.XLogDataByteID:
			log, err := pglogrepl.ParseXLogData(data[1:])
			if err != nil {
				return err
			}
			switch {
			case len(log.WALData) == 0:
			case log.WALData[0] == kindInsert:
				inserted = true
			case log.WALData[0] == kindCommit:
				position = max(position, log.WALStart)
				if inserted {
					l.hear()
				}
				inserted = false
			}
		}
	}
}

// receive returns the next message of the stream, or nil if none arrives until the time.
func receive(ctx context.Context, conn *pgconn.PgConn, until time.Time) ([]byte, error) {
	limited, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	message, err := conn.ReceiveMessage(limited)
	switch {
	case err != nil && ctx.Err() == nil && pgconn.Timeout(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	switch message := message.(type) {
	case *pgproto3.CopyData:
		return message.Data, nil
	case *pgproto3.ErrorResponse:
		return nil, pgconn.ErrorResponseToPgError(message)
	case *pgproto3.CopyDone:
		return nil, errEnded
	}
	return nil, nil
}
