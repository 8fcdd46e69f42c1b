package oncetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/store/memstore"
)

// counted is a ledger of what was handled, by the producer's ID.
type counted struct {
	mu    sync.Mutex
	times map[string]int
	seen  []consume.Message
}

func (c *counted) handle(_ context.Context, m *consume.Message, _ struct{}) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times[m.ID]++
	c.seen = append(c.seen, *m)
	return nil
}

func numberedMessages(n int) []*consume.Message {
	ms := make([]*consume.Message, n)
	for i := range ms {
		ms[i] = &consume.Message{ID: fmt.Sprint("m-", i), Body: []byte(`{}`)}
	}
	return ms
}

func guardedConsumer(t *testing.T, handle func(context.Context, *consume.Message, struct{}) error) *consume.Consumer {
	t.Helper()
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := consume.New(recv, consume.Spec[struct{}]{Consumer: "billing", Key: consume.ProducerID(), Handle: handle})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// notGuarded is a consumer that handles whatever comes.
func notGuarded(t *testing.T, handle func(context.Context, *consume.Message, struct{}) error) *consume.Consumer {
	t.Helper()
	c, err := consume.NewNatural(consume.NaturalSpec[struct{}]{
		Consumer: "billing", Key: consume.ProducerID(),
		Handle: func(ctx context.Context, m *consume.Message, v struct{}) (bool, error) {
			return true, handle(ctx, m, v)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Each message of an unruly broker takes effect once at a consumer that is idempotent, and some take effect twice at
// one that is not: the broker is not blind.
func TestBrokerTellsAConsumerThatIsIdempotent(t *testing.T) {
	const n = 50
	for name, build := range map[string]func(*testing.T, func(context.Context, *consume.Message, struct{}) error) *consume.Consumer{
		"guarded": guardedConsumer, "not guarded": notGuarded,
	} {
		synctest.Test(t, func(t *testing.T) {
			ledger := &counted{times: map[string]int{}}
			report := RunBroker(t, build(t, ledger.handle), numberedMessages(n), nil)
			twice := 0
			for _, times := range ledger.times {
				if times > 1 {
					twice++
				}
			}
			if len(ledger.times) != n || name == "guarded" && twice > 0 || name != "guarded" && twice == 0 {
				t.Errorf("%s: of %d messages %d were handled, %d of them more than once; %+v", name, n, len(ledger.times), twice, report)
			}
			if report.Copies == 0 || report.Lost == 0 || report.Deliveries < n+report.Copies+report.Lost || len(report.Dead) > 0 {
				t.Errorf("%s: %+v: what was delivered more than once?", name, report)
			}
		})
	}
}

// A message that was delivered before is marked as redelivered; one that the producer sent again is not. Each has
// its own broker's ID.
func TestBrokerMarksRedeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := &counted{times: map[string]int{}}
		report := RunBroker(t, notGuarded(t, ledger.handle), numberedMessages(20), nil)
		redelivered := 0
		byBroker := map[string]int{}
		for _, m := range ledger.seen {
			byBroker[m.BrokerID]++
			if m.Redelivered != (m.Deliveries > 1) || m.Deliveries != byBroker[m.BrokerID] {
				t.Errorf("%+v", m)
			}
			if m.Redelivered {
				redelivered++
			}
		}
		if redelivered != report.Lost || len(byBroker) != 20+report.Copies || len(ledger.seen) != report.Deliveries {
			t.Errorf("%d were marked, %d IDs, %d handled: %+v", redelivered, len(byBroker), len(ledger.seen), report)
		}
	})
}

// The first answer of each kind is lost, however small the chance; others are lost by chance.
func TestBrokerLosesTheFirstAnswerOfEachKind(t *testing.T) {
	handle := func(_ context.Context, m *consume.Message, _ struct{}) error {
		switch {
		case m.ID == "m-0":
			return everonce.Permanent("no_such_account", nil, nil)
		case m.ID == "m-1" && m.Retries == 0:
			return everonce.NotDone(errors.New("later"))
		}
		return nil
	}
	for lost, want := range map[float64]func(n int) bool{
		1e-12: func(n int) bool { return n == 3 }, // an acknowledgement, a retry, a dead letter
		0.9:   func(n int) bool { return n > 20 },
	} {
		synctest.Test(t, func(t *testing.T) {
			report := RunBroker(t, guardedConsumer(t, handle), numberedMessages(20), &BrokerOptions{Copies: 1, Lost: lost})
			if !want(report.Lost) {
				t.Errorf("at a chance of %v %d answers were lost: %+v", lost, report.Lost, report)
			}
		})
	}
}

// The producer sends a message up to so many times as it may, and messages overtake each other: by chance, or by a
// seed.
func TestBrokerSendsCopiesInAnyOrder(t *testing.T) {
	order, times := sentByBroker(t, 0)
	if len(times) != 4 || times[1] == 0 || times[4] == 0 {
		t.Errorf("sent so many times: %v", times)
	}
	if slices.IsSorted(order) {
		t.Error("no message has overtaken another")
	}
	seven, times := sentByBroker(t, 7)
	again, timesAgain := sentByBroker(t, 7)
	eight, _ := sentByBroker(t, 8)
	if !slices.Equal(seven, again) || !maps.Equal(times, timesAgain) || slices.Equal(seven, eight) {
		t.Errorf("of the seed 7: %v and %v; of 8: %v", seven, again, eight)
	}
}

// sentByBroker returns the order in which messages came first, and how many of them were sent so many times.
func sentByBroker(t *testing.T, seed uint64) (order []int, times map[int]int) {
	t.Helper()
	times = map[int]int{}
	synctest.Test(t, func(t *testing.T) {
		ledger := &counted{times: map[string]int{}}
		RunBroker(t, notGuarded(t, ledger.handle), numberedMessages(100), &BrokerOptions{Copies: 4, Lost: 1e-12, Workers: &consume.Workers{Concurrency: 1}, Seed: seed})
		sent := map[string]map[string]bool{}
		for _, m := range ledger.seen {
			if sent[m.ID] == nil {
				var n int
				if _, err := fmt.Sscanf(m.ID, "m-%d", &n); err != nil {
					t.Fatal(err)
				}
				sent[m.ID], order = map[string]bool{}, append(order, n)
			}
			sent[m.ID][m.BrokerID] = true
		}
		for _, copies := range sent {
			times[len(copies)]++
		}
	})
	return order, times
}

// A message that fails is given back, and counted, until it is a dead letter; if the answer is lost there are two
// of it.
func TestBrokerGivesBackAndBuries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := func(context.Context, *consume.Message, struct{}) error { return everonce.NotDone(errors.New("later")) }
		report := RunBroker(t, guardedConsumer(t, fails), numberedMessages(3), &BrokerOptions{Copies: 1})
		ids := map[string]bool{}
		for _, d := range report.Dead {
			ids[d.Message.ID] = true
			if d.Death.Reason != consume.Exhausted || d.Message.Retries != 10 {
				t.Errorf("%+v", d)
			}
		}
		if len(ids) != 3 || len(report.Dead) < 4 || report.Lost < 2 {
			t.Errorf("%d dead letters of %d messages: %+v", len(report.Dead), len(ids), report)
		}
	})
}

// A consumer that never ends a message fails the test when its time is over.
func TestBrokerEndsWithTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		away, err := consume.NewNatural(consume.NaturalSpec[struct{}]{
			Consumer: "billing", Key: consume.ProducerID(),
			Handle: func(context.Context, *consume.Message, struct{}) (bool, error) { return false, everonce.ErrStore },
		})
		if err != nil {
			t.Fatal(err)
		}
		quiet := &consume.Workers{Log: slog.New(slog.DiscardHandler)}
		r := recorded(t, func(tb testing.TB) {
			RunBroker(withContext{tb, ctx}, away, numberedMessages(2), &BrokerOptions{Copies: 1, Workers: quiet})
		})
		if !r.failed {
			t.Error("two messages were never handled, and the test did not fail")
		}
	})
}

// withContext is a test with its own context.
type withContext struct {
	testing.TB
	ctx context.Context //nolint:containedctx // the test's context
}

func (w withContext) Context() context.Context { return w.ctx }

func TestBrokerOptionsAreChecked(t *testing.T) {
	for _, opts := range []*BrokerOptions{{Copies: -1}, {Lost: 1}, {Lost: -0.1}, {Workers: &consume.Workers{Concurrency: -1}}} {
		r := recorded(t, func(tb testing.TB) {
			RunBroker(tb, notGuarded(t, (&counted{times: map[string]int{}}).handle), nil, opts)
		})
		if !r.failed {
			t.Errorf("%+v was not refused", opts)
		}
	}
}

// The defaults are three copies, one answer of five that is lost, and the seed of the environment.
func TestBrokerDefaults(t *testing.T) {
	seed := uint64(7)
	run := func(o BrokerOptions) Delivered {
		o.Seed, o.Workers = seed, &consume.Workers{Concurrency: 1} // so that the seed decides it all
		return RunBroker(t, notGuarded(t, (&counted{times: map[string]int{}}).handle), numberedMessages(200), &o)
	}
	got, want := run(BrokerOptions{}), run(BrokerOptions{Copies: 3, Lost: 0.2})
	t.Setenv(SeedVariable, "7")
	seed = 0
	if again := run(BrokerOptions{}); again.Deliveries != want.Deliveries || again.Lost != want.Lost {
		t.Errorf("by the environment's seed: %+v, want %+v", again, want)
	}
	if got.Deliveries != want.Deliveries || got.Copies != want.Copies || got.Lost != want.Lost {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A test that fails prints the broker's seed, and one that passes does not.
func TestBrokerPrintsItsSeed(t *testing.T) {
	for _, fails := range []bool{false, true} {
		var r *recorder
		t.Run(fmt.Sprint(fails), func(t *testing.T) {
			r = recorded(t, func(tb testing.TB) {
				RunBroker(tb, notGuarded(t, (&counted{times: map[string]int{}}).handle), numberedMessages(2), &BrokerOptions{Seed: 99})
				if fails {
					tb.Error("a charge is missing")
				}
			})
		})
		if got := strings.Contains(r.text(), SeedVariable+"=99"); got != fails {
			t.Errorf("failed %v, and the seed was printed %v: %s", fails, got, r.text())
		}
	}
}

// A delay is what the consumer asks for, but not more than 10 milliseconds.
func TestBrokerKeepsDelaysShort(t *testing.T) {
	for retry, delay := range map[consume.RetryPolicy]struct{ least, most time.Duration }{
		{Min: time.Hour, Max: time.Hour}:               {10 * time.Millisecond, 10 * time.Millisecond},
		{Min: time.Millisecond, Max: time.Millisecond}: {time.Millisecond / 2, time.Millisecond}, // it asks for half of it, or more
	} {
		synctest.Test(t, func(t *testing.T) {
			begun, last, retries := time.Now(), time.Now(), 0
			c, err := consume.NewNatural(consume.NaturalSpec[struct{}]{
				Consumer: "billing", Key: consume.ProducerID(), Retry: retry,
				Handle: func(_ context.Context, m *consume.Message, _ struct{}) (bool, error) {
					now := time.Now()
					if d := now.Sub(last); d > delay.most {
						t.Errorf("a delivery came %v after the one before, want at most %v", d, delay.most)
					}
					// Between two deliveries there may be no delay: an answer was lost.
					if d, least := now.Sub(begun), time.Duration(m.Retries)*delay.least; d < least {
						t.Errorf("what was delayed %d times came after %v, want at least %v", m.Retries, d, least)
					}
					if last, retries = now, max(retries, m.Retries); m.Retries < 2 {
						return false, errors.New("the bank is closed")
					}
					return true, nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			RunBroker(t, c, numberedMessages(1), &BrokerOptions{Copies: 1, Workers: &consume.Workers{Concurrency: 1}})
			if retries != 2 {
				t.Errorf("the last delivery had been delayed %d times, want 2", retries)
			}
		})
	}
}

// The answer of a verdict has its outcome, and what a duplicate must get again.
func TestAnswerOfDecision(t *testing.T) {
	why := errors.New("why")
	for want, v := range map[Answer]consume.Decision{
		{Outcome: everonce.Executed, Result: "ack"}:                                        {Disposition: consume.Ack, Outcome: everonce.Executed},
		{Outcome: everonce.Executed, Result: "ack", Err: why}:                              {Disposition: consume.Ack, Outcome: everonce.StoreFailed, Err: why}, // of a wrong consumer
		{Outcome: everonce.Rejected, Result: "set_aside: rejected", Err: why}:              {Disposition: consume.SetAside, Outcome: everonce.Rejected, Death: consume.Death{Reason: consume.Rejected}, Err: why},
		{Outcome: everonce.Invalid, Result: "set_aside: no_key", Err: why}:                 {Disposition: consume.SetAside, Death: consume.Death{Reason: consume.NoKey}, Err: why},
		{Outcome: everonce.InProgress, Result: "defer", RetryAfter: time.Minute, Err: why}: {Disposition: consume.Defer, Outcome: everonce.InProgress, After: time.Minute, Err: why},
	} {
		if got := AnswerOfVerdict(v); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// The suite holds a consumer to the practice list under each policy, a message as each delivery.
func TestRunOnAConsumer(t *testing.T) {
	for mode, policy := range map[Mode]everonce.Policy{Refuse: everonce.Refuse, Reexecute: everonce.Reexecute, Reconcile: everonce.Reconcile} {
		t.Run(policy.String(), func(t *testing.T) {
			Run(t, Subject{
				Mode: mode, Bubble: true, Redelivery: 7 * 24 * time.Hour,
				Capabilities: Capabilities{
					Marks: true, Keys: true, Clients: true, Fingerprints: true, Rejections: true, Concurrency: true,
					EffectFaults: true, StoreFaults: true, Restarts: true, Settlement: mode == Refuse,
				},
				New: func(tb testing.TB, f *Faults) System {
					return shipping{policy, memstore.New(nil), NewGateway(&GatewayOptions{Deduplicates: mode == Reexecute})}.system(tb, f)
				},
			})
		})
	}
}

// shipping is a consumer whose effect is at a gateway.
type shipping struct {
	policy  everonce.Policy
	store   everonce.Store
	gateway *Gateway
}

func (s shipping) system(tb testing.TB, f *Faults) System {
	tb.Helper()
	recv, err := everonce.NewReceiver(FaultStore(s.store, f.Plan()), s.policy, nil)
	if err != nil {
		tb.Fatal(err)
	}
	gateway := s.gateway.With(f.Plan())
	spec := consume.Spec[int]{
		Consumer: "shipping", Key: consume.Composite("Order", consume.Header("tenant"), consume.ProducerID()),
		Handle: func(ctx context.Context, m *consume.Message, amount int) error {
			if amount == 0 {
				return everonce.Permanent("nothing", errors.New("there is nothing to ship"), nil)
			}
			a, _ := everonce.AttemptFrom(ctx)
			_, err := gateway.Call(ctx, a.DownstreamKey("ship"), m.Headers["tenant"]+"/"+m.ID)
			return err
		},
	}
	if s.policy == everonce.Reconcile {
		spec.Reconcile = func(_ context.Context, a everonce.Abandoned) (everonce.Verdict[struct{}], error) {
			if _, ok := s.gateway.Find(a.Downstream("ship")); ok {
				return everonce.Happened(struct{}{}), nil
			}
			return everonce.NotHappened[struct{}](), nil
		}
	}
	c, err := consume.New(recv, spec)
	if err != nil {
		tb.Fatal(err)
	}
	message := func(op Operation) *consume.Message {
		m := &consume.Message{ID: op.Key, Headers: map[string]string{"tenant": op.Client}, Body: fmt.Append(nil, op.Amount)}
		if op.Rejected {
			m.Body = []byte("0")
		}
		return m
	}
	sys := System{
		Deliver: func(ctx context.Context, op Operation) Answer { return AnswerOfVerdict(c.Handle(ctx, message(op))) },
		Effects: func(_ context.Context, op Operation) (int, error) {
			return len(s.gateway.Requested(op.Client + "/" + op.Key)), nil
		},
		Restart: func(f *Faults) System { return s.system(tb, f) },
	}
	if s.policy == everonce.Refuse {
		sys.Settle = func(ctx context.Context, op Operation, happened bool) error {
			key, err := c.KeyOf(message(op))
			if err != nil {
				return err
			}
			verdict := everonce.SettleNotDone
			if happened {
				verdict = everonce.SettleDone
			}
			return recv.Settle(ctx, key, everonce.Settlement{Verdict: verdict})
		}
	}
	return sys
}
