package consumers

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/oncetest"
)

const (
	// lease is short, because the tests wait until the lease of a consumer that "died" has ended; and long enough for one
	// claim on a busy machine.
	lease = 3 * time.Second
	// longLease is for many claims at once there. Nothing waits until it has run out.
	longLease = time.Minute
	// operations of the chaos: time is real here.
	operations = 4
)

// order is the payload of the messages here.
type order struct{ Amount int }

// byTenant is the key of an order: the tenant's own, and the producer's ID.
var byTenant = consume.Composite("Order", consume.Header("tenant"), consume.ProducerID())

// retry never gives a message up: so much fails here that by chance one would.
var retry = consume.RetryPolicy{Limit: 1000, Min: time.Millisecond, Max: 10 * time.Millisecond}

// nameOf names a shipment in a ledger.
func nameOf(m *consume.Message) string { return m.Headers["tenant"] + "/" + m.ID }

// messageOf is an operation as a broker delivers it.
func messageOf(op oncetest.Operation) *consume.Message {
	amount := op.Amount
	if op.Rejected {
		amount = 0
	}
	return message(op.Client, op.Key, amount)
}

func message(tenant, id string, amount int) *consume.Message {
	return &consume.Message{
		ID: id, Source: "orders", Headers: map[string]string{"tenant": tenant},
		ContentType: "application/json", Body: []byte(`{"Amount":` + strconv.Itoa(amount) + `}`),
	}
}

// refused is the failure of an order for nothing.
func refused(o order) error {
	if o.Amount == 0 {
		return everonce.Permanent("nothing", errors.New("there is nothing to ship"), nil)
	}
	return nil
}

// shipping is a consumer, whatever its mode and store.
type shipping struct {
	consumer *consume.Consumer
	// shipped counts in the ledger.
	shipped func(ctx context.Context, name string) (int, error)
	settle  func(ctx context.Context, key everonce.Key, happened bool) error
}

// system delivers to a consumer as a broker does. again builds it again, as a new process would.
func (s *shipping) system(again func(*oncetest.Faults) *shipping) oncetest.System {
	sys := oncetest.System{
		Deliver: func(ctx context.Context, op oncetest.Operation) oncetest.Answer {
			return oncetest.AnswerOfVerdict(s.consumer.Handle(ctx, messageOf(op)))
		},
		Effects: func(ctx context.Context, op oncetest.Operation) (int, error) {
			return s.shipped(ctx, nameOf(messageOf(op)))
		},
		Restart: func(f *oncetest.Faults) oncetest.System { return again(f).system(again) },
	}
	if s.settle != nil {
		sys.Settle = func(ctx context.Context, op oncetest.Operation, happened bool) error {
			key, err := s.consumer.KeyOf(messageOf(op))
			if err != nil {
				return err
			}
			return s.settle(ctx, key, happened)
		}
	}
	return sys
}

// build makes the consumer in one process, whose store and effects fail as the test says.
type build func(tb testing.TB, plan oncetest.Plan, effect func(ctx context.Context, id string, effect func() error) error) *shipping

// practice runs the practice list, each test in a separate world.
func practice(t *testing.T, world func(testing.TB) build, s oncetest.Subject) {
	t.Helper()
	c := &s.Capabilities
	c.Marks, c.Keys, c.Clients, c.Rejections, c.EffectFaults = true, true, true, true, true
	s.Operations = operations
	s.New = func(tb testing.TB, f *oncetest.Faults) oncetest.System {
		tb.Helper()
		b := world(tb)
		again := func(f *oncetest.Faults) *shipping { return b(tb, f.Plan(), f.Effect) }
		sys := again(f).system(again)
		if !c.Restarts {
			sys.Restart = nil
		}
		if s.Lease == longLease {
			sys.Elapse = func(time.Duration) {} // no process dies whose lease would have to run out
		}
		return sys
	}
	oncetest.Run(t, s)
}

const (
	orders = 40
	// The chances of a call to fail, as in the practice list's chaos.
	storeFails, effectFails = 0.3, 0.2

	refusedID = "order-refused"
)

// broker delivers orders through an unruly broker, while calls fail with the given chances, and counts in the ledger. A
// dead letter of unknown outcome is replayed.
func (b build) broker(t *testing.T, w consume.Workers, storeFailing, effectFailing float64) {
	t.Helper()
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any number
	store, effects := oncetest.Seeded(seed, storeFailing), oncetest.Seeded(seed, effectFailing)
	plan := func(c oncetest.Call) oncetest.Fault {
		if c.Op == oncetest.OpEffect {
			return effects(c)
		}
		return store(c)
	}
	failing := oncetest.NewGateway(&oncetest.GatewayOptions{Plan: plan}) // for an effect that is no call of a gateway
	s := b(t, plan, func(ctx context.Context, id string, effect func() error) error {
		if _, err := failing.Call(ctx, id, ""); err != nil {
			return err
		}
		return effect()
	})
	w.Log, w.Backoff.Min, w.Backoff.Max = slog.New(slog.DiscardHandler), time.Millisecond, 10*time.Millisecond
	ms := make([]*consume.Message, orders)
	for i := range ms {
		ms[i] = message("shop-"+strconv.Itoa(i%3), "order-"+strconv.Itoa(i), i+1)
	}
	ms[orders-1] = message("shop-0", refusedID, 0)
	all := ms
	var dead []oncetest.Dead
	for round := 0; len(ms) > 0; round++ {
		if round == 20 {
			t.Fatalf("after %d replays %d dead letters are still unknown", round, len(ms))
		}
		told := oncetest.RunBroker(t, s.consumer, ms, &oncetest.BrokerOptions{Workers: &w})
		t.Logf("round %d: %d deliveries, %d sent again, %d answers lost, %d dead letters", round, told.Deliveries, told.Copies, told.Lost, len(told.Dead))
		var unknown []*consume.Message
		for _, d := range told.Dead {
			if d.Death.Reason == consume.Unknown { // under Reconcile: replayed, it is asked about
				again := *d.Message
				again.Retries = 0
				unknown = append(unknown, &again)
				continue
			}
			dead = append(dead, d)
		}
		ms = unknown
	}
	for i, m := range all {
		want := 1
		if i == orders-1 {
			want = 0
		}
		n, err := s.shipped(t.Context(), nameOf(m))
		noErr(t, err)
		if n != want {
			t.Errorf("%s was shipped %d times, want %d", m.ID, n, want)
		}
	}
	for _, d := range dead {
		if d.Message.ID != refusedID || d.Death.Reason != consume.Rejected {
			t.Errorf("%s is a dead letter: %s (%s)", d.Message.ID, d.Death.Reason, d.Death.Detail)
		}
	}
	if len(dead) == 0 {
		t.Error("the refused order is no dead letter")
	}
}
