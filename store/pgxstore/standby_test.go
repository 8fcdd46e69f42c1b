package pgxstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// A primary that has become a standby takes no writes: claims and completions are failures of the store, and what it
// has is read. Health says what it is.
func TestAStandbyIsAFailureOfTheStore(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	own := startServer(t)
	s := setup{schema: "public", config: own.reach, pending: true}
	primary := newPgx(t, s)
	noErr(t, primary.store.Migrate(ctx))
	done := everonce.Key{Scope: "standby", ID: "done"}
	receiver, err := everonce.NewTxReceiver(primary.store, nil)
	noErr(t, err)
	_, err = everonce.Transact(ctx, receiver, done, func(context.Context, pgx.Tx) (string, error) { return "v", nil })
	noErr(t, err)

	own.becomeStandby()
	viaPgx, viaSQL := newPgx(t, s), newSQL(t, s)
	testReadOnly(t, viaPgx)
	testReadOnly(t, viaSQL)
	for what, store := range map[string]driver.WriteChecker{"pgx": viaPgx.store, "sql": viaSQL.store} {
		if _, err := store.CheckWrite(ctx, driver.CheckWriteRequest{}); !errors.Is(err, driver.ErrStore) {
			t.Errorf("%s: CheckWrite: %v, want ErrStore", what, err)
		}
	}
	for what, store := range map[string]driver.HealthChecker{"pgx": viaPgx.store, "sql": viaSQL.store} {
		h, err := store.Health(ctx, driver.HealthRequest{})
		if err != nil || h.Completed != 1 || !strings.Contains(strings.Join(h.Notes, " "), "standby: it accepts no writes") {
			t.Errorf("%s: %+v, %v", what, h, err)
		}
	}
	if receiver, err = everonce.NewTxReceiver(viaPgx.store, nil); err != nil {
		t.Fatal(err)
	}
	for _, opts := range [][]everonce.CallOption{nil, {everonce.Optimistic()}} {
		res, err := everonce.Transact(ctx, receiver, done, func(context.Context, pgx.Tx) (string, error) { return "again", nil }, opts...)
		if err != nil || res.Outcome != everonce.Replayed || res.Value != "v" {
			t.Errorf("what it has: %v %q, %v", res.Outcome, res.Value, err)
		}
		res, err = everonce.Transact(ctx, receiver, everonce.Key{Scope: "standby", ID: "new"}, func(context.Context, pgx.Tx) (string, error) { return "v", nil }, opts...)
		if !errors.Is(err, driver.ErrStore) || errors.Is(err, everonce.ErrOutcomeUnknown) {
			t.Errorf("a new key: %v, %v", res.Outcome, err)
		}
	}
}
