package consume_test

import (
	"context"
	"errors"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/store/memstore"
)

type order struct{ ID string }

func newConsumer(t *testing.T, handle func(context.Context, *consume.Message, order) error) *consume.Consumer {
	t.Helper()
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := consume.New(recv, consume.Spec[order]{Consumer: "billing", Key: consume.ProducerID(), Handle: handle})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A message that comes three times is handled once, and acknowledged three times.
func TestHandledOnceForThreeSends(t *testing.T) {
	handled := 0
	c := newConsumer(t, func(context.Context, *consume.Message, order) error { handled++; return nil })
	m := &consume.Message{ID: "m-1", Body: []byte(`{"ID":"7"}`)}
	for _, want := range []everonce.Outcome{everonce.Executed, everonce.Replayed, everonce.Replayed} {
		if v := c.Handle(t.Context(), m); v.Disposition != consume.Ack || v.Outcome != want {
			t.Errorf("%v %v %v, want ack and %v", v.Disposition, v.Outcome, v.Err, want)
		}
	}
	if handled != 1 {
		t.Errorf("handled %d times, want once", handled)
	}
}

// A rejected message becomes a dead letter at every delivery: the first dead letter may have been lost between the
// record and the broker.
func TestRejectedIsSetAsideAtEveryDelivery(t *testing.T) {
	c := newConsumer(t, func(context.Context, *consume.Message, order) error {
		return everonce.Permanent("no_such_account", errors.New("there is no such account"), nil)
	})
	m := &consume.Message{ID: "m-1", Body: []byte(`{}`)}
	for range 3 {
		v := c.Handle(t.Context(), m)
		if v.Disposition != consume.SetAside || v.Death.Reason != consume.Rejected || v.Death.KeyHash != v.KeyHash || v.KeyHash == "" {
			t.Errorf("%+v, want a dead letter", v)
		}
	}
}
