package consumers

import (
	"context"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/store/memstore"
	"github.com/everonce/everonce/store/mongostore"
	"github.com/everonce/everonce/store/redisstore"
)

// stores are all that a guarded consumer may have its records in.
var stores = []struct {
	name   string
	open   func(testing.TB) everonce.Store
	bubble bool
}{
	{"memstore", func(testing.TB) everonce.Store { return memstore.New(nil) }, true},
	{"sqlitestore", func(tb testing.TB) everonce.Store { return openSQLite(tb) }, false},
	{"pgxstore", func(tb testing.TB) everonce.Store { s, _ := openPostgres(tb); return s }, false},
	{"pgxstore through database sql", func(tb testing.TB) everonce.Store { s, _ := openPostgresSQL(tb); return s }, false},
	{"redisstore", func(tb testing.TB) everonce.Store {
		client := redis(tb)
		s, err := redisstore.New(tb.Context(), client, &redisstore.Options{KeyPrefix: redisPrefix(tb, client)})
		noErr(tb, err)
		return s
	}, false},
	{"mongostore", func(tb testing.TB) everonce.Store {
		db := mongodb(tb)
		s, err := mongostore.New(tb.Context(), db, &mongostore.Options{Collection: mongoCollection(tb, db).Name()})
		noErr(tb, err)
		return s
	}, false},
	{"dynamostore", func(tb testing.TB) everonce.Store { s, _, _ := openDynamoDB(tb); return s }, false},
}

var policies = map[everonce.Policy]oncetest.Mode{
	everonce.Refuse: oncetest.Refuse, everonce.Reexecute: oncetest.Reexecute, everonce.Reconcile: oncetest.Reconcile,
}

// guarded is a consumer that ships through a gateway.
func guarded(store everonce.Store, policy everonce.Policy, lease time.Duration, gateway *oncetest.Gateway) build {
	return func(tb testing.TB, plan oncetest.Plan, _ func(context.Context, string, func() error) error) *shipping {
		tb.Helper()
		recv, err := everonce.NewReceiver(oncetest.FaultStore(store, plan), policy, &everonce.Options{Lease: lease})
		noErr(tb, err)
		client := gateway.With(plan)
		spec := consume.Spec[order]{
			Consumer: "shipping", Key: byTenant, Retry: retry,
			Handle: func(ctx context.Context, m *consume.Message, o order) error {
				if err := refused(o); err != nil {
					return err
				}
				a, _ := everonce.AttemptFrom(ctx)
				_, err := client.Call(ctx, a.DownstreamKey("ship"), nameOf(m))
				return err
			},
		}
		if policy == everonce.Reconcile {
			spec.Reconcile = func(_ context.Context, a everonce.Abandoned) (everonce.Verdict[struct{}], error) {
				if _, ok := gateway.Find(a.Downstream("ship")); ok {
					return everonce.Happened(struct{}{}), nil
				}
				return everonce.NotHappened[struct{}](), nil
			}
		}
		c, err := consume.New(recv, spec)
		noErr(tb, err)
		s := &shipping{consumer: c, shipped: func(_ context.Context, name string) (int, error) { return len(gateway.Requested(name)), nil }}
		if policy == everonce.Refuse {
			s.settle = func(ctx context.Context, key everonce.Key, happened bool) error {
				verdict := everonce.SettleNotDone
				if happened {
					verdict = everonce.SettleDone
				}
				return recv.Settle(ctx, key, everonce.Settlement{Verdict: verdict})
			}
		}
		return s
	}
}

// TestGuardedConsumer holds a consumer whose effect is at a gateway to the practice list, on every store and under each
// policy for the unknown. With -short all policies run on stores whose time passes in a bubble, and one on the others.
func TestGuardedConsumer(t *testing.T) {
	t.Parallel()
	for _, at := range stores {
		for policy, mode := range policies {
			if testing.Short() && !at.bubble && policy != everonce.Reconcile {
				continue
			}
			t.Run(at.name+"/"+policy.String(), func(t *testing.T) {
				t.Parallel()
				open := at.open
				if !at.bubble {
					store := at.open(t)
					open = func(testing.TB) everonce.Store { return store }
				}
				run := func(name string, lease time.Duration, c oncetest.Capabilities) {
					c.Fingerprints, c.Settlement = true, policy == everonce.Refuse
					subject := oncetest.Subject{Mode: mode, Lease: lease, Bubble: at.bubble, Capabilities: c}
					if at.bubble && c.Restarts { // time passes there
						subject.Redelivery = 7 * 24 * time.Hour
					}
					t.Run(name, func(t *testing.T) {
						practice(t, func(tb testing.TB) build { return guarded(open(tb), policy, lease, newGateway(policy)) }, subject)
					})
				}
				run("at once", longLease, oncetest.Capabilities{Concurrency: true})
				run("one by one", lease, oncetest.Capabilities{StoreFaults: true, Restarts: true})
			})
		}
	}
}

// newGateway returns one that deduplicates where that is what the policy counts on.
func newGateway(policy everonce.Policy) *oncetest.Gateway {
	return oncetest.NewGateway(&oncetest.GatewayOptions{Deduplicates: policy == everonce.Reexecute})
}

// TestGuardedConsumerOfAnUnrulyBroker: whatever the broker repeats, mixes up and forgets, and though calls of the store
// and the gateway fail, each order is shipped once. The gateway deduplicates, or is asked.
func TestGuardedConsumerOfAnUnrulyBroker(t *testing.T) {
	t.Parallel()
	for _, at := range stores {
		for _, policy := range []everonce.Policy{everonce.Reexecute, everonce.Reconcile} {
			t.Run(at.name+"/"+policy.String(), func(t *testing.T) {
				t.Parallel()
				guarded(at.open(t), policy, lease, newGateway(policy)).broker(t, consume.Workers{}, storeFails, effectFails)
			})
		}
	}
}
