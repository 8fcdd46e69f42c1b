package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/sqlitestore"
)

var errDied = errors.New("the process died")

// overGone leaves a record with a finished step that is gone by time and not purged, and has a
// transaction record the same key over it, which is gone by time in its turn.
func overGone(t *testing.T, how string) (b *bank, c *clock, r *everonce.Receiver) {
	t.Helper()
	c = new(clock)
	b = &bank{Store: open(t, filepath.Join(t.TempDir(), "bank.db"), sqlitestore.Options{}.WithClock(c.now)), t: t}
	if _, err := b.DB().Exec("CREATE TABLE account (name TEXT PRIMARY KEY, balance INTEGER NOT NULL); INSERT INTO account VALUES ('ann', 100)"); err != nil {
		t.Fatal(err)
	}
	brief := everonce.WithLifetime(driver.Lifetime{Retention: time.Second})
	r, err := everonce.NewReceiver(b.Store, everonce.Refuse, &everonce.Options{EffectsInSteps: true})
	if err != nil {
		t.Fatal(err)
	}
	if b.tr, err = everonce.NewTxReceiver(b.Store, &everonce.Options{Optimistic: how == "optimistic"}); err != nil {
		t.Fatal(err)
	}
	res, err := everonce.Do(t.Context(), r, order("7"), mails(new(int), nil), brief)
	if err != nil || res.Outcome != everonce.Executed {
		t.Fatalf("%+v, %v", res, err)
	}
	c.advance(time.Second)
	switch how {
	case "in the caller's transaction":
		tx, begun := b.DB().BeginTx(t.Context(), nil)
		if begun != nil {
			t.Fatal(begun)
		}
		res, err = everonce.DoTx(t.Context(), tx, b.tr, order("7"), func(ctx context.Context) (int, error) { return charge(30)(ctx, tx) }, brief)
		err = errors.Join(err, tx.Commit())
	case "in a batch":
		var all []everonce.BatchResult[int]
		all, err = everonce.TransactBatch(t.Context(), b.tr, []everonce.BatchItem{{Key: order("7")}, {Key: order("8")}},
			everonce.EachItem(func(ctx context.Context, tx *sql.Tx, _ int) (int, error) { return charge(30)(ctx, tx) }), brief)
		if err == nil {
			res, err = all[0].Result, all[0].Err
		}
	default:
		res, err = everonce.Transact(t.Context(), b.tr, order("7"), charge(30), brief)
	}
	if err != nil || res.Outcome != everonce.Executed {
		t.Fatalf("%+v, %v", res, err)
	}
	c.advance(time.Second)
	return b, c, r
}

// transactionsOver are the ways in which a transaction records a key over a record that is gone.
var transactionsOver = []string{"claim first", "optimistic", "in the caller's transaction", "in a batch"}

// mails is work that counts how often its only step runs.
func mails(n *int, err error) func(context.Context, *everonce.Attempt) (int, error) {
	return func(ctx context.Context, a *everonce.Attempt) (int, error) {
		return everonce.Step(ctx, a, "mail", func(context.Context) (int, error) { *n++; return *n, err })
	}
}

// rows are the steps in the tables, whether a record counts them or not.
func (b *bank) rows(want int) {
	b.t.Helper()
	var got int
	if err := b.DB().QueryRow("SELECT count(*) FROM everonce_step").Scan(&got); err != nil {
		b.t.Fatal(err)
	}
	if got != want {
		b.t.Errorf("%d rows of steps, want %d", got, want)
	}
}

// The steps of a record that is gone do not survive a transaction over it.
func TestStepsOfAGoneRecordDoNotSurviveTransact(t *testing.T) {
	for _, how := range transactionsOver {
		t.Run(how, func(t *testing.T) {
			b, _, r := overGone(t, how)
			b.rows(0)
			n := 0
			if _, err := everonce.Do(t.Context(), r, order("7"), mails(&n, errDied)); !errors.Is(err, errDied) {
				t.Errorf("the next operation: %v", err)
			}
			got, err := b.Get(t.Context(), driver.GetRequest{ID: order("7").RecordID()})
			if err != nil {
				t.Fatal(err)
			}
			if s := got.Record.Steps; len(s) != 1 || s[0].State != driver.StepOpen {
				t.Errorf("the steps are %+v, want the one that was begun, open", s)
			}
			if _, err := everonce.Do(t.Context(), r, order("7"), mails(&n, nil)); !errors.Is(err, everonce.ErrOutcomeUnknown) {
				t.Errorf("after it: %v, want ErrOutcomeUnknown", err)
			}
			if n != 1 {
				t.Errorf("the step ran %d times under Refuse", n)
			}
		})
	}
}

// The same where the next operation's process dies within its step: the next but one finds the step open.
func TestStepBegunByADeadProcessOverAGoneRecordIsFound(t *testing.T) {
	for _, how := range transactionsOver {
		t.Run(how, func(t *testing.T) {
			b, c, r := overGone(t, how)
			ctx, key := t.Context(), order("7")
			claim, err := b.Claim(ctx, driver.ClaimRequest{
				ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Owner: "dead:1",
				Lease: time.Minute, Lifetime: everonce.ForWeb(),
			})
			if err != nil || claim.Decision != driver.DecideClaimed {
				t.Fatalf("%v, %v", claim.Decision, err)
			}
			if _, err := b.SaveStep(ctx, driver.SaveStepRequest{
				ID: key.RecordID(), Token: claim.Record.Token, Nonce: claim.Record.Nonce, Lease: time.Minute, Lifetime: everonce.ForWeb(),
				Step: driver.StepRecord{Name: "mail", State: driver.StepOpen, Attempt: 1},
			}); err != nil {
				t.Fatal(err)
			}
			c.advance(time.Hour)
			n := 0
			if _, err := everonce.Do(ctx, r, key, mails(&n, nil)); !errors.Is(err, everonce.ErrOutcomeUnknown) {
				t.Errorf("after the death: %v, want ErrOutcomeUnknown", err)
			}
			if n != 0 {
				t.Errorf("the step that the dead process had begun ran again, under Refuse")
			}
		})
	}
}

// A record that becomes due while a purge runs loses its steps and the count of them together, or neither.
func TestPurgeUsesOneTime(t *testing.T) {
	start := new(clock).now()
	due := start.Add(time.Hour)
	for before := range 6 { // in which of the purge's looks at the clock the record becomes due
		var at, tick atomic.Int64
		s := open(t, filepath.Join(t.TempDir(), "purged.db"), sqlitestore.Options{}.WithClock(func() time.Time {
			return start.Add(time.Duration(at.Add(tick.Load())) * time.Microsecond)
		}))
		ctx, id := t.Context(), order("7").RecordID()
		life := driver.Lifetime{Retention: time.Hour, Remember: time.Hour}
		claim, err := s.Claim(ctx, driver.ClaimRequest{ID: id, Scope: "orders", Name: "7", Nonce: driver.NewNonce(), Lease: time.Minute, Lifetime: life})
		if err != nil || claim.Decision != driver.DecideClaimed {
			t.Fatalf("%v, %v", claim.Decision, err)
		}
		token, nonce := claim.Record.Token, claim.Record.Nonce
		if _, err := s.SaveStep(ctx, driver.SaveStepRequest{
			ID: id, Token: token, Nonce: nonce, Lease: time.Minute, Lifetime: life,
			Step: driver.StepRecord{Name: "mail", State: driver.StepDone, Attempt: 1},
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Complete(ctx, driver.CompleteRequest{
			ID: id, Token: token, Nonce: nonce, Lifetime: life,
			Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte("v")},
		}); err != nil {
			t.Fatal(err)
		}
		at.Store(due.Sub(start).Microseconds() - int64(before))
		tick.Store(1)
		if _, err := s.Purge(ctx, driver.PurgeRequest{Limit: 10}); err != nil {
			t.Fatal(err)
		}
		tick.Store(0)
		var counted, rows int
		if err := s.DB().QueryRow("SELECT (SELECT steps FROM everonce_record), (SELECT count(*) FROM everonce_step)").Scan(&counted, &rows); err != nil {
			t.Fatal(err)
		}
		if counted != rows {
			t.Errorf("due %d looks at the clock after the first: the record counts %d steps, and there are %d", before, counted, rows)
		}
		at.Store(due.Sub(start).Microseconds())
		if _, err := s.Purge(ctx, driver.PurgeRequest{Limit: 10}); err != nil {
			t.Fatal(err)
		}
		if err := s.DB().QueryRow("SELECT count(*) FROM everonce_step").Scan(&rows); err != nil || rows != 0 {
			t.Errorf("%d steps are left when the result is gone, %v", rows, err)
		}
	}
}
