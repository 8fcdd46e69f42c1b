package outbox

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// maxEvents is the largest number of events in one call.
const maxEvents = 10_000

// maxInsert is the largest number of rows in one statement. Statements exist for each power of 2 up to it.
const maxInsert = 256

// Publish inserts events into the caller's transaction, which may belong to an operation: [everonce.Transact],
// [everonce.DoTx], [everonce.StepTx]. They are published after it has committed, and vanish if it is rolled back.
//
// An event whose ID already exists is not inserted again; if its topic, key, type, payload or headers differ, the error
// is [everonce.ErrMismatch]: roll the transaction back, because the other events were inserted.
// [everonce.ErrInvalidArgument], [everonce.ErrTooLarge]: an event cannot be published in this form, and nothing was
// sent. [everonce.ErrStore]: the database failed; as after any error of a statement, the transaction may have to be
// rolled back.
func (o *Outbox[Tx]) Publish(ctx context.Context, tx Tx, events ...Event) error {
	if len(events) > maxEvents {
		return fmt.Errorf("outbox: %w: %d events in one call; at most %d are possible", everonce.ErrInvalidArgument, len(events), maxEvents)
	}
	events = append([]Event(nil), events...)
	for i := range events {
		e := &events[i]
		if e.ContentType == "" {
			e.ContentType = jsonType
		}
		if err := e.validate(o.opts.MaxPayload); err != nil {
			return err
		}
	}
	if len(events) == 0 {
		return nil
	}
	again := slices.ContainsFunc(events, func(e Event) bool { return e.ID != "" }) // they may exist
	if err := assignIDs(ctx, events); err != nil {
		return err
	}
	conn, err := o.table.DB.Join(ctx, tx)
	if err != nil {
		return fmt.Errorf("outbox: publish: %w", err)
	}
	if again && o.table.DB.Dialect().MySQL { // an insertion would lock existing rows
		if events, err = o.compare(ctx, conn, o.look, events); err != nil || len(events) == 0 {
			return err
		}
	}
	inserts := o.inserts(events)
	calls := inserts
	if !o.opts.NoAnnounce {
		if announce := o.table.Queue.Announce(); announce != nil {
			calls = append(calls, announce)
		}
	}
	if err := conn.Send(ctx, calls...); err != nil {
		return o.table.Failed("publish", err)
	}
	var affected int64
	for _, call := range inserts {
		affected += call.Affected
	}
	if o.table.DB.Dialect().Inserted(affected, len(events)) < len(events) {
		_, err = o.compare(ctx, conn, o.read, events)
		return err
	}
	return nil
}

// assignIDs gives an ID to each event without one.
func assignIDs(ctx context.Context, events []Event) error {
	for i := range events {
		e := &events[i]
		if e.ID != "" {
			continue
		}
		if key, ok := everonce.NextKey(ctx, "outbox/"+e.Topic); ok {
			e.ID = key
			continue
		}
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("outbox: an ID for an event: %w", err)
		}
		e.ID = id.String()
	}
	return nil
}

// eventArgs is the number of arguments of an event in an insertion.
const eventArgs = 8

// insertion returns the statement that inserts n events, except those whose IDs exist.
func insertion(d *sqldb.Dialect, n int) *sqldb.Statement {
	rows := make([]string, n)
	const columns = "INSERT INTO {outbox} (id, topic, order_key, type, content_type, headers, payload, state, attempts, rank, due_at, created_at, token, error)"
	if d.MySQL { // MariaDB cannot name the columns of a VALUES list
		for i := range rows {
			at := i * eventArgs
			rows[i] = fmt.Sprintf("({%dt}, {%dt}, {%dt}, {%dt}, {%dt}, {%dt}, {%db}, 0{alive}, 0, greatest({%di}, {now}), greatest({%[8]di}, {now}), {now}, 0, '')",
				at+1, at+2, at+3, at+4, at+5, at+6, at+7, at+8)
		}
		st := d.Statement(fmt.Sprintf("outbox_insert_%d", n), n*eventArgs, columns+" VALUES "+strings.Join(rows, ", ")+d.Once("id"), "outbox")
		st.Keep = true
		return st
	}
	for i := range rows {
		at := i * eventArgs
		rows[i] = fmt.Sprintf("(%d, {%dt}, {%dt}, {%dt}, {%dt}, {%dt}, {%dt}, {%db}, {%di})", i, at+1, at+2, at+3, at+4, at+5, at+6, at+7, at+8)
	}
	due := "CASE WHEN v.column9 > c.now THEN v.column9 ELSE c.now END"
	st := d.Statement(fmt.Sprintf("outbox_insert_%d", n), n*eventArgs,
		columns+" SELECT v.column2, v.column3, v.column4, v.column5, v.column6, v.column7, v.column8, 0, 0, "+due+", "+due+", c.now, 0, ''"+
			" FROM (SELECT {now} AS now) AS c CROSS JOIN (VALUES "+strings.Join(rows, ", ")+") AS v WHERE true ORDER BY v.column1"+d.Once("id"), "outbox")
	st.Keep = true
	return st
}

// inserts returns the calls that insert events, in order.
func (o *Outbox[Tx]) inserts(events []Event) (calls []*sqldb.Call) {
	for size := maxInsert; len(events) > 0; size /= 2 {
		for ; len(events) >= size; events = events[size:] {
			args := make([]any, 0, size*eventArgs+1)
			for i := range events[:size] {
				e := &events[i]
				notBefore := int64(0)
				if !e.NotBefore.IsZero() {
					notBefore = e.NotBefore.UnixMicro()
				}
				payload := e.Payload
				if payload == nil {
					payload = []byte{}
				}
				args = append(args, e.ID, e.Topic, e.Key, e.Type, e.ContentType, sqlqueue.HeaderText(e.Headers), payload, notBefore)
			}
			calls = append(calls, o.table.DB.Dialect().Call(o.insert[size], args...))
		}
	}
	return calls
}

// compare verifies that the events which read finds equal the stored ones, and returns the others.
func (o *Outbox[Tx]) compare(ctx context.Context, conn sqldb.Conn, read *sqldb.Statement, events []Event) (others []Event, err error) {
	there := make(map[string]Event, len(events))
	ids := make([]string, len(events))
	for i := range events {
		ids[i] = events[i].ID
	}
	d := o.table.DB.Dialect()
	err = conn.Send(ctx, d.Call(read, d.Texts(ids)).ForEach(func(r sqldb.Row) error {
		var e Event
		var headers string
		if err := r.Scan(&e.ID, &e.Topic, &e.Key, &e.Type, &e.ContentType, &headers, &e.Payload); err != nil {
			return err
		}
		var err error
		e.Headers, err = sqlqueue.ReadHeaders("outbox", headers)
		there[e.ID] = e
		return err
	}))
	if err != nil {
		return nil, o.table.Failed("publish", err)
	}
	for i := range events {
		mine := &events[i]
		switch kept, ok := there[mine.ID]; {
		case !ok: // after an insertion: it was published, and removed since
			others = append(others, *mine)
		case !mine.equal(&kept):
			return nil, fmt.Errorf("outbox: %w: an event with the same ID and another content exists", everonce.ErrMismatch)
		}
	}
	return others, nil
}

// equal reports whether two events with the same ID have the same content.
func (e *Event) equal(f *Event) bool {
	return e.Topic == f.Topic && e.Key == f.Key && e.Type == f.Type && e.ContentType == f.ContentType &&
		sqlqueue.HeaderText(e.Headers) == sqlqueue.HeaderText(f.Headers) && bytes.Equal(e.Payload, f.Payload)
}

func inIDs(d *sqldb.Dialect) string { return d.InTexts("id", "{1t}") }
