package enginetest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// recorder is an observer that records its calls.
type recorder struct {
	mu     sync.Mutex
	ops    []everonce.Op
	events []everonce.Observation
	strays int // ends without their start's context
}

type spanKey struct{}

func (r *recorder) Start(ctx context.Context, op everonce.Op) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, op)
	return context.WithValue(ctx, spanKey{}, op)
}

func (r *recorder) End(ctx context.Context, ev everonce.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, ev)
	if ctx.Value(spanKey{}) != ev.Op {
		r.strays++
	}
}

// take returns the events since the last take.
func (r *recorder) take(t testing.TB) []everonce.Observation {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ops) != len(r.events) || r.strays > 0 {
		t.Errorf("%d starts, %d ends, %d of them with another's context", len(r.ops), len(r.events), r.strays)
	}
	events := r.events
	r.ops, r.events = nil, nil
	return events
}

// only returns the one event since the last take.
func (r *recorder) only(t testing.TB) everonce.Observation {
	t.Helper()
	events := r.take(t)
	if len(events) != 1 {
		t.Fatalf("%d events, want one: %+v", len(events), events)
	}
	return events[0]
}

func TestObserverGetsEachOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		rec := &recorder{}
		life := everonce.Lifetime{Retention: time.Hour, Remember: time.Hour}
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{
			Observer: rec, Lifetime: life, MaxResult: 10, CompletionTimeout: time.Second, StoreTimeout: time.Second,
		})
		next := func(want everonce.Outcome, attempt int) everonce.Observation {
			t.Helper()
			ev := rec.only(t)
			checkEqual(t, "Outcome", ev.Outcome, want)
			checkEqual(t, "Kind", ev.Kind, "do")
			checkEqual(t, "Scope", ev.Scope, keyOf("x").Scope)
			checkEqual(t, "Attempt", ev.Attempt, attempt)
			return ev
		}
		do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			op, _ := ctx.Value(spanKey{}).(everonce.Op)
			checkEqual(t, "the work's context is a child of the start's", op.KeyHash, keyOf("x").RecordID().Short())
			time.Sleep(3 * time.Second)
			return "v", nil
		}, everonce.Executed, nil)
		ev := next(everonce.Executed, 1)
		checkEqual(t, "Duration", ev.Duration, 3*time.Second)
		checkEqual(t, "KeyHash", ev.KeyHash, keyOf("x").RecordID().Short())
		checkErr(t, ev.Err, nil)

		do(t, r, keyOf("x"), never(t), everonce.Replayed, nil)
		next(everonce.Replayed, 0)
		do(t, r, keyOf("x"), never(t), everonce.Replayed, nil, everonce.FingerprintOf(1))
		checkEqual(t, "AlgChanged with no saved fingerprint", next(everonce.Replayed, 0).AlgChanged, false)

		do(t, r, keyOf("alg"), returns("v", nil), everonce.Executed, nil, everonce.FingerprintOf(1))
		rec.take(t)
		do(t, r, keyOf("alg"), never(t), everonce.Replayed, nil, everonce.FingerprintJSON(1))
		checkEqual(t, "AlgChanged", next(everonce.Replayed, 0).AlgChanged, true)
		do(t, r, keyOf("alg"), never(t), everonce.Mismatch, everonce.ErrMismatch, everonce.FingerprintOf(2))
		ev = next(everonce.Mismatch, 0)
		checkErr(t, ev.Err, everonce.ErrMismatch)
		checkEqual(t, "AlgChanged of a mismatch", ev.AlgChanged, false)

		do(t, r, keyOf("p"), returns("", everonce.Permanent("declined", nil, nil)), everonce.Rejected, errAny)
		checkEqual(t, "code", asPermanent(t, next(everonce.Rejected, 1).Err).Code, "declined")
		do(t, r, keyOf("p"), never(t), everonce.Rejected, errAny)
		next(everonce.Rejected, 0)

		do(t, r, keyOf("f"), returns("", everonce.NotDone(errWork)), everonce.Failed, errWork)
		checkErr(t, next(everonce.Failed, 1).Err, errWork)
		do(t, r, keyOf("f"), returns("", errWork), everonce.Unknown, errWork)
		checkErr(t, next(everonce.Unknown, 2).Err, everonce.ErrOutcomeUnknown)
		do(t, r, keyOf("f"), never(t), everonce.Unknown, everonce.ErrOutcomeUnknown)
		next(everonce.Unknown, 0)

		do(t, r, keyOf("big"), returns("more than ten bytes", nil), everonce.Executed, nil)
		checkEqual(t, "Elided", next(everonce.Executed, 1).Elided, "size")
		do(t, r, keyOf("big"), never(t), everonce.Elided, everonce.ErrResultElided)
		next(everonce.Elided, 0)

		diedIn(t, s, keyOf("busy"), time.Minute)
		do(t, r, keyOf("busy"), never(t), everonce.InProgress, everonce.ErrInProgress, everonce.WithWait(5*time.Second))
		checkEqual(t, "Waited", next(everonce.InProgress, 0).Waited, 5*time.Second)
		diedIn(t, s, keyOf("busy alg"), time.Minute, func(req *driver.ClaimRequest) { req.Fingerprint = driver.Fingerprint(everonce.FingerprintOf(1)) })
		do(t, r, keyOf("busy alg"), never(t), everonce.InProgress, everonce.ErrInProgress, everonce.FingerprintJSON(1))
		checkEqual(t, "AlgChanged of a refusal", next(everonce.InProgress, 0).AlgChanged, true)

		s.on("Claim", 0, refuse(errNet))
		do(t, r, keyOf("down"), never(t), everonce.StoreFailed, errNet)
		checkEqual(t, "Retries of a claim", next(everonce.StoreFailed, 0).Retries > 0, true)
		s.heal()

		s.on("Complete", 0, refuse(errNet))
		do(t, r, keyOf("unsaved"), returns("v", nil), everonce.NotRecorded, errNet)
		checkEqual(t, "Retries of a completion", next(everonce.NotRecorded, 1).Retries > 1, true)
		s.heal()

		do(t, r, keyOf("outer"), func(ctx context.Context, _ *everonce.Attempt) (string, error) {
			_, err := everonce.Do(ctx, r, keyOf("outer"), never(t))
			checkErr(t, err, everonce.ErrNested)
			return "", nil
		}, everonce.Executed, nil)
		nested := rec.take(t)
		checkEqual(t, "the nested call's outcome", nested[0].Outcome, everonce.Invalid)
		checkEqual(t, "the outer call's outcome", nested[1].Outcome, everonce.Executed)

		time.Sleep(life.Retention)
		do(t, r, keyOf("x"), never(t), everonce.Expired, everonce.ErrExpired)
		next(everonce.Expired, 0)
	})
}

func TestObserverGetsHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		rec := &recorder{}
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Observer: rec, Lease: 12 * time.Second})
		s.on("Renew", 1, refuse(errNet))
		s.on("Renew", 2, refuse(errNet))
		do(t, r, keyOf("x"), func(context.Context, *everonce.Attempt) (string, error) {
			time.Sleep(time.Minute)
			return "v", nil
		}, everonce.Executed, nil)
		ev := rec.only(t)
		checkEqual(t, "RenewFailures", ev.RenewFailures, 2)
		var buf bytes.Buffer
		everonce.LogObserver(slog.New(slog.NewTextHandler(&buf, nil))).End(context.Background(), ev)
		if got := buf.String(); !strings.Contains(got, "level=WARN") || !strings.Contains(got, "renew_failures=2") {
			t.Errorf("the line is %q", got)
		}
	})
}

func TestObserverGetsStepsAndSettlements(t *testing.T) {
	s := memstore.New(nil)
	rec := &recorder{}
	r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Observer: rec})
	key := keyOf("x")
	do(t, r, key, func(ctx context.Context, a *everonce.Attempt) (string, error) {
		_, err := everonce.Step(ctx, a, "old", func(ctx context.Context) (int, error) {
			op, _ := ctx.Value(spanKey{}).(everonce.Op)
			checkEqual(t, "a step's context is a child of its start's", op.Step, "old")
			return 1, nil
		})
		checkErr(t, err, nil)
		_, err = everonce.Step(ctx, a, "bad", func(context.Context) (int, error) { return 0, errWork })
		checkErr(t, err, errWork)
		return "", everonce.NotDone(err)
	}, everonce.Failed, errWork)
	events := rec.take(t)
	if len(events) != 3 {
		t.Fatalf("%d events, want 3: %+v", len(events), events)
	}
	for i, want := range []everonce.Observation{
		{Op: everonce.Op{Kind: "step", Step: "old"}, Outcome: everonce.Executed},
		{Op: everonce.Op{Kind: "step", Step: "bad"}, Outcome: everonce.Unknown},
		{Op: everonce.Op{Kind: "do"}, Outcome: everonce.Failed},
	} {
		ev := events[i]
		checkEqual(t, "Kind", ev.Kind, want.Kind)
		checkEqual(t, "Step", ev.Step, want.Step)
		checkEqual(t, "Outcome", ev.Outcome, want.Outcome)
		checkEqual(t, "Attempt", ev.Attempt, 1)
		checkEqual(t, "KeyHash", ev.KeyHash, key.RecordID().Short())
	}

	do(t, r, key, func(ctx context.Context, a *everonce.Attempt) (string, error) {
		_, err := everonce.Step(ctx, a, "bad", func(context.Context) (int, error) { return 0, nil })
		checkErr(t, err, everonce.ErrOutcomeUnknown)
		return "", err
	}, everonce.Unknown, everonce.ErrOutcomeUnknown)
	checkEqual(t, "outcome of a refused step", rec.take(t)[0].Outcome, everonce.Unknown)

	checkErr(t, r.Settle(context.Background(), key, everonce.Settlement{Verdict: everonce.SettleDone, Step: "bad", Value: 2}), nil)
	ev := rec.only(t)
	checkEqual(t, "settlement", ev.Kind, "settle")
	checkEqual(t, "its step", ev.Step, "bad")

	do(t, r, key, func(ctx context.Context, a *everonce.Attempt) (string, error) {
		v, err := everonce.Step(ctx, a, "bad", func(context.Context) (int, error) { return 0, errors.New("must not run") })
		checkErr(t, err, nil)
		checkEqual(t, "the settled value", v, 2)
		return "", nil
	}, everonce.Executed, nil)
	events = rec.take(t)
	checkEqual(t, "outcome of a replayed step", events[0].Outcome, everonce.Replayed)
	checkEqual(t, "UnusedSteps", events[1].UnusedSteps, []string{"old"})

	err := r.Settle(context.Background(), key, everonce.Settlement{Verdict: everonce.SettleDone})
	checkErr(t, err, everonce.ErrNotUnknown)
	if ev := rec.only(t); ev.Outcome == everonce.Executed || ev.Err == nil {
		t.Errorf("a refused settlement: %+v", ev)
	}
}

// A step that unwinds ends its observation too.
func TestObserverGetsAStepThatPanics(t *testing.T) {
	rec := &recorder{}
	s := newMapStore()
	r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Observer: rec})
	x := newTxReceiver(t, s, nil)
	for name, step := range map[string]func(context.Context, *everonce.Attempt){
		"Step": func(ctx context.Context, a *everonce.Attempt) {
			_, _ = everonce.Step(ctx, a, "s", func(context.Context) (int, error) { panic("boom") })
		},
		"StepTx": func(ctx context.Context, a *everonce.Attempt) {
			_, _ = everonce.StepTx(ctx, a, x, "s", func(context.Context, *mapTx) (int, error) { panic("boom") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			func() {
				defer func() { checkEqual(t, "recovered", recover(), any("boom")) }()
				_, _ = everonce.Do(context.Background(), r, keyOf(name), func(ctx context.Context, a *everonce.Attempt) (string, error) {
					step(ctx, a)
					return "", nil
				})
			}()
			events := rec.take(t)
			if len(events) != 2 {
				t.Fatalf("%d events, want 2: %+v", len(events), events)
			}
			checkEqual(t, "Step", events[0].Step, "s")
			checkErr(t, events[0].Err, errAny)
			want := everonce.Unknown
			if name == "StepTx" { // its transaction was rolled back
				want = everonce.Failed
			}
			checkEqual(t, "Outcome", events[0].Outcome, want)
		})
	}
}

// Concurrent steps and the observation of the operation do not race: the race detector looks on.
func TestObserverOfConcurrentSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		rec := &recorder{}
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Observer: rec})
		for n := range 12 {
			if n%3 > 0 {
				s.on("SaveStep", n+1, refuse(errNet))
			}
		}
		do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			var wg sync.WaitGroup
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				wg.Go(func() {
					_, err := everonce.Step(ctx, a, name, func(context.Context) (string, error) { return name, nil })
					checkErr(t, err, nil)
				})
			}
			wg.Wait()
			return "", nil
		}, everonce.Executed, nil)
		events := rec.take(t)
		checkEqual(t, "events", len(events), 6)
		retries := 0
		for _, ev := range events {
			retries += ev.Retries
		}
		checkEqual(t, "Retries", retries, 8)
		checkEqual(t, "steps", len(s.record(t, keyOf("x")).Steps), 5)
	})
}

func TestLogObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buf bytes.Buffer
		log := slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug}))
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{
			Observer: everonce.LogObserver(log), CompletionTimeout: time.Second, StoreTimeout: time.Second, MaxResult: 10,
		})
		const raw = "very-secret-idempotency-key"
		key := func(suffix string) everonce.Key { return keyOf(raw + suffix) }
		line := func(key everonce.Key, want ...string) {
			t.Helper()
			got := buf.String()
			buf.Reset()
			for _, w := range append(want, "key="+key.RecordID().Short()) {
				if !strings.Contains(got, w) {
					t.Errorf("%q is not in the line %q", w, got)
				}
			}
			if strings.Contains(got, raw) {
				t.Errorf("a raw key is in the line %q", got)
			}
		}
		do(t, r, key("1"), returns("v", nil), everonce.Executed, nil, everonce.FingerprintOf(1))
		line(key("1"), "level=DEBUG", `msg="everonce do"`, "outcome=executed", "attempt=1", `scope="tenant-1/POST %2Fcharges"`, "took=0s")
		do(t, r, key("1"), never(t), everonce.Replayed, nil)
		line(key("1"), "level=DEBUG", "outcome=replayed")
		do(t, r, key("1"), never(t), everonce.Replayed, nil, everonce.FingerprintJSON(1))
		line(key("1"), "level=WARN", "fingerprint_alg_changed=true")
		do(t, r, key("1"), never(t), everonce.Mismatch, everonce.ErrMismatch, everonce.FingerprintOf(2))
		line(key("1"), "level=WARN", "outcome=mismatch", "error=")
		do(t, r, key("2"), returns("", errWork), everonce.Unknown, errWork)
		line(key("2"), "level=WARN", "outcome=unknown", "gateway did not answer")
		do(t, r, key("3"), returns("more than ten bytes", nil), everonce.Executed, nil)
		line(key("3"), "level=WARN", "elided=size")
		s.on("Complete", 0, refuse(errNet))
		do(t, r, key("4"), returns("v", nil), everonce.NotRecorded, errNet)
		line(key("4"), "level=ERROR", "outcome=not_recorded", "retries=")
		s.heal()
		diedIn(t, s, key("5"), time.Minute)
		do(t, r, key("5"), never(t), everonce.InProgress, everonce.ErrInProgress, everonce.WithWait(2*time.Second))
		line(key("5"), "level=DEBUG", "waited=2s")
		do(t, r, key("6"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			_, err := everonce.Step(ctx, a, "mail", func(context.Context) (int, error) { return 0, errWork })
			line(key("6"), "level=WARN", `msg="everonce step"`, "step=mail", "outcome=unknown")
			return "", everonce.NotDone(err)
		}, everonce.Failed, errWork)
		line(key("6"), "level=DEBUG", "outcome=failed")
		do(t, r, key("6"), returns("v", nil), everonce.Executed, nil)
		line(key("6"), "level=WARN", "unused_steps=[mail]")
		s.on("Claim", 0, refuse(errNet))
		do(t, r, key("7"), never(t), everonce.StoreFailed, errNet)
		line(key("7"), "level=WARN", "outcome=store_failed")
		s.heal()
		do(t, r, key("8"), func(_ context.Context, a *everonce.Attempt) (string, error) {
			err := r.Settle(context.Background(), a.Key(), everonce.Settlement{Verdict: everonce.SettleNotDone, Force: true})
			checkErr(t, err, nil)
			buf.Reset()
			return "dropped", nil
		}, everonce.LeaseLost, everonce.ErrLeaseLost)
		line(key("8"), "level=WARN", "outcome=lease_lost", "lease_lost=true")
		do(t, r, key("9"), func(_ context.Context, a *everonce.Attempt) (string, error) {
			err := r.Settle(context.Background(), a.Key(), everonce.Settlement{Verdict: everonce.SettleDone, Value: "v", Force: true})
			checkErr(t, err, nil)
			buf.Reset()
			return "dropped", nil
		}, everonce.Replayed, nil)
		line(key("9"), "level=WARN", "outcome=replayed", "lease_lost=true")
		do(t, r, key("10"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			res, err := everonce.Do(ctx, r, a.Key(), never(t))
			checkOutcome(t, res, err, everonce.Invalid, everonce.ErrNested)
			line(key("10"), "level=WARN", "outcome=invalid")
			return "v", nil
		}, everonce.Executed, nil)
		buf.Reset()
		err := r.Settle(context.Background(), key("2"), everonce.Settlement{Verdict: everonce.SettleNotDone})
		checkErr(t, err, nil)
		line(key("2"), `msg="everonce settle"`)
	})
	// Below its level nothing is formatted.
	var buf bytes.Buffer
	quiet := slog.New(slog.NewTextHandler(&buf, nil))
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, &everonce.Options{Observer: everonce.LogObserver(quiet)})
	do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
	checkEqual(t, "lines at the level of info", buf.String(), "")
}
