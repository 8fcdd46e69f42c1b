package patterntest

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/outbox"
)

// Claimed entries are not pending: the count, retry or discard of pending entries leaves them alone.
func TestBacklogLeavesAloneWhatIsInHand(t *testing.T) {
	onAll(t, testBacklogLeavesAloneWhatIsInHand[pgx.Tx], testBacklogLeavesAloneWhatIsInHand[*sql.Tx])
}

func testBacklogLeavesAloneWhatIsInHand[Tx any](t *testing.T, h *handle[Tx]) {
	box := newOutbox(t, h)
	if err := h.receiver.InTx(t.Context(), func(ctx context.Context, tx Tx) error {
		return box.Publish(ctx, tx, outbox.Event{ID: "held", Topic: "a"}, outbox.Event{ID: "later", Topic: "b", NotBefore: time.Now().Add(time.Hour)})
	}); err != nil {
		t.Fatal(err)
	}
	held, release := make(chan struct{}), make(chan struct{})
	stop := relaying(t, box, outbox.PublisherFunc(func(context.Context, []outbox.Event) []error {
		close(held)
		<-release
		return nil
	}), nil)
	<-held
	for state, want := range map[backlog.State]string{backlog.InHand: "held", backlog.Pending: "later"} {
		entries, err := box.Backlog().List(t.Context(), backlog.Filter{States: []backlog.State{state}})
		if err != nil || len(entries) != 1 || entries[0].ID != want || entries[0].State != state {
			t.Errorf("%s: %+v, %v", state, entries, err)
		}
	}
	both := backlog.Filter{States: []backlog.State{backlog.InHand, backlog.Pending, backlog.Dead}}
	if n, err := box.Backlog().Count(t.Context(), both); n != 2 || err != nil {
		t.Errorf("%d in either state, %v", n, err)
	}
	if n, err := box.Backlog().Discard(t.Context(), both); n != 1 || err != nil {
		t.Errorf("%d were discarded, %v", n, err)
	}
	close(release)
	stop()
	e, err := box.Get(t.Context(), "later")
	if err != nil || e.Topic != "b" {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := box.Get(t.Context(), "nowhere"); !errors.Is(err, everonce.ErrNotFound) {
		t.Errorf("a missing event: %v", err)
	}
}
