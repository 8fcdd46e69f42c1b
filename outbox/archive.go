package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// archiveBatch is how many events one transaction of [Outbox.Archive] moves.
const archiveBatch = 100

// Archive removes the events that were published longer ago than age. It passes them to keep in the transaction that
// removes them: the writes of keep through tx commit if and only if the events are removed. Each transaction takes at
// most 100 events, the oldest first; Archive repeats until no such event is left, and returns how many it removed. If
// keep fails, its events remain. keep may be called again for events whose transaction was rolled back. Several
// processes may archive at once. An event that cannot be read is set aside.
//
// Relays remove published events too, without calling keep: set [RelayOptions.Retention] to much longer than age.
func (o *Outbox[Tx]) Archive(ctx context.Context, age time.Duration, keep func(ctx context.Context, tx Tx, events []Event) error) (archived int, err error) {
	if age < 0 || keep == nil {
		return 0, fmt.Errorf("outbox: %w: age is negative, or keep is nil", everonce.ErrInvalidArgument)
	}
	for found := archiveBatch; found == archiveBatch; {
		var n int
		err := o.receiver.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
			n, found, err = o.archiveBatch(ctx, tx, age, keep)
			return err
		})
		if err != nil {
			return archived, err
		}
		archived += n
	}
	return archived, nil
}

func (o *Outbox[Tx]) archiveBatch(ctx context.Context, tx Tx, age time.Duration, keep func(context.Context, Tx, []Event) error) (archived, found int, err error) {
	conn, err := o.table.DB.Join(ctx, tx)
	if err != nil {
		return 0, 0, fmt.Errorf("outbox: archive: %w", err)
	}
	d := o.table.DB.Dialect()
	var events []Event
	var seqs []int64
	var asides []*sqldb.Call
	err = conn.Send(ctx, d.Call(o.published, age.Microseconds(), int64(archiveBatch)).ForEach(func(r sqldb.Row) error {
		var e Event
		var seq, attempts, created int64
		var headers string
		err := r.Scan(&seq, &e.ID, &e.Topic, &e.Key, &e.Type, &e.ContentType, &headers, &e.Payload, &attempts, &created)
		if err == nil {
			e.Headers, err = sqlqueue.ReadHeaders("outbox", headers)
		}
		found++
		switch {
		case errors.Is(err, everonce.ErrCorruptRecord): // it must not block the archiving of other events
			why := everonce.Permanent("corrupt", fmt.Errorf("%w (row %d was published and cannot be archived)", err, seq), nil)
			asides = append(asides, d.Call(o.aside, d.Ints([]int64{seq}), sqlqueue.ErrorText(why)))
			return nil
		case err != nil:
			return err
		}
		e.Attempts, e.CreatedAt = int(attempts), sqlqueue.Time(created)
		events, seqs = append(events, e), append(seqs, seq)
		return nil
	}))
	if err == nil && len(asides) > 0 {
		err = conn.Send(ctx, asides...)
	}
	if err != nil || len(events) == 0 {
		return 0, found, o.table.Failed("archive", err)
	}
	if err := keep(ctx, tx, events); err != nil {
		return 0, found, err
	}
	return len(events), found, o.table.Failed("archive", conn.Send(ctx, d.Call(o.remove, d.Ints(seqs))))
}
