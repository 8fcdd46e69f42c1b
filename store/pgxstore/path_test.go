package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
)

// A store whose Schema is set writes into its own tables, though the work has set another search_path, as for a tenant,
// and though the tenant has tables of the same name.
func TestWorkThatSetsTheSearchPath(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testSearchPath[pgx.Tx], testSearchPath[*sql.Tx])
}

func testSearchPath[Tx any](t *testing.T, h *handle[Tx]) {
	tenant := newPgx(t, setup{})
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	for how, opts := range map[string][]everonce.CallOption{"claim first": nil, "optimistic": {everonce.Optimistic()}} {
		for _, want := range []everonce.Outcome{everonce.Executed, everonce.Replayed} {
			res, err := everonce.Transact(t.Context(), receiver, everonce.Key{Scope: "path", ID: how}, func(ctx context.Context, tx Tx) (string, error) {
				return "v", errors.Join(h.exec(ctx, tx, "SET LOCAL search_path = "+tenant.schema), h.effect(ctx, tx, how))
			}, opts...)
			if err != nil || res.Outcome != want || h.effects(t, how) != 1 {
				t.Errorf("%s: %v, %v, with %d effects; want %v, with one", how, res.Outcome, err, h.effects(t, how), want)
			}
		}
	}
	if n := number(t, "SELECT count(*) FROM "+tenant.record()); n != 0 {
		t.Errorf("%d records are among the tenant's", n)
	}
}

// The record is written with the rights that the work leaves behind. Without a right to the tables nothing is
// committed.
func TestWorkThatSetsARole(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testSetsRole[pgx.Tx], testSetsRole[*sql.Tx])
}

func testSetsRole[Tx any](t *testing.T, h *handle[Tx]) {
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	role := newRole(t)
	for _, back := range []bool{false, true} {
		res, err := everonce.Transact(t.Context(), receiver, everonce.Key{Scope: "role", ID: "1"}, func(ctx context.Context, tx Tx) (string, error) {
			err := errors.Join(h.effect(ctx, tx, "charge"), h.exec(ctx, tx, "SET LOCAL ROLE "+role))
			if back {
				err = errors.Join(err, h.exec(ctx, tx, "RESET ROLE"))
			}
			return "v", err
		})
		want, effects := everonce.Failed, int64(0)
		if back {
			want, effects = everonce.Executed, 1
		}
		if n := h.effects(t, "charge"); res.Outcome != want || n != effects {
			t.Errorf("set back: %v: %v, %v, with %d effects", back, res.Outcome, err, n)
		}
	}
}
