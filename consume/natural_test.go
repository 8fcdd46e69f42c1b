package consume_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
)

func natural(t *testing.T, handle func(context.Context, *consume.Message, order) (bool, error)) *consume.Consumer {
	t.Helper()
	c, err := consume.NewNatural(consume.NaturalSpec[order]{Consumer: "billing", Key: consume.ProducerID(), Handle: handle})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Each ending of a natural handler, and what becomes of the message.
func TestNaturalOutcomes(t *testing.T) {
	closed := errors.New("the bank is closed")
	for name, tc := range map[string]struct {
		effect  bool
		err     error
		outcome everonce.Outcome
		becomes consume.Disposition
		reason  consume.Reason
	}{
		"took effect":             {effect: true, outcome: everonce.Executed, becomes: consume.Ack},
		"had taken effect":        {outcome: everonce.Replayed, becomes: consume.Ack},
		"refused for good":        {err: everonce.Permanent("no_such_account", nil, nil), outcome: everonce.Rejected, becomes: consume.SetAside, reason: consume.Rejected},
		"failed":                  {err: closed, outcome: everonce.Failed, becomes: consume.Retry},
		"nothing took hold":       {err: everonce.NotDone(closed), outcome: everonce.Failed, becomes: consume.Retry},
		"the store is away":       {err: fmt.Errorf("insert: %w", everonce.ErrStore), outcome: everonce.StoreFailed, becomes: consume.Hold},
		"effect without an error": {effect: true, err: closed, outcome: everonce.Failed, becomes: consume.Retry},
	} {
		c := natural(t, func(context.Context, *consume.Message, order) (bool, error) { return tc.effect, tc.err })
		v := c.Handle(t.Context(), first())
		if v.Outcome != tc.outcome || v.Disposition != tc.becomes || v.Death.Reason != tc.reason || v.KeyHash == "" {
			t.Errorf("%s: %v, %v, dead letter %q; want %v, %v, %q", name, v.Outcome, v.Disposition, v.Death.Reason, tc.outcome, tc.becomes, tc.reason)
		}
	}
}

// A message that fails too often becomes a dead letter, with the same key hash as for a consumer with a store.
func TestNaturalExhausted(t *testing.T) {
	c := natural(t, func(context.Context, *consume.Message, order) (bool, error) { return false, errors.New("no") })
	m := first()
	m.Retries = 10
	v := c.Handle(t.Context(), m)
	key := everonce.Key{Scope: everonce.ScopeOf("billing"), ID: m.ID}
	if v.Death.Reason != consume.Exhausted || v.Death.KeyHash != key.RecordID().Short() {
		t.Errorf("%+v, want a dead letter", v)
	}
}

// If Serve ends before the handler is called, the message is held.
func TestNaturalAfterTheEndRunsNothing(t *testing.T) {
	c := natural(t, func(context.Context, *consume.Message, order) (bool, error) {
		t.Error("it ran")
		return true, nil
	})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if v := c.Handle(over, first()); v.Disposition != consume.Hold {
		t.Errorf("%v, want keep", v.Disposition)
	}
}

// A message that is not to be read never reaches the handler.
func TestNaturalBadInput(t *testing.T) {
	c := natural(t, func(context.Context, *consume.Message, order) (bool, error) {
		t.Error("it ran")
		return true, nil
	})
	unread, unnamed := first(), first()
	unread.Body, unnamed.ID = []byte("{"), ""
	for m, want := range map[*consume.Message]consume.Reason{unread: consume.Undecodable, unnamed: consume.NoKey} {
		if v := c.Handle(t.Context(), m); v.Disposition != consume.SetAside || v.Death.Reason != want {
			t.Errorf("%v %q, want the dead letter %q", v.Disposition, v.Death.Reason, want)
		}
	}
}

func TestNaturalSpecIsChecked(t *testing.T) {
	handle := func(context.Context, *consume.Message, order) (bool, error) { return true, nil }
	for name, spec := range map[string]consume.NaturalSpec[order]{
		"no name":    {Key: consume.ProducerID(), Handle: handle},
		"no key":     {Consumer: "billing", Handle: handle},
		"no handler": {Consumer: "billing", Key: consume.ProducerID()},
		"a limit":    {Consumer: "billing", Key: consume.ProducerID(), Handle: handle, MaxBody: -1},
	} {
		if _, err := consume.NewNatural(spec); !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("%s: %v, want ErrInvalidArgument", name, err)
		}
	}
}

// A handler that takes too long has failed, and uses up a retry: it would take too long at each delivery, and block
// others.
func TestANaturalHandlerThatTakesTooLongHasFailed(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	c := natural(t, func(context.Context, *consume.Message, order) (bool, error) {
		cancel()
		return false, over.Err()
	})
	if v := c.Handle(over, first()); v.Disposition != consume.Retry {
		t.Errorf("%v, want retry", v.Disposition)
	}
}
