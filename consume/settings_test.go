package consume_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
)

// orderSeven is a Decode of an application's own.
func orderSeven(*consume.Message) (order, error) { return order{ID: "7"}, nil }

var errClosed = everonce.NotDone(errors.New("the bank is closed"))

// Each field of a TxSpec takes effect, for a single message and in a batch.
func TestFieldsOfTxSpec(t *testing.T) {
	refusing := func(context.Context, *ledgerTx, *consume.Message, order) error {
		return everonce.Permanent("no_such_account", nil, nil)
	}
	both(t, booking(t, newLedger(), func(s *txSpec) { s.Handle, s.DropRejected = refusing, true }), consume.Ack, everonce.Rejected)
	both(t, booking(t, newLedger(), func(s *txSpec) {
		s.Retry.Limit = -1
		s.Handle = func(context.Context, *ledgerTx, *consume.Message, order) error { return errClosed }
	}), consume.SetAside, everonce.Failed)
	both(t, booking(t, newLedger(), func(s *txSpec) {
		s.Decode = orderSeven
		s.Handle = func(_ context.Context, _ *ledgerTx, _ *consume.Message, o order) error {
			if o.ID != "7" {
				t.Errorf("the order is %+v", o)
			}
			return nil
		}
	}), consume.Ack, everonce.Executed)
	told := 0
	both(t, booking(t, newLedger(), func(s *txSpec) {
		s.Observe = func(context.Context, *consume.Message, consume.Decision) { told++ }
	}), consume.Ack, everonce.Executed)
	if told != 3 {
		t.Errorf("Observe was called %d times", told)
	}
	recv, err := everonce.NewTxReceiver[*ledgerTx](newLedger(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = consume.NewTx(recv, txSpec{
		Consumer: "billing", Key: consume.ProducerID(), Window: 15 * 24 * time.Hour,
		Handle: func(context.Context, *ledgerTx, *consume.Message, order) error { return nil },
	})
	if !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Errorf("a window that is longer than the lifetime: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		c := booking(t, newLedger(), func(s *txSpec) {
			s.Lifetime = everonce.Lifetime{Retention: time.Hour, Remember: 30 * 24 * time.Hour}
		})
		both(t, c, consume.Ack, everonce.Executed)
		time.Sleep(20 * 24 * time.Hour)
		both(t, c, consume.Ack, everonce.Expired)
	})
}

// So does each field of a NaturalSpec.
func TestFieldsOfNaturalSpec(t *testing.T) {
	told := 0
	specs := map[consume.Disposition]consume.NaturalSpec[order]{
		consume.Ack: {DropRejected: true, Handle: func(_ context.Context, _ *consume.Message, o order) (bool, error) {
			if o.ID != "7" {
				t.Errorf("the order is %+v", o)
			}
			return false, everonce.Permanent("no_such_account", nil, nil)
		}},
		consume.SetAside: {Retry: consume.RetryPolicy{Limit: -1}, Handle: func(context.Context, *consume.Message, order) (bool, error) { return false, errClosed }},
	}
	for want, spec := range specs {
		spec.Consumer, spec.Key, spec.Decode, spec.MaxBody = "billing", consume.ProducerID(), orderSeven, 4
		spec.Observe = func(context.Context, *consume.Message, consume.Decision) { told++ }
		c, err := consume.NewNatural(spec)
		if err != nil {
			t.Fatal(err)
		}
		if v := c.Handle(t.Context(), message("a").m); v.Disposition != want {
			t.Errorf("%v after %v, want %v", v.Disposition, v.Outcome, want)
		}
		if v := c.Handle(t.Context(), first()); v.Death.Reason != consume.TooLarge {
			t.Errorf("a body that is too large: %v", v.Disposition)
		}
	}
	if told != 4 {
		t.Errorf("Observe was called %d times", told)
	}
}
