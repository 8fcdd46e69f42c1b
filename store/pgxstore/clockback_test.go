package pgxstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// A server whose clock was set back finds records from the future. Their leases hold, no other attempt takes them over,
// and tokens still grow, in either mode.
func TestAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testClockBack[pgx.Tx], testClockBack[*sql.Tx])
}

func testClockBack[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	back := func(id driver.RecordID) driver.Token { // the server's clock has been an hour ahead until now
		t.Helper()
		set := ""
		for _, column := range []string{"token", "created_at", "claimed_at", "updated_at", "lease_until", "purge_at", "due_at", "completed_at", "result_until"} {
			set += fmt.Sprintf("%s = %s + %d, ", column, column, time.Hour.Microseconds())
		}
		mustExec(t, "UPDATE "+h.record()+" SET "+set+"rev = rev + 1 WHERE id = $1", id[:])
		return driver.Token(number(t, "SELECT token FROM "+h.record()+" WHERE id = $1", id[:]))
	}
	grown := func(what string, id driver.RecordID, before driver.Token) {
		t.Helper()
		got, err := h.store.Get(ctx, driver.GetRequest{ID: id})
		noErr(t, err)
		if got.Record.Token <= before {
			t.Errorf("%s: the token went from %d to %d", what, before, got.Record.Token)
		}
	}

	key := everonce.Key{Scope: "clock", ID: "guarded"}
	res, err := h.store.Claim(ctx, claimOf(key))
	rec := decided(t, res, err, driver.DecideClaimed).Record
	rec.Token = back(rec.ID)
	other := claimOf(key)
	other.Take = driver.TakeAbandoned
	res, err = h.store.Claim(ctx, other)
	decided(t, res, err, driver.DecideInProgress)
	_, err = h.store.Renew(ctx, driver.RenewRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: time.Minute, Lifetime: everonce.ForWeb()})
	noErr(t, err)
	for _, mode := range []string{"claim", "Transact"} {
		_, err = h.store.Release(ctx, driver.ReleaseRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, State: driver.StateReleased, Lifetime: everonce.ForWeb()})
		noErr(t, err)
		before := back(rec.ID)
		if mode == "claim" {
			res, err = h.store.Claim(ctx, claimOf(key))
			rec = decided(t, res, err, driver.DecideClaimed).Record
		} else {
			_, err = everonce.Transact(ctx, receiver, key, func(context.Context, Tx) (int, error) { return 1, nil })
			noErr(t, err)
		}
		grown(mode+" of a released record", rec.ID, before)
	}

	// The result is from the future too, and is replayed. When it has expired by the current clock, the token of the
	// next attempt is larger.
	again, err := everonce.Transact(ctx, receiver, key, func(context.Context, Tx) (int, error) { return 2, nil })
	if err != nil || again.Outcome != everonce.Replayed {
		t.Errorf("a result from the future: %v, %v", again.Outcome, err)
	}
	before := back(rec.ID)
	mustExec(t, "UPDATE "+h.record()+" SET purge_at = 1, result_until = 1, due_at = 1, rev = rev + 1 WHERE id = $1", rec.ID[:])
	for _, opts := range [][]everonce.CallOption{{everonce.Optimistic()}, nil} {
		_, err = everonce.Transact(ctx, receiver, key, func(context.Context, Tx) (int, error) { return 3, nil }, opts...)
		noErr(t, err)
		grown("Transact over a record that is gone", rec.ID, before)
		before = back(rec.ID)
		mustExec(t, "UPDATE "+h.record()+" SET purge_at = 1, result_until = 1, due_at = 1, rev = rev + 1 WHERE id = $1", rec.ID[:])
	}
}
