package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/store/redisstore"
)

// TestPractice holds a payment service on this store to the practice list, under each policy for the unknown.
func TestPractice(t *testing.T) {
	for mode, policy := range map[oncetest.Mode]everonce.Policy{
		oncetest.Refuse: everonce.Refuse, oncetest.Reexecute: everonce.Reexecute, oncetest.Reconcile: everonce.Reconcile,
	} {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			const lease = 1500 * time.Millisecond // a busy machine may hold a process up for longer than a short one
			client := newClient(t, serverURL(t))
			root := newPrefix(t, client)
			var n atomic.Int64
			oncetest.Run(t, oncetest.Subject{
				Mode: mode, Lease: lease, Operations: 20,
				Capabilities: oncetest.Capabilities{
					Marks: true, Keys: true, Clients: true, Fingerprints: true, Rejections: true, Concurrency: true,
					EffectFaults: true, StoreFaults: true, Restarts: true, Compensations: true, Settlement: policy == everonce.Refuse,
				},
				New: func(tb testing.TB, f *oncetest.Faults) oncetest.System {
					tb.Helper()
					store := newStore(tb, client, &redisstore.Options{KeyPrefix: fmt.Sprintf("%s%d:", root, n.Add(1))})
					p := &payments{store: store, policy: policy, lease: lease, gateway: oncetest.NewGateway(&oncetest.GatewayOptions{Deduplicates: policy == everonce.Reexecute})}
					return p.system(tb, f)
				},
			})
		})
	}
}

// payments charges at a gateway, out of reach of a transaction.
type payments struct {
	store   driver.Store
	policy  everonce.Policy
	lease   time.Duration
	gateway *oncetest.Gateway
}

func paymentKey(kind string, op oncetest.Operation) everonce.Key {
	return everonce.Key{Scope: driver.ScopeOf(op.Client, kind), ID: op.Key}
}

func (p *payments) system(tb testing.TB, f *oncetest.Faults) oncetest.System {
	tb.Helper()
	r, err := everonce.NewReceiver(oncetest.FaultStore(p.store, f.Plan()), p.policy, &everonce.Options{Lease: p.lease})
	noErr(tb, err)
	gateway := p.gateway.With(f.Plan())
	about := func(op oncetest.Operation) string { return "charge " + op.Client + "/" + op.Key }
	ask := func(name string) everonce.CallOption {
		return everonce.WithReconcile(func(_ context.Context, a everonce.Abandoned) (everonce.Verdict[oncetest.Receipt], error) {
			if receipt, ok := p.gateway.Find(a.Downstream(name)); ok {
				return everonce.Happened(receipt), nil
			}
			return everonce.NotHappened[oncetest.Receipt](), nil
		})
	}
	sys := oncetest.System{
		Deliver: func(ctx context.Context, op oncetest.Operation) oncetest.Answer {
			return oncetest.AnswerOf(everonce.Do(ctx, r, paymentKey("payments", op), func(ctx context.Context, a *everonce.Attempt) (oncetest.Receipt, error) {
				if op.Rejected {
					return oncetest.Receipt{}, everonce.Permanent("no_funds", errors.New("the account is empty"), []byte(strconv.Itoa(op.Amount)))
				}
				return gateway.Call(ctx, a.DownstreamKey("charge"), about(op))
			}, everonce.FingerprintOf(op.Amount), ask("charge")))
		},
		Effects: func(_ context.Context, op oncetest.Operation) (int, error) {
			return len(p.gateway.Requested(about(op))), nil
		},
		Compensate: func(ctx context.Context, op oncetest.Operation) oncetest.Answer {
			return oncetest.AnswerOf(everonce.Do(ctx, r, paymentKey("refunds", op), func(ctx context.Context, a *everonce.Attempt) (oncetest.Receipt, error) {
				return gateway.Call(ctx, a.DownstreamKey("refund"), "refund "+op.Key)
			}, ask("refund")))
		},
		Compensations: func(_ context.Context, op oncetest.Operation) (int, error) {
			return len(p.gateway.Requested("refund " + op.Key)), nil
		},
		Restart: func(f *oncetest.Faults) oncetest.System { return p.system(tb, f) },
	}
	if p.policy == everonce.Refuse {
		sys.Settle = func(ctx context.Context, op oncetest.Operation, happened bool) error {
			s := everonce.Settlement{Verdict: everonce.SettleNotDone}
			if happened {
				receipt, _ := p.gateway.Find(p.gateway.Requested(about(op))[0])
				s = everonce.Settlement{Verdict: everonce.SettleDone, Value: receipt}
			}
			return r.Settle(ctx, paymentKey("payments", op), s)
		}
	}
	return sys
}
