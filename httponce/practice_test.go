package httponce_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/internal/mapdb"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/store/memstore"
)

// caller is the principal of the services here.
func caller(r *http.Request) (string, error) { return r.Header.Get("X-Client"), nil }

// order is the body of a request.
type order struct {
	Amount   int
	Rejected bool
}

// gatewayStatus are what the services here answer where their gateway fails: it says, or does not, that nothing took
// hold.
const (
	gatewayMute = http.StatusBadGateway
	gatewayDown = http.StatusServiceUnavailable
)

// request is an operation as its client sends it.
func request(ctx context.Context, op oncetest.Operation) *http.Request {
	body, err := json.Marshal(order{op.Amount, op.Rejected})
	if err != nil {
		panic(err)
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/payments", strings.NewReader(string(body)))
	r.Header.Set("X-Client", op.Client)
	if op.Key != "" {
		r.Header.Set("Idempotency-Key", strconv.Quote(op.Key))
	}
	return r
}

// delivered returns what an answer means, as a client sees it. muteMeans is what the handler's own 502 does.
func delivered(res *http.Response, muteMeans everonce.Outcome) oncetest.Answer {
	text, err := io.ReadAll(res.Body)
	if err != nil {
		panic(err)
	}
	var p struct{ Type string }
	if res.Header.Get("Content-Type") == "application/problem+json" {
		if err := json.Unmarshal(text, &p); err != nil {
			panic(err)
		}
		p.Type = strings.TrimSuffix(p.Type[strings.LastIndex(p.Type, "/")+1:], ".md")
	}
	a := oncetest.Answer{Result: fmt.Sprint(res.StatusCode, " ", string(text)), Err: fmt.Errorf("%d %s", res.StatusCode, text)}
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		a.RetryAfter = time.Duration(seconds) * time.Second
	}
	problems := map[string]everonce.Outcome{
		"missing-key": everonce.Invalid, "invalid-key": everonce.Invalid, "key-reused": everonce.Mismatch, "in-progress": everonce.InProgress,
		"outcome-unknown": everonce.Unknown, "commit-lost": everonce.Failed, "not-done": everonce.Failed, "store-unavailable": everonce.StoreFailed,
	}
	switch mark := res.Header.Get("Idempotent-Replayed"); {
	case mark == "elided":
		a.Outcome = everonce.Elided
	case mark == "expired":
		a.Outcome = everonce.Expired
	case p.Type != "":
		a.Outcome = problems[p.Type]
	case res.StatusCode == http.StatusPaymentRequired:
		a.Outcome = everonce.Rejected
	case res.StatusCode == gatewayMute:
		a.Outcome = muteMeans
	case res.StatusCode == gatewayDown:
		a.Outcome = everonce.Failed
	case mark == "true":
		a.Outcome, a.Err = everonce.Replayed, nil
	default:
		a.Outcome, a.Err = everonce.Executed, nil
	}
	return a
}

// servedKey is the key of a request's context value for what Observe gets.
type servedKey struct{}

// tell is an observer that puts the outcome there: an answer that could not be recorded looks like any other.
func tell(ctx context.Context, told httponce.Served) {
	if outcome, ok := ctx.Value(servedKey{}).(*everonce.Outcome); ok {
		*outcome = told.Outcome
	}
}

// payments is an API whose charge is at a gateway.
type payments struct {
	policy  everonce.Policy
	store   everonce.Store
	gateway *oncetest.Gateway
}

func newPayments(policy everonce.Policy, deduplicates bool) *payments {
	return &payments{policy, memstore.New(nil), oncetest.NewGateway(&oncetest.GatewayOptions{Deduplicates: deduplicates})}
}

func (p *payments) about(op oncetest.Operation) string { return "charge " + op.Client + "/" + op.Key }

func keyOfOp(op oncetest.Operation) everonce.Key {
	return everonce.Key{Scope: everonce.ScopeOf(op.Client, http.MethodPost, "/payments"), ID: op.Key}
}

// receipt is what the API answers for a charge.
func receipt(r oncetest.Receipt) httponce.Answer {
	return httponce.Answer{Status: http.StatusCreated, Body: []byte(r.ID), Header: http.Header{"Location": {"/payments/" + r.ID}}}
}

// serve returns the API as one process has it, whose store and gateway fail by a plan.
func (p *payments) serve(tb testing.TB, plan oncetest.Plan) (http.Handler, *everonce.Receiver) {
	tb.Helper()
	opts := httponce.Options{Log: slog.New(slog.DiscardHandler), Observe: tell}
	recv, err := everonce.NewReceiver(oncetest.FaultStore(p.store, plan), p.policy, nil)
	if err != nil {
		tb.Fatal(err)
	}
	opts.Required = true
	if p.policy == everonce.Reconcile {
		opts.Reconcile = func(_ context.Context, a everonce.Abandoned) (everonce.Verdict[httponce.Answer], error) {
			if r, ok := p.gateway.Find(a.Downstream("charge")); ok {
				return everonce.Happened(receipt(r)), nil
			}
			return everonce.NotHappened[httponce.Answer](), nil
		}
	}
	protect, err := httponce.Middleware(recv, caller, &opts)
	if err != nil {
		tb.Fatal(err)
	}
	return protect(p.pay(p.gateway.With(plan))), recv
}

// pay is the handler.
func (p *payments) pay(gateway *oncetest.Client) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var o order
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Rejected {
			http.Error(w, "no money", http.StatusPaymentRequired)
			return
		}
		a, _ := everonce.AttemptFrom(r.Context())
		done, err := gateway.Call(r.Context(), a.DownstreamKey("charge"), p.about(oncetest.Operation{Client: r.Header.Get("X-Client"), Key: a.Key().ID}))
		switch {
		case everonce.IsNotDone(err):
			httponce.NotDone(w)
			http.Error(w, "the gateway is down", gatewayDown)
		case err != nil:
			http.Error(w, "the gateway says nothing", gatewayMute)
		default:
			answer := receipt(done)
			w.Header().Set("Location", answer.Header.Get("Location"))
			w.WriteHeader(answer.Status)
			_, _ = w.Write(answer.Body)
		}
	}
}

// muteMeans is what becomes of a key where the handler's answer says nothing.
func (p *payments) muteMeans() everonce.Outcome {
	if p.policy == everonce.Reexecute {
		return everonce.Failed
	}
	return everonce.Unknown
}

func (p *payments) system(tb testing.TB, f *oncetest.Faults) oncetest.System {
	tb.Helper()
	h, recv := p.serve(tb, f.Plan())
	sys := oncetest.System{
		Deliver: func(ctx context.Context, op oncetest.Operation) oncetest.Answer {
			w := httptest.NewRecorder()
			var told everonce.Outcome
			h.ServeHTTP(w, request(context.WithValue(ctx, servedKey{}, &told), op))
			a := delivered(w.Result(), p.muteMeans())
			if told == everonce.NotRecorded {
				a.Outcome = told
			}
			return a
		},
		Effects: func(_ context.Context, op oncetest.Operation) (int, error) {
			return len(p.gateway.Requested(p.about(op))), nil
		},
		Restart: func(f *oncetest.Faults) oncetest.System { return p.system(tb, f) },
	}
	if p.policy == everonce.Refuse {
		sys.Settle = func(ctx context.Context, op oncetest.Operation, happened bool) error {
			s := everonce.Settlement{Verdict: everonce.SettleNotDone}
			if happened {
				r, _ := p.gateway.Find(recv.DownstreamKey(keyOfOp(op), "charge"))
				s = everonce.Settlement{Verdict: everonce.SettleDone, Value: receipt(r)}
			}
			return recv.Settle(ctx, keyOfOp(op), s)
		}
	}
	return sys
}

var practice = oncetest.Capabilities{
	Marks: true, Keys: true, Clients: true, Fingerprints: true, Rejections: true, Concurrency: true,
	EffectFaults: true, StoreFaults: true, Restarts: true,
}

// The practice list of oncetest: a service behind the middleware is an idempotent receiver, under each policy.
func TestPracticeListOfTheMiddleware(t *testing.T) {
	for policy, mode := range map[everonce.Policy]oncetest.Mode{
		everonce.Refuse: oncetest.Refuse, everonce.Reexecute: oncetest.Reexecute, everonce.Reconcile: oncetest.Reconcile,
	} {
		c := practice
		c.Settlement = policy == everonce.Refuse
		t.Run(policy.String(), func(t *testing.T) {
			oncetest.Run(t, oncetest.Subject{
				Mode: mode, Capabilities: c, Bubble: true, Redelivery: 40 * time.Hour,
				New: func(tb testing.TB, f *oncetest.Faults) oncetest.System {
					return newPayments(policy, policy == everonce.Reexecute).system(tb, f)
				},
			})
		})
	}
}

// The practice list for a handler whose effect commits with its answer.
func TestPracticeListOfHandleTx(t *testing.T) {
	for _, optimistic := range []bool{false, true} {
		t.Run("optimistic="+strconv.FormatBool(optimistic), func(t *testing.T) {
			oncetest.Run(t, oncetest.Subject{
				Mode: oncetest.Transactional, Capabilities: practice, Bubble: true, Redelivery: 40 * time.Hour,
				New: func(tb testing.TB, f *oncetest.Faults) oncetest.System {
					db := mapdb.New()
					tb.Cleanup(func() {
						if n := db.Held(); n > 0 {
							tb.Errorf("%d transactions were left open", n)
						}
					})
					return transactions{db, optimistic}.system(tb, f)
				},
			})
		})
	}
}

// transactions is an API whose charge is a row in the database of its records.
type transactions struct {
	db         *mapdb.DB
	optimistic bool
}

func (x transactions) name(op oncetest.Operation) string { return op.Client + "/" + op.Key }

func (x transactions) serve(tb testing.TB, plan oncetest.Plan, effect func(context.Context, string, func() error) error) http.Handler {
	tb.Helper()
	recv, err := everonce.NewTxReceiver(oncetest.FaultTxStore[*mapdb.Tx](x.db, plan), &everonce.Options{Optimistic: x.optimistic})
	if err != nil {
		tb.Fatal(err)
	}
	h, err := httponce.HandleTx(recv, caller, func(w http.ResponseWriter, r *http.Request, tx *mapdb.Tx) error {
		var o order
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			return err
		}
		if o.Rejected {
			http.Error(w, "no money", http.StatusPaymentRequired)
			return nil
		}
		a, ok := everonce.AttemptFrom(r.Context())
		if !ok {
			return errors.New("there is no attempt")
		}
		name := x.name(oncetest.Operation{Client: r.Header.Get("X-Client"), Key: a.Key().ID})
		if err := effect(r.Context(), name, func() error { return tx.Add(name) }); err != nil {
			return err
		}
		w.WriteHeader(http.StatusCreated)
		_, err := fmt.Fprint(w, o.Amount)
		return err
	}, &httponce.Options{Log: slog.New(slog.DiscardHandler), Route: httponce.Route{Required: true}})
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

func (x transactions) system(tb testing.TB, f *oncetest.Faults) oncetest.System {
	tb.Helper()
	h := x.serve(tb, f.Plan(), f.Effect)
	return oncetest.System{
		Deliver: func(ctx context.Context, op oncetest.Operation) oncetest.Answer {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request(ctx, op))
			return delivered(w.Result(), everonce.Failed)
		},
		Effects: func(_ context.Context, op oncetest.Operation) (int, error) { return x.db.Count(x.name(op)), nil },
		Restart: func(f *oncetest.Faults) oncetest.System { return x.system(tb, f) },
	}
}
