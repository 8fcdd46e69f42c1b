package tested

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/oncetest"
)

// message is a payment as its producer sends it.
func message(tb testing.TB, p Payment) *consume.Message {
	tb.Helper()
	body, err := json.Marshal(p)
	if err != nil {
		tb.Fatal(err)
	}
	return &consume.Message{ID: p.ID, Body: body}
}

// TestConsumer holds the consumer to the practice list.
func TestConsumer(t *testing.T) {
	t.Parallel()
	var system func(tb testing.TB, w *world, f *oncetest.Faults) oncetest.System
	system = func(tb testing.TB, w *world, f *oncetest.Faults) oncetest.System {
		tb.Helper()
		consumer, err := w.service(tb, f).Consumer()
		if err != nil {
			tb.Fatal(err)
		}
		return oncetest.System{
			Deliver: func(ctx context.Context, op oncetest.Operation) oncetest.Answer {
				return oncetest.AnswerOfVerdict(consumer.Handle(ctx, message(tb, payment(op))))
			},
			Effects: w.charges,
			Restart: func(f *oncetest.Faults) oncetest.System { return system(tb, w, f) },
		}
	}
	oncetest.Run(t, oncetest.Subject{
		Mode: oncetest.Transactional, Lease: lease, Operations: operations, Capabilities: capabilities,
		New: func(tb testing.TB, f *oncetest.Faults) oncetest.System {
			tb.Helper()
			return system(tb, newWorld(tb), f)
		},
	})
}

// TestConsumerOfAnUnrulyBroker: the producer sends again, the payments overtake each other, acknowledgements are lost,
// and each payment is charged once.
func TestConsumerOfAnUnrulyBroker(t *testing.T) {
	w := newWorld(t)
	consumer, err := w.service(t, &oncetest.Faults{}).Consumer()
	if err != nil {
		t.Fatal(err)
	}
	charges := map[Payment]int{
		{"client-1", "rent", 70_000}: 1, {"client-1", "power", 6_000}: 1, {"client-2", "rent", 80_000}: 1,
		{"client-2", "a yacht", 2_000_000}: 0, // more than there is
	}
	var messages []*consume.Message
	for p := range charges {
		messages = append(messages, message(t, p))
	}

	told := oncetest.RunBroker(t, consumer, messages, nil)

	for p, want := range charges {
		n, err := w.charges(t.Context(), oncetest.Operation{Client: p.Client, Key: p.ID})
		if err != nil || n != want {
			t.Errorf("%s of %s was charged %d times (%v), want %d", p.ID, p.Client, n, err, want)
		}
	}
	for _, dead := range told.Dead {
		if dead.Message.ID != "a yacht" || dead.Death.Reason != consume.Rejected {
			t.Errorf("%s is a dead letter: %s", dead.Message.ID, dead.Death.Detail)
		}
	}
}
