package patterntest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/outbox"
)

// Events published long ago move into the application's own table, in one commit with their removal; other events
// remain.
func TestArchive(t *testing.T) { onAll(t, testArchive[pgx.Tx], testArchive[*sql.Tx]) }

func testArchive[Tx any](t *testing.T, h *handle[Tx]) {
	box, to := newOutbox(t, h), newArrivals()
	const events = 230 // more than two transactions hold
	var all []outbox.Event
	for i := range events {
		all = append(all, outbox.Event{ID: fmt.Sprint(i), Topic: "orders", Headers: map[string]string{"n": fmt.Sprint(i)}})
	}
	h.publish(t, box, all...)
	stop := relaying(t, box, to.publisher(), nil)
	must(t, to.await(t.Context(), events))
	h.settled(t, box)
	stop()
	h.publish(t, box, outbox.Event{ID: "waits", Topic: "orders"})
	keep := func(ctx context.Context, tx Tx, moved []outbox.Event) error {
		for _, e := range moved {
			if e.Headers["n"] != e.ID || e.CreatedAt.IsZero() || e.Attempts != 1 {
				return fmt.Errorf("it was changed: %+v", e)
			}
			if err := h.exec(ctx, tx, "INSERT INTO effects (name) VALUES ($1)", e.ID); err != nil {
				return err
			}
		}
		return nil
	}
	if n, err := box.Archive(t.Context(), time.Hour, keep); n != 0 || err != nil {
		t.Errorf("of what was published just now %d are archived, %v", n, err)
	}
	full := errors.New("the archive is full")
	n, err := box.Archive(t.Context(), 0, func(ctx context.Context, tx Tx, moved []outbox.Event) error {
		if h.number(t, "SELECT count(*) FROM effects") == 0 {
			return keep(ctx, tx, moved)
		}
		return errors.Join(full, keep(ctx, tx, moved))
	})
	if left := h.number(t, "SELECT count(*) FROM everonce_outbox"); n != 100 || !errors.Is(err, full) || left != events-100+1 || h.number(t, "SELECT count(*) FROM effects") != 100 {
		t.Errorf("an archive that fails: %d are archived, %d are left, %v", n, left, err)
	}
	if n, err := box.Archive(t.Context(), 0, keep); n != events-100 || err != nil {
		t.Errorf("%d are archived, %v", n, err)
	}
	if n := h.number(t, "SELECT count(DISTINCT name) FROM effects"); n != events || h.number(t, "SELECT count(*) FROM everonce_outbox") != 1 {
		t.Errorf("%d of %d are in the archive", n, events)
	}
}
