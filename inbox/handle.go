package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/retry"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// Report is how a worker's try of a message ended.
type Report struct {
	// How is the disposition of the message.
	How Disposition
	// Lag is the time since the message was received.
	Lag time.Duration
	// After is the delay until a Retried message is tried again.
	After time.Duration
	// Err is why it was not handled.
	Err error
}

// Disposition is how a try of a message ended.
type Disposition uint8

// The dispositions.
const (
	// Handled: its effects are committed.
	Handled Disposition = iota + 1
	// Skipped: it was handled before, under a row that was removed since.
	Skipped
	// Retried: it is tried again later.
	Retried
	// SetAside: it failed permanently, or too often, and waits for an operator: see [Inbox.Backlog].
	SetAside
	// Expired: it was too old, and was discarded.
	Expired
	// Lost: the lease was lost during the try, whose effects were rolled back; another worker has the message.
	Lost
)

// String returns the disposition's name.
func (d Disposition) String() string {
	names := [...]string{"none", "handled", "skipped", "retried", "set_aside", "expired", "lost"}
	if int(d) < len(names) {
		return names[d]
	}
	return names[0]
}

// row is a message in the table.
type row struct {
	common    sqlqueue.Row
	message   consume.Message
	headers   string
	priority  int64
	expiresAt int64
}

func (r *row) places() (*sqlqueue.Row, []any) {
	m := &r.message
	return &r.common, []any{&m.Source, &m.ContentType, &r.headers, &m.Body, &r.priority, &r.expiresAt}
}

// read completes the message from the scanned columns.
func (r *row) read() (m *consume.Message, err error) {
	m, c := &r.message, &r.common
	m.ID, m.Type, m.First = c.ID, c.Lane, sqlqueue.Time(c.CreatedAt)
	m.Deliveries, m.Retries, m.Redelivered = int(c.Attempts), max(int(c.Attempts)-1, 0), c.Attempts > 1
	if err := readHeaders(m, r.headers); err != nil {
		return m, fmt.Errorf("%w (row %d)", err, c.Seq)
	}
	return m, c.Readable(m.Source, m.ContentType)
}

// outcome is the outcome of one try.
type outcome struct {
	ran       bool // a handler was called
	skipped   bool // every handler had handled it before
	permanent bool
	err       error
}

// work handles one message.
func (w *Worker[Tx]) work(ctx context.Context, token int64, rows []row) {
	r := &rows[0]
	m, err := r.read()
	if err != nil {
		w.end(ctx, token, r, outcome{ran: true, permanent: true, err: everonce.Permanent("corrupt", err, nil)})
		return
	}
	if w.set.Context != nil {
		ctx = cmp.Or(w.set.Context(ctx, m), ctx)
	}
	if r.expiresAt != 0 && r.common.Now >= r.expiresAt {
		w.finish(ctx, token, r, sqlqueue.End{Seq: r.common.Seq, How: sqlqueue.GiveUp, Error: "expired"}, Report{How: Expired})
		return
	}
	if limit := w.set.Retry.Limit; limit >= 0 && int(r.common.Attempts) > limit+1 {
		w.end(ctx, token, r, outcome{permanent: true, err: errDied})
		return
	}
	var try outcome
	var report Report
	err = w.in.receiver.InTx(ctx, func(ctx context.Context, tx Tx) error {
		try = w.handle(ctx, tx, r, m)
		if errors.Is(try.err, everonce.ErrTxDoomed) || errors.Is(try.err, everonce.ErrStore) {
			return try.err
		}
		conn, err := w.in.table.DB.Join(ctx, tx)
		if err != nil {
			return err
		}
		var end sqlqueue.End
		end, report = w.report(r, try)
		calls := w.in.table.Queue.Ends(token, end)
		if err := conn.Send(ctx, calls...); err != nil {
			return err
		}
		if calls[0].Affected == 0 { // another worker has it: roll back
			return errTaken
		}
		return nil
	})
	switch {
	case err == nil:
		w.observe(ctx, r, report)
	case errors.Is(err, errTaken), errors.Is(context.Cause(ctx), everonce.ErrLeaseLost):
		w.observe(ctx, r, Report{How: Lost, Err: everonce.ErrLeaseLost})
	default: // all was rolled back, or the commit's answer was lost: then this changes nothing
		w.end(ctx, token, r, outcome{ran: try.ran, permanent: try.permanent, err: err})
	}
}

// errTaken says that another worker has the message, or that an earlier commit whose answer was lost has ended the try.
// It is not compared with ErrLeaseLost, which a handler may return from another operation.
var errTaken = fmt.Errorf("inbox: %w", everonce.ErrLeaseLost)

// errDied is why a message is set aside whose tries never ended. Otherwise a message that kills its process would be
// claimed first after each start.
var errDied = errors.New("inbox: no try ended: each time the process died, or the lease was lost")

// handle runs the handlers of a message in a transaction. The writes of a handler that fails are undone.
func (w *Worker[Tx]) handle(ctx context.Context, tx Tx, r *row, m *consume.Message) (try outcome) {
	try.skipped = true
	for i := range w.handlers {
		h := &w.handlers[i]
		if h.Types != nil && !slices.Contains(h.Types, r.common.Lane) {
			continue
		}
		var permanent *everonce.PermanentError
		key := everonce.Key{Scope: everonce.ScopeOf("inbox", w.in.consumer, cmp.Or(h.Name, "handler")), ID: m.ID}
		res, err := everonce.DoTx(ctx, tx, w.in.receiver, key, func(ctx context.Context) (struct{}, error) {
			try.ran = true
			err := w.safely(func() error { return h.Handle(ctx, tx, m) })
			if errors.As(err, &permanent) { // the message is set aside and may be retried: save no permanent failure
				return struct{}{}, hiddenPermanent{err}
			}
			return struct{}{}, err
		}, w.in.call, everonce.FingerprintOf(m.Body))
		switch {
		case err == nil:
			try.skipped = try.skipped && res.Outcome == everonce.Replayed
			continue
		case errors.Is(err, everonce.ErrExpired):
			continue
		case errors.Is(err, everonce.ErrMismatch), errors.Is(err, everonce.ErrInvalidKey):
			try.permanent = true
		}
		try.permanent = try.permanent || permanent != nil
		try.skipped = false
		try.err = errors.Join(try.err, err)
		if errors.Is(err, everonce.ErrTxDoomed) || errors.Is(err, everonce.ErrStore) {
			return try
		}
	}
	return try
}

// hiddenPermanent hides a permanent failure from the core, which would save it.
type hiddenPermanent struct{ err error }

func (r hiddenPermanent) Error() string { return r.err.Error() }

// report returns how a try ends in the table, and its report.
func (w *Worker[Tx]) report(r *row, try outcome) (sqlqueue.End, Report) {
	c := &r.common
	v := Report{Err: try.err}
	end := sqlqueue.End{Seq: c.Seq, Error: sqlqueue.ErrorText(try.err)}
	switch {
	case try.err == nil:
		if v.How = Handled; try.skipped {
			v.How = Skipped
		}
		if w.set.Retention < 0 {
			end.How = sqlqueue.Drop
		}
	case errors.Is(try.err, everonce.ErrInProgress) || !try.ran && !try.permanent: // no handler failed
		v.How, v.After, end.How = Retried, retry.Within(w.set.Retry.Min, w.set.Retry.Max, 1), sqlqueue.Later
	case try.permanent, w.set.Retry.Limit >= 0 && int(c.Attempts) > w.set.Retry.Limit:
		v.How, end.How = SetAside, sqlqueue.Block
		if w.set.SkipFailed {
			end.How = sqlqueue.SetAside
		}
	default:
		v.How, v.After, end.How = Retried, retry.Within(w.set.Retry.Min, w.set.Retry.Max, int(c.Attempts)), sqlqueue.Again
	}
	end.After = v.After
	return end, v
}

// end ends a try after the transaction of its handlers was rolled back.
func (w *Worker[Tx]) end(ctx context.Context, token int64, r *row, try outcome) {
	end, v := w.report(r, try)
	w.finish(ctx, token, r, end, v)
}

func (w *Worker[Tx]) finish(ctx context.Context, token int64, r *row, end sqlqueue.End, v Report) {
	switch lost, err := w.in.table.Queue.EndSurely(ctx, w.set.Lease, token, end); {
	case err != nil: // the message is tried again after the lease
		v = Report{How: Lost, Err: err}
	case lost > 0:
		v = Report{How: Lost, Err: everonce.ErrLeaseLost}
	}
	w.observe(ctx, r, v)
}

// observe logs failures, and calls Observe.
func (w *Worker[Tx]) observe(ctx context.Context, r *row, v Report) {
	c := &r.common
	v.Lag = time.Duration(c.Now-c.CreatedAt) * time.Microsecond
	switch v.How {
	case SetAside:
		w.set.Log.Error("inbox: a message was set aside (everonce inbox list, retry, discard)",
			"consumer", w.in.consumer, "seq", c.Seq, "type", c.Lane, "attempts", c.Attempts, "error", v.Err)
	case Lost:
		w.set.Log.Warn("inbox: a message is no longer claimed: its lease was lost and it is handled again, or an earlier commit whose answer was lost has ended it", "consumer", w.in.consumer, "seq", c.Seq, "error", v.Err)
	}
	if v.After > 0 {
		w.pool.Soon(v.After)
	}
	if w.set.Observe != nil {
		w.set.Observe(ctx, &r.message, v)
	}
}
