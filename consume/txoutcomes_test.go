package consume_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// both handles two messages in a batch and one alone, and compares the decisions.
func both(t *testing.T, c *consume.Consumer, want consume.Disposition, o everonce.Outcome) {
	t.Helper()
	decisions := append(c.HandleBatch(t.Context(), messages("a", "b")), c.Handle(t.Context(), message("c").m))
	for i, v := range decisions {
		if v.Disposition != want || v.Outcome != o || v.Err == nil && want != consume.Ack {
			t.Errorf("message %d: %v after %v, %v; want %v after %v", i, v.Disposition, v.Outcome, v.Err, want, o)
		}
	}
}

// An operation that a guarded consumer of the same name left unknown remains unknown until it is settled: to retry it
// would block later messages for ever.
func TestAnAbandonedMessageIsADeadLetterInATransactionToo(t *testing.T) {
	l := newLedger()
	for _, id := range []string{"a", "b", "c"} {
		key := everonce.Key{Scope: everonce.ScopeOf("billing"), ID: id}
		rec, _, err := transition.Claim(nil, driver.ClaimRequest{
			ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Second, Lifetime: everonce.ForQueue(),
		}, time.Now().Add(-time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		l.records[key.RecordID()] = *rec
	}
	both(t, booking(t, l, nil), consume.SetAside, everonce.Unknown)
	if l.commits != 0 {
		t.Errorf("%d commits", l.commits)
	}
}

// A message whose commit was not confirmed is held until the next claim shows the outcome.
func TestAMessageIsHeldAfterALostCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errLost := errors.New("the line went dead")
		l := newLedger()
		l.classes = map[error]driver.TxErrorClass{errLost: driver.TxErrorCommitLost, errDown: driver.TxErrorRetry}
		away := false
		l.fails = func(method string) error {
			if method == "Commit" {
				away = true
				return errLost
			}
			if away {
				return errDown
			}
			return nil
		}
		c := booking(t, l, nil)
		if v := c.Handle(t.Context(), message("a").m); v.Disposition != consume.Hold || v.Outcome != everonce.Unknown {
			t.Errorf("%v after %v, %v", v.Disposition, v.Outcome, v.Err)
		}
		away = false
		for _, v := range c.HandleBatch(t.Context(), messages("b", "c")) {
			if v.Disposition != consume.Hold || v.Outcome != everonce.Unknown {
				t.Errorf("%v after %v, %v", v.Disposition, v.Outcome, v.Err)
			}
		}
		l.fails = nil
		if got := dispositions(c.HandleBatch(t.Context(), messages("a", "b", "c"))); got != "ack, ack, ack" {
			t.Error(got)
		}
		if l.row("a") != 1 || l.row("b") != 1 || l.row("c") != 1 {
			t.Errorf("booked %d, %d and %d times", l.row("a"), l.row("b"), l.row("c"))
		}
	})
}

// If the database is busy each time before the handler is called, it is no failure of the message and uses up no
// retry.
func TestABusyDatabaseUsesUpNoRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		l.classes = map[error]driver.TxErrorClass{errDown: driver.TxErrorRetry}
		l.fails = func(method string) error {
			if method == "Begin" {
				return errDown
			}
			return nil
		}
		c := booking(t, l, func(s *txSpec) { s.Retry.Limit = -1 })
		both(t, c, consume.Hold, everonce.Failed)
		l.fails = nil
		both(t, c, consume.Ack, everonce.Executed)
	})
}

// One message that uses up the time of its batch does not delay the others, nor the batch for ever.
func TestAMessageThatTakesTooLongHoldsUpNoBatch(t *testing.T) {
	for name, together := range map[string]bool{"one after the other": false, "together": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testTooLong(t, together) })
		})
	}
}

func testTooLong(t *testing.T, together bool) {
	l := newLedger()
	c := booking(t, l, func(s *txSpec) {
		one := s.Handle
		s.Handle = func(ctx context.Context, tx *ledgerTx, m *consume.Message, v order) error {
			if m.ID != "slow" {
				return one(ctx, tx, m, v)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		if together {
			each := s.Handle
			s.HandleAll = func(ctx context.Context, tx *ledgerTx, batch []consume.Received[order]) error {
				for _, r := range batch {
					if err := each(ctx, tx, r.Message, r.Payload); err != nil {
						return err
					}
				}
				return nil
			}
			s.Handle = nil
		}
	})
	in := make(chan consume.Delivery, 5)
	all := []*delivery{message("a"), message("slow"), message("b"), message("c"), message("d")}
	for _, d := range all {
		in <- d
	}
	close(in)
	began := time.Now()
	if err := c.Serve(t.Context(), in, &consume.Workers{Batch: 5, HandleTimeout: time.Second, Log: quiet}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the batch, and then the one, took %v, want no more than a second each", took)
	}
	for _, d := range all {
		want, row := "ack", 1
		if d.m.ID == "slow" {
			want, row = "retry true", 0
		}
		if len(d.ended) != 1 || d.ended[0] != want || l.row(d.m.ID) != row {
			t.Errorf("%s ended as %v, want %s, and was booked %d times", d.m.ID, d.ended, want, l.row(d.m.ID))
		}
	}
}

// A message is remembered for its consumer's lifetime, handled alone or in a batch: with the database's default of a
// day it would be done twice.
func TestATransactionIsRememberedForTheConsumersLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := booking(t, newLedger(), nil)
		both(t, c, consume.Ack, everonce.Executed)
		time.Sleep(6 * 24 * time.Hour)
		both(t, c, consume.Ack, everonce.Replayed)
		time.Sleep(7 * 24 * time.Hour)
		both(t, c, consume.Ack, everonce.Expired)
	})
}

// An invalid call, from within a transaction, is not the message's fault: it is held.
func TestACallFromWithinATransactionIsKept(t *testing.T) {
	l := newLedger()
	recv, err := everonce.NewTxReceiver[*ledgerTx](l, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := booking(t, l, nil)
	if err := recv.InTx(t.Context(), func(ctx context.Context, _ *ledgerTx) error {
		for _, v := range []consume.Decision{c.Handle(ctx, message("a").m), c.HandleBatch(ctx, messages("a"))[0]} {
			if v.Disposition != consume.Hold || v.Outcome != everonce.Invalid {
				t.Errorf("%v after %v, %v", v.Disposition, v.Outcome, v.Err)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
