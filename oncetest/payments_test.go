package oncetest

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// payments is a service whose charge is at a gateway, out of reach of a transaction.
type payments struct {
	policy  everonce.Policy
	store   everonce.Store
	gateway *Gateway
	// inSteps makes the charge a step, with a mail and a metric as steps beside it.
	inSteps bool
	wait    time.Duration

	// Settings that a test may break:
	life  func(everonce.Options) everonce.Options
	scope func(client string) everonce.Scope
	print func(op Operation) everonce.CallOption
	name  func(step string) string
	undo  func(op Operation) everonce.Key
	tell  func(Answer) Answer
	about func(Operation) string // what the gateway is asked for
	key   func(Operation) string
	wrap  func(everonce.Store) everonce.Store
	again func() *payments // what a restart finds
	after func(context.Context, *Client, Operation)
	plan  func(Plan) Plan
	fresh bool // a new downstream key for every call
	found func(downstream string) (Receipt, bool)

	settles, settleNothing bool
}

func newPayments(policy everonce.Policy) *payments {
	gateway := NewGateway(&GatewayOptions{Deduplicates: policy == everonce.Reexecute})
	return &payments{
		policy: policy, store: memstore.New(nil), gateway: gateway, found: gateway.Find, settles: policy == everonce.Refuse,
		life:  func(o everonce.Options) everonce.Options { return o },
		scope: func(client string) everonce.Scope { return everonce.ScopeOf(client, "payments") },
		print: func(op Operation) everonce.CallOption { return everonce.FingerprintOf(op.Amount) },
		name:  func(step string) string { return step },
		undo: func(op Operation) everonce.Key {
			return everonce.Key{Scope: everonce.ScopeOf(op.Client, "refunds"), ID: op.Key}
		},
		tell:  func(a Answer) Answer { return a },
		about: func(op Operation) string { return "charge " + op.Client + "/" + op.Key },
		key:   func(op Operation) string { return op.Key },
		wrap:  func(s everonce.Store) everonce.Store { return s },
		after: func(context.Context, *Client, Operation) {},
		plan:  func(p Plan) Plan { return p },
	}
}

var capabilities = Capabilities{
	Marks: true, Keys: true, Clients: true, Fingerprints: true, Rejections: true, Concurrency: true,
	EffectFaults: true, StoreFaults: true, Restarts: true, Compensations: true,
}

// subject returns the service as a subject; build makes a new one for every test.
func subjectOf(mode Mode, build func() *payments) Subject {
	p := build()
	c := capabilities
	c.SideEffects = p.inSteps
	c.Settlement = p.settles && !p.inSteps
	return Subject{
		Mode: mode, Capabilities: c, Bubble: true, Redelivery: 40 * time.Hour,
		New: func(tb testing.TB, f *Faults) System { return build().system(tb, f) },
	}
}

func (p *payments) system(tb testing.TB, f *Faults) System {
	tb.Helper()
	store := p.wrap(FaultStore(p.store, p.plan(f.Plan())))
	gateway := p.gateway.With(p.plan(f.Plan()))
	opts := p.life(everonce.Options{Wait: p.wait})
	recv, err := everonce.NewReceiver(store, p.policy, &opts)
	if err != nil {
		tb.Fatal(err)
	}
	sys := System{
		Deliver: func(ctx context.Context, op Operation) Answer {
			defer p.after(ctx, gateway, op)
			return p.tell(AnswerOf(p.pay(ctx, recv, gateway, op)))
		},
		Effects: func(_ context.Context, op Operation) (int, error) {
			return len(p.gateway.Requested(p.about(op))), nil
		},
		Compensate: func(ctx context.Context, op Operation) Answer {
			return AnswerOf(everonce.Do(ctx, recv, p.undo(op), func(ctx context.Context, a *everonce.Attempt) (Receipt, error) {
				return gateway.Call(ctx, a.DownstreamKey("refund"), "refund "+op.Key)
			}, p.ask("refund")))
		},
		Compensations: func(_ context.Context, op Operation) (int, error) {
			return len(p.gateway.Requested("refund " + op.Key)), nil
		},
		Restart: func(f *Faults) System {
			if p.again != nil {
				return p.again().system(tb, f)
			}
			return p.system(tb, f)
		},
	}
	if p.inSteps {
		sys.SideEffects = p.sideEffects
	}
	if p.settles && !p.inSteps {
		sys.Settle = func(ctx context.Context, op Operation, happened bool) error {
			if p.settleNothing {
				return nil
			}
			s := everonce.Settlement{Verdict: everonce.SettleNotDone}
			if happened {
				keys := p.gateway.Requested(p.about(op))
				receipt, _ := p.gateway.Find(keys[0])
				s = everonce.Settlement{Verdict: everonce.SettleDone, Value: receipt}
			}
			return recv.Settle(ctx, everonce.Key{Scope: p.scope(op.Client), ID: op.Key}, s)
		}
	}
	return sys
}

func (p *payments) pay(ctx context.Context, recv *everonce.Receiver, gateway *Client, op Operation) (everonce.Result[Receipt], error) {
	key := everonce.Key{Scope: p.scope(op.Client), ID: p.key(op)}
	opts := []everonce.CallOption{p.print(op), p.ask("charge")}
	if p.inSteps && p.policy != everonce.Reconcile { // there the operation is asked about, and then its steps
		opts = append(opts, everonce.EffectsInSteps())
	}
	return everonce.Do(ctx, recv, key, func(ctx context.Context, a *everonce.Attempt) (Receipt, error) {
		if op.Rejected {
			return Receipt{}, everonce.Permanent("no_funds", errors.New("the account is empty"), []byte(strconv.Itoa(op.Amount)))
		}
		if !p.inSteps {
			name := "charge"
			if p.fresh {
				name = driver.NewNonce().String()
			}
			return gateway.Call(ctx, a.DownstreamKey(name), p.about(op))
		}
		receipt, err := p.step(ctx, a, "charge", func(ctx context.Context) (Receipt, error) {
			return gateway.Call(ctx, a.DownstreamKey("charge"), p.about(op))
		})
		if err != nil {
			return receipt, err
		}
		for _, name := range []string{"mail", "metric"} {
			if _, err := p.step(ctx, a, name, func(ctx context.Context) (Receipt, error) {
				return gateway.Call(ctx, a.DownstreamKey(p.name(name)), name+" "+op.Key)
			}); err != nil {
				return Receipt{}, err
			}
		}
		return receipt, nil
	}, opts...)
}

func (p *payments) step(ctx context.Context, a *everonce.Attempt, name string, fn func(context.Context) (Receipt, error)) (Receipt, error) {
	return everonce.Step(ctx, a, name, fn, p.ask(p.name(name)))
}

// ask is the question of a reconciler; it changes nothing under another policy.
func (p *payments) ask(effect string) everonce.CallOption {
	return everonce.WithReconcile(func(_ context.Context, a everonce.Abandoned) (everonce.Verdict[Receipt], error) {
		if p.inSteps && a.Step == "" && effect == "charge" {
			return everonce.NotHappened[Receipt](), nil // the steps are asked about
		}
		if receipt, ok := p.found(a.Downstream(effect)); ok {
			return everonce.Happened(receipt), nil
		}
		return everonce.NotHappened[Receipt](), nil
	})
}

func (p *payments) sideEffects(_ context.Context, op Operation) ([]SideEffect, error) {
	var list []SideEffect
	for _, name := range []string{"mail", "metric"} {
		keys := p.gateway.Requested(name + " " + op.Key)
		s := SideEffect{Name: name, Count: len(keys)}
		if len(keys) > 0 {
			s.Key = keys[0]
		}
		list = append(list, s)
	}
	return list, nil
}
