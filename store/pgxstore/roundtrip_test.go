package pgxstore_test

import (
	"context"
	"database/sql"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testing/netcut"
)

// turns counts round trips to the server.
type turns struct{ netcut.Turns }

func (c *turns) dial(config *pgx.ConnConfig) {
	var d net.Dialer
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return c.Over(conn), nil
	}
}

// TestRoundTrips counts what every call costs, once the connection has prepared its statements. The
// reference has this table.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	t.Run("pgx", func(t *testing.T) {
		t.Parallel()
		var c turns
		testRoundTrips(t, newPgx(t, setup{conns: 1, config: c.dial}), &c, costs{begin: 1, commit: 1, bare: 0})
	})
	t.Run("sql", func(t *testing.T) {
		t.Parallel()
		var c turns
		testRoundTrips(t, newSQL(t, setup{conns: 1, config: c.dial}), &c, costs{begin: 2, commit: 2, bare: 1})
	})
}

// costs are the round trips that differ between the client libraries: a begin with a claim, a commit with a
// completion, and a begin without a claim, which rides with the first statement where that can be.
type costs struct{ begin, commit, bare int64 }

func testRoundTrips[Tx any](t *testing.T, h *handle[Tx], c *turns, cost costs) {
	ctx := t.Context()
	for round, id := range []string{"warm-up", "counted"} {
		count := func(what string, want int64, fn func() error) {
			t.Helper()
			if round == 0 {
				noErr(t, fn())
				return
			}
			c.Of(t, what, want, fn)
		}
		key := everonce.Key{Scope: "guarded", ID: id}
		var res driver.ClaimResult
		var err error
		count("claim of a new key", 1, func() error { res, err = h.store.Claim(ctx, claimOf(key)); return err })
		decided(t, res, err, driver.DecideClaimed)
		rec := res.Record
		count("claim of a running one", 1, func() error { res, err = h.store.Claim(ctx, claimOf(key)); return err })
		decided(t, res, err, driver.DecideInProgress)
		count("renew", 1, func() error {
			_, err := h.store.Renew(ctx, driver.RenewRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: claimOf(key).Lease, Lifetime: everonce.ForWeb()})
			return err
		})
		count("save step", 1, func() error {
			_, err := h.store.SaveStep(ctx, driver.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Step: driver.StepRecord{Name: "mail", State: driver.StepDone, Attempt: 1}})
			return err
		})
		count("complete", 1, func() error { _, err := h.store.Complete(ctx, completionOf(&rec, "v")); return err })
		count("get, with steps", 2, func() error { _, err := h.store.Get(ctx, driver.GetRequest{ID: rec.ID}); return err })

		plain := everonce.Key{Scope: "plain", ID: id}
		res, err = h.store.Claim(ctx, claimOf(plain))
		decided(t, res, err, driver.DecideClaimed)
		rec = res.Record
		count("release", 1, func() error {
			_, err := h.store.Release(ctx, driver.ReleaseRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, State: driver.StateReleased, Lifetime: everonce.ForWeb()})
			return err
		})
		count("claim after a release", 2, func() error { res, err = h.store.Claim(ctx, claimOf(plain)); return err })
		rec = decided(t, res, err, driver.DecideClaimed).Record
		_, err = h.store.Complete(ctx, completionOf(&rec, "v"))
		noErr(t, err)
		count("replay", 1, func() error { res, err = h.store.Claim(ctx, claimOf(plain)); return err })
		decided(t, res, err, driver.DecideReplay)
		count("get", 1, func() error { _, err := h.store.Get(ctx, driver.GetRequest{ID: rec.ID}); return err })

		testRoundTripsInTx(t, h, count, cost, id)
		testRoundTripsOfABatch(t, h, count, cost)
	}
}

func testRoundTripsInTx[Tx any](t *testing.T, h *handle[Tx], count func(string, int64, func() error), cost costs, id string) {
	ctx := t.Context()
	var (
		tx  driver.TxHandle[Tx]
		res driver.ClaimResult
		err error
	)
	first := everonce.Key{Scope: "claim first", ID: id}
	claim := txClaimOf(first)
	count("begin with a claim", cost.begin, func() error { tx, res, err = h.store.Begin(ctx, driver.BeginRequest{Claim: &claim}); return err })
	rec := decided(t, res, err, driver.DecideClaimed).Record
	done := completionOf(&rec, "v")
	count("commit with a completion", cost.commit, func() error { return errOf(tx.Commit(ctx, driver.CommitRequest{Complete: &done})) })
	again := txClaimOf(first)
	count("begin with a claim that is a replay", cost.begin+1, func() error { _, res, err = h.store.Begin(ctx, driver.BeginRequest{Claim: &again}); return err })
	decided(t, res, err, driver.DecideReplay)

	second := everonce.Key{Scope: "optimistic", ID: id}
	claim = txClaimOf(second)
	count("begin", cost.bare, func() error { tx, _, err = h.store.Begin(ctx, driver.BeginRequest{}); return err })
	count("the first statement of the work", 1, func() error { return h.effect(ctx, tx.Tx(), "counted") })
	done = completionOf(&driver.Record{ID: claim.ID, Nonce: claim.Nonce}, "v")
	count("commit with a record", cost.commit, func() error { return errOf(tx.Commit(ctx, driver.CommitRequest{Record: &claim, Complete: &done})) })

	count("begin and roll back", cost.bare+cost.bare, func() error {
		tx, _, err := h.store.Begin(ctx, driver.BeginRequest{})
		if err != nil {
			return err
		}
		return tx.Rollback(ctx)
	})

	third := everonce.Key{Scope: "parent", ID: id}
	parent, err := h.store.Claim(ctx, claimOf(third))
	decided(t, parent, err, driver.DecideClaimed)
	tx, _, err = h.store.Begin(ctx, driver.BeginRequest{})
	noErr(t, err)
	step := driver.SaveStepRequest{
		ID: parent.Record.ID, Token: parent.Record.Token, Nonce: parent.Record.Nonce, Lease: claimOf(third).Lease, Lifetime: everonce.ForWeb(),
		Step: driver.StepRecord{Name: "charge", State: driver.StepDone, Attempt: 1},
	}
	count("commit with a step", cost.commit, func() error { return errOf(tx.Commit(ctx, driver.CommitRequest{SaveStep: &step})) })

	inner := everonce.Key{Scope: "inner", ID: id} // DoTx inside InTx
	outer, _, err := h.store.Begin(ctx, driver.BeginRequest{})
	noErr(t, err)
	tx, err = h.store.Join(t.Context(), outer.Tx())
	noErr(t, err)
	count("savepoint and claim in a lent transaction", cost.bare+1, func() error {
		noErr(t, tx.Savepoint(ctx, "everonce_0"))
		res, err = tx.Claim(ctx, txClaimOf(inner))
		return err
	})
	rec = decided(t, res, err, driver.DecideClaimed).Record
	count("complete and release in a lent transaction", cost.bare+1, func() error {
		_, err := tx.Complete(ctx, completionOf(&rec, "v"))
		noErr(t, err)
		return tx.ReleaseSavepoint(ctx, "everonce_0")
	})
	count("commit without a record", 1, func() error { return errOf(outer.Commit(ctx, driver.CommitRequest{})) })

	own, err := h.begin(ctx, sql.LevelDefault)
	noErr(t, err)
	fourth := everonce.Key{Scope: "joined", ID: id}
	count("join", 0, func() error { tx, err = h.store.Join(t.Context(), own); return err })
	count("claim in a joined transaction", 1, func() error { res, err = tx.Claim(ctx, txClaimOf(fourth)); return err })
	rec = decided(t, res, err, driver.DecideClaimed).Record
	count("complete in a joined transaction", 1, func() error { return errOf(tx.Complete(ctx, completionOf(&rec, "v"))) })
	noErr(t, h.commit(ctx, own))
}

// testRoundTripsOfABatch: all the claims are one round trip, with BEGIN, and all the records one, with COMMIT.
func testRoundTripsOfABatch[Tx any](t *testing.T, h *handle[Tx], count func(string, int64, func() error), cost costs) {
	ctx := t.Context()
	reqs := make([]driver.ClaimRequest, 100)
	for i := range reqs {
		reqs[i] = txClaimOf(everonce.Key{Scope: "batch", ID: random(t)})
	}
	var many driver.TxBatch
	var claims driver.ClaimAllResult
	count("begin with a hundred claims", cost.begin, func() error {
		tx, _, err := h.store.Begin(ctx, driver.BeginRequest{})
		if err != nil {
			return err
		}
		many = tx.(driver.TxBatch)
		claims, err = many.ClaimAll(ctx, driver.ClaimAllRequest{Claims: reqs})
		return err
	})
	done := make([]driver.CompleteRequest, len(claims.Claims))
	for i := range claims.Claims {
		done[i] = completionOf(&claims.Claims[i].Record, "v")
	}
	count("commit with a hundred completions", cost.commit, func() error { return errOf(many.CommitAll(ctx, driver.CommitAllRequest{Completions: done})) })
}
