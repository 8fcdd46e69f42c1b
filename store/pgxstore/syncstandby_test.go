package pgxstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// A commit that waits for a synchronous standby is neither seen nor answered before that has it, for as long as it may
// wait. Where that time is over, the connection is closed, and PostgreSQL ends the wait, not the commit: what is
// answered then is on the primary only.
func TestACommitThatWaitsForAStandby(t *testing.T) {
	t.Parallel()
	own := startServer(t)
	s := setup{schema: "public", config: own.reach, pending: true}
	first := newPgx(t, s)
	noErr(t, first.store.Migrate(t.Context()))
	r, err := everonce.NewTxReceiver(first.store, nil)
	noErr(t, err)
	_, err = everonce.Transact(t.Context(), r, everonce.Key{Scope: "standby", ID: "first"}, commits[pgx.Tx]) // the first use writes more than that
	noErr(t, err)

	own.set(map[string]string{"synchronous_standby_names": "'absent'"})
	own.Restart()
	pool := newPool(t, own.reach, 0)
	defer pool.Close()
	viaPgx, viaSQL := commitThatWaits(newPgx(t, s).store), commitThatWaits(newSQL(t, s).store)
	waiting := func() (n int) {
		noErr(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'").Scan(&n))
		return n
	}
	for what, transact := range map[string]transactTimeout{"pgx": viaPgx, "sql": viaSQL} {
		for _, want := range []everonce.Outcome{everonce.Executed, everonce.Replayed} {
			if res, err := transact(t, what+" impatient", 100*time.Millisecond); err != nil || res.Outcome != want {
				t.Errorf("%s: what the primary has: %v, %v, want %v", what, res.Outcome, err, want)
			}
		}
	}
	if n := waiting(); n != 0 {
		t.Errorf("%d commits wait after that", n)
	}

	var patient sync.WaitGroup
	for what, transact := range map[string]transactTimeout{"pgx": viaPgx, "sql": viaSQL} {
		patient.Go(func() {
			if res, err := transact(t, what+" patient", time.Hour); err != nil || res.Outcome != everonce.Executed {
				t.Errorf("%s: once the standby has it: %v, %v", what, res.Outcome, err)
			}
		})
	}
	for waiting() < 2 {
		if t.Context().Err() != nil {
			t.Fatal("a commit does not wait for the standby")
		}
	}
	for what, transact := range map[string]transactTimeout{"pgx": viaPgx, "sql": viaSQL} {
		if res, err := transact(t, what+" patient", time.Hour); !errors.Is(err, everonce.ErrInProgress) {
			t.Errorf("%s: a duplicate meanwhile: %v, %v", what, res.Outcome, err)
		}
	}
	own.set(map[string]string{"synchronous_standby_names": "''"})
	_, err = pool.Exec(t.Context(), "SELECT pg_reload_conf()") // the primary no longer waits for a standby
	noErr(t, err)
	patient.Wait()
}

// transactTimeout is one operation whose commit may take so long.
type transactTimeout func(t *testing.T, id string, limit time.Duration) (everonce.Result[string], error)

func commitThatWaits[Tx any](store driver.TxStore[Tx]) transactTimeout {
	return func(t *testing.T, id string, limit time.Duration) (everonce.Result[string], error) {
		t.Helper()
		r, err := everonce.NewTxReceiver(store, &everonce.Options{CompletionTimeout: limit})
		noErr(t, err)
		return everonce.Transact(t.Context(), r, everonce.Key{Scope: "standby", ID: id}, commits[Tx])
	}
}

func commits[Tx any](context.Context, Tx) (string, error) { return "v", nil }
