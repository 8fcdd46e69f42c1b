package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// archiveBatch is how many events one transaction of [Outbox.Archive] moves.
const archiveBatch = 100

// Archive removes the events that were published longer ago than age, and gives them to keep in the transaction that removes
// them: what keep writes through tx is there if and only if they are gone. It does so in transactions of at most 100 events,
// the oldest first, until there are none, and returns how many. If keep fails, its events stay. It may be called again for
// events whose transaction was rolled back. Several processes may archive at once.
//
// Relays remove published events too, without asking: set [RelayOptions.Retention] to much longer than age.
func (o *Outbox[Tx]) Archive(ctx context.Context, age time.Duration, keep func(ctx context.Context, tx Tx, events []Event) error) (archived int, err error) {
	if age < 0 || keep == nil {
		return 0, fmt.Errorf("outbox: %w: age is negative, or keep is nil", everonce.ErrInvalidArgument)
	}
	for n := archiveBatch; n == archiveBatch; archived += n {
		err := o.receiver.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
			n, err = o.archiveBatch(ctx, tx, age, keep)
			return err
		})
		if err != nil {
			return archived, err
		}
	}
	return archived, nil
}

func (o *Outbox[Tx]) archiveBatch(ctx context.Context, tx Tx, age time.Duration, keep func(context.Context, Tx, []Event) error) (int, error) {
	conn, err := o.table.DB.Join(ctx, tx)
	if err != nil {
		return 0, fmt.Errorf("outbox: archive: %w", err)
	}
	d := o.table.DB.Dialect()
	var events []Event
	var seqs []int64
	err = conn.Send(ctx, d.Call(o.published, age.Microseconds(), int64(archiveBatch)).ForEach(func(r sqldb.Row) error {
		var e Event
		var seq, attempts, created int64
		var headers string
		if err := r.Scan(&seq, &e.ID, &e.Topic, &e.Key, &e.Type, &e.ContentType, &headers, &e.Payload, &attempts, &created); err != nil {
			return err
		}
		e.Attempts, e.CreatedAt = int(attempts), sqlqueue.Time(created)
		e.Headers, err = sqlqueue.ReadHeaders("outbox", headers)
		events, seqs = append(events, e), append(seqs, seq)
		return err
	}))
	if err != nil || len(events) == 0 {
		return 0, o.table.Failed("archive", err)
	}
	if err := keep(ctx, tx, events); err != nil {
		return 0, err
	}
	return len(events), o.table.Failed("archive", conn.Send(ctx, d.Call(o.remove, d.Ints(seqs))))
}
