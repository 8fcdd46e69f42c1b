package pgxstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// docs/how-to/millions-of-records.md states how many dead rows a key leaves to the vacuum, for readers who set the
// autovacuum by it: which writes change or remove a row, and which of them change no index (HOT), so that no vacuum has
// to wait for them.
func TestTheDeadRowsOfAKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ expire, hot bool }{
		"renewed under Refuse":    {expire: false, hot: true},
		"renewed under Reexecute": {expire: true, hot: false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newPgx(t, setup{conns: 1}) // so that the session that counts is the one that has written
			ctx := t.Context()
			wrote := func(what string, inserted, updated, hot, removed int64) {
				t.Helper()
				noErr(t, h.query(ctx, "SELECT pg_stat_force_next_flush()::text").Scan(new(string)))
				for column, want := range map[string]int64{"n_tup_ins": inserted, "n_tup_upd": updated, "n_tup_hot_upd": hot, "n_tup_del": removed} {
					if got := number(t, "SELECT "+column+" FROM pg_stat_all_tables WHERE schemaname = $1 AND relname = 'everonce_record'", h.schema); got != want {
						t.Errorf("after %s: %s is %d, want %d", what, column, got, want)
					}
				}
			}
			hot := int64(0)
			if c.hot {
				hot = 1
			}
			req := claimOf(everonce.Key{Scope: "dead", ID: "guarded"})
			req.ExpireUnsettled = c.expire
			res, err := h.store.Claim(ctx, req)
			rec := decided(t, res, err, driver.DecideClaimed).Record
			wrote("the claim", 1, 0, 0, 0)
			_, err = h.store.Renew(ctx, driver.RenewRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: time.Hour, Lifetime: everonce.ForQueue()})
			noErr(t, err)
			wrote("a renewal", 1, 1, hot, 0)
			done := completionOf(&rec, "v")
			done.Lifetime = driver.Lifetime{Retention: time.Microsecond, Remember: time.Hour}
			_, err = h.store.Complete(ctx, done)
			noErr(t, err)
			wrote("the completion", 1, 2, hot, 0)
			_, err = h.store.Purge(ctx, driver.PurgeRequest{})
			noErr(t, err)
			wrote("the end of the result", 1, 3, hot, 0)

			r, err := everonce.NewTxReceiver(h.store, nil)
			noErr(t, err)
			_, err = everonce.Transact(ctx, r, everonce.Key{Scope: "dead", ID: "transactional"}, func(context.Context, pgx.Tx) (string, error) { return "v", nil },
				everonce.WithLifetime(driver.Lifetime{Retention: time.Microsecond}))
			noErr(t, err)
			wrote("a transaction", 2, 3, hot, 0)
			_, err = h.store.Purge(ctx, driver.PurgeRequest{})
			noErr(t, err)
			wrote("its removal", 2, 3, hot, 1)
		})
	}
}
