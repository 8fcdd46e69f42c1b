package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// Receive inserts a message, and reports whether it is new. If the error is nil, the message is durable: acknowledge
// it.
//
// A message that already exists is not inserted again; if its body differs, the error is [everonce.ErrMismatch]. An
// error that wraps [consume.ErrNoKey], [everonce.ErrInvalidArgument] or [everonce.ErrTooLarge] says that this message
// can never be inserted; nothing was sent then. [everonce.ErrStore]: the database failed, and the message may have been
// inserted.
func (in *Inbox[Tx]) Receive(ctx context.Context, m *consume.Message) (isNew bool, err error) {
	return in.receive(m, false, func(op func(context.Context, sqldb.Conn) error) error { return in.table.DB.Write(ctx, op) })
}

// ReceiveTx is [Inbox.Receive] in a transaction of the caller: the message is received when that commits.
func (in *Inbox[Tx]) ReceiveTx(ctx context.Context, tx Tx, m *consume.Message) (isNew bool, err error) {
	return in.receive(m, in.table.DB.Dialect().MySQL, func(op func(context.Context, sqldb.Conn) error) error {
		conn, err := in.table.DB.Join(ctx, tx)
		if err != nil {
			return err
		}
		return op(ctx, conn)
	})
}

// receive inserts a message. If look is set, it first looks for an existing row, because an insertion would lock that
// row for as long as the transaction is open.
func (in *Inbox[Tx]) receive(m *consume.Message, look bool, do func(op func(context.Context, sqldb.Conn) error) error) (bool, error) {
	args, err := in.row(m)
	if err != nil {
		return false, err
	}
	d := in.table.DB.Dialect()
	var kept []byte // not to be read after an error: it and the others may still be written
	var isNew, found bool
	err = do(func(ctx context.Context, c sqldb.Conn) error {
		compare := func(st *sqldb.Statement) error {
			read := d.Call(st, args[0], args[1]).ForEach(func(r sqldb.Row) error { return r.Scan(&kept) })
			err := c.Send(ctx, read)
			found = read.Affected > 0
			return err
		}
		if look {
			if err := compare(in.look); err != nil || found {
				return err
			}
		}
		insert := d.Call(in.insert, args...)
		calls := []*sqldb.Call{insert}
		if !in.opts.NoAnnounce {
			if announce := in.table.Queue.Announce(); announce != nil {
				calls = append(calls, announce)
			}
		}
		if err := c.Send(ctx, calls...); err != nil {
			return err
		}
		if isNew = d.Inserted(insert.Affected, 1) > 0; !isNew {
			return compare(in.read) // not found: it was handled, and has just been removed
		}
		return nil
	})
	switch {
	case err != nil:
		return false, in.table.Failed("receive", err)
	case found && !bytes.Equal(kept, m.Body):
		return false, fmt.Errorf("inbox: %w: a message with the same key and another body exists", everonce.ErrMismatch)
	}
	return isNew, nil
}

// row returns the arguments of an insertion.
func (in *Inbox[Tx]) row(m *consume.Message) ([]any, error) {
	if m == nil {
		return nil, fmt.Errorf("inbox: %w: the message is nil", everonce.ErrInvalidArgument)
	}
	id, err := in.opts.Key.Of(m)
	if err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	if id == "" {
		return nil, fmt.Errorf("inbox: %w: the key is empty", consume.ErrNoKey)
	}
	kind, order, priority, expires := in.opts.Type(m), "", 0, time.Duration(0)
	if in.opts.OrderKey != nil {
		order = in.opts.OrderKey(m)
	}
	if in.opts.Priority != nil {
		priority = min(max(in.opts.Priority(m), 0), maxPriority)
	}
	if in.opts.Expires != nil {
		expires = max(in.opts.Expires(m), 0)
	}
	err = sqlqueue.CheckTexts("inbox", "message", []sqlqueue.Text{
		{Name: "key", Is: id}, {Name: "type", Is: kind}, {Name: "order key", Is: order}, {Name: "source", Is: m.Source}, {Name: "content type", Is: m.ContentType},
	}...)
	if err != nil {
		return nil, err
	}
	if err := sqlqueue.CheckHeaders("inbox", "message", m.Headers); err != nil {
		return nil, err
	}
	if len(m.Body) > in.opts.MaxBody {
		return nil, fmt.Errorf("inbox: %w: the message's body has %d bytes; Options.MaxBody allows %d", everonce.ErrTooLarge, len(m.Body), in.opts.MaxBody)
	}
	body := m.Body
	if body == nil {
		body = []byte{}
	}
	return []any{
		in.consumer, id, kind, order, m.Source, m.ContentType, headerText(m), body, int64(priority), expires.Microseconds(),
		(time.Duration(priority) * priorityStep).Microseconds(),
	}, nil
}

// Consumer returns a consumer for a broker's adapter that only inserts messages: a message is acknowledged when it is
// in the table. A message that cannot be inserted becomes a dead letter.
func (in *Inbox[Tx]) Consumer() (*consume.Consumer, error) {
	return consume.NewNatural(consume.NaturalSpec[struct{}]{
		Consumer: in.consumer, Key: in.opts.Key, MaxBody: in.opts.MaxBody,
		Decode: func(*consume.Message) (none struct{}, err error) { return none, nil },
		Handle: func(ctx context.Context, m *consume.Message, _ struct{}) (bool, error) {
			isNew, err := in.Receive(ctx, m)
			for _, final := range []error{everonce.ErrMismatch, everonce.ErrInvalidArgument, everonce.ErrTooLarge, consume.ErrNoKey} {
				if errors.Is(err, final) && !errors.Is(err, everonce.ErrStore) {
					return false, everonce.Permanent("not_received", err, nil)
				}
			}
			return isNew, err
		},
	})
}
