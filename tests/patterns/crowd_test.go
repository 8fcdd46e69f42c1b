package patterns

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/outbox"
)

func TestManyBehindOneKey(t *testing.T) {
	onAll(t, testManyBehindOneKey[pgx.Tx], testManyBehindOneKey[*sql.Tx])
}

// So many events wait behind one that was set aside that a claim cannot look past them; other keys flow all the same.
func testManyBehindOneKey[Tx any](t *testing.T, h *handle[Tx]) {
	box := newOutbox(t, h)
	var events []outbox.Event
	for i := range 2500 {
		events = append(events, outbox.Event{Topic: "orders", Key: "stuck", Payload: fmt.Append(nil, i)})
	}
	for i := range 30 {
		events = append(events, outbox.Event{Topic: "orders", Key: fmt.Sprint("k", i%10), Payload: fmt.Append(nil, i)})
	}
	h.inTx(t, func(ctx context.Context, tx Tx) error { return box.Publish(ctx, tx, events...) })
	to := newSink()
	to.answer = func(e *outbox.Event) error {
		if e.Key == "stuck" {
			return everonce.Permanent("no", errors.New("never"), nil)
		}
		return nil
	}
	for range 2 {
		relaying(t, box, to.publisher(), &outbox.RelayOptions{Batch: 7})
	}
	last := map[string]int{}
	for _, e := range to.awaitCount(t, 30) {
		var i int
		if _, err := fmt.Sscan(string(e.Payload), &i); err != nil {
			t.Fatal(err)
		}
		if before, ok := last[e.Key]; ok && i <= before {
			t.Errorf("%s: %d after %d", e.Key, i, before)
		}
		last[e.Key] = i
	}
}
