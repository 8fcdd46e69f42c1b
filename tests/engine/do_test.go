package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

func TestDoExecutesOnceAndReplays(t *testing.T) {
	for _, p := range policies {
		t.Run(p.String(), func(t *testing.T) {
			s := newFaultStore()
			r := newReceiver(t, s, p, nil)
			res, _ := do(t, r, keyOf("x"), returns("receipt", nil), everonce.Executed, nil, askNever(t))
			checkEqual(t, "first", res, everonce.Result[string]{Value: "receipt", Outcome: everonce.Executed, Attempt: 1})
			for range 3 {
				res, _ = do(t, r, keyOf("x"), never(t), everonce.Replayed, nil, askNever(t))
				checkEqual(t, "replay", res, everonce.Result[string]{Value: "receipt", Outcome: everonce.Replayed})
			}
			do(t, r, keyOf("y"), returns("another", nil), everonce.Executed, nil, askNever(t))
			rec := s.record(t, keyOf("x"))
			checkEqual(t, "state", rec.State, driver.StateCompleted)
			checkEqual(t, "Name", rec.Name, "x")
			checkEqual(t, "Scope", rec.Scope, keyOf("x").Scope)
		})
	}
}

func TestDoReplaysAcrossReceivers(t *testing.T) {
	s := memstore.New(nil)
	type receipt struct {
		ID    string
		Cents int64
		Lines []string
	}
	want := receipt{"r-1", 1<<53 + 1, []string{"a", "b"}}
	key := keyOf("x")
	first, err := everonce.Do(context.Background(), newReceiver(t, s, everonce.Refuse, nil), key,
		func(context.Context, *everonce.Attempt) (receipt, error) { return want, nil })
	checkOutcome(t, first, err, everonce.Executed, nil)
	second, err := everonce.Do(context.Background(), newReceiver(t, s, everonce.Reexecute, nil), key,
		func(context.Context, *everonce.Attempt) (receipt, error) {
			return receipt{}, errors.New("must not run")
		})
	checkOutcome(t, second, err, everonce.Replayed, nil)
	checkEqual(t, "first", first.Value, want)
	checkEqual(t, "second", second.Value, want)
	second.Value.Lines[0] = "changed"
	third, err := everonce.Lookup[receipt](context.Background(), newReceiver(t, s, everonce.Reexecute, nil), key)
	checkOutcome(t, third, err, everonce.Replayed, nil)
	checkEqual(t, "third, after the second's copy was changed", third.Value, want)
}

// A result is replayed inside its own scope only (rule 9).
func TestDoKeepsScopesApart(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	do(t, r, everonce.Key{Scope: "tenant-1", ID: "x"}, returns("of 1", nil), everonce.Executed, nil)
	res, _ := do(t, r, everonce.Key{Scope: "tenant-2", ID: "x"}, returns("of 2", nil), everonce.Executed, nil)
	checkEqual(t, "value", res.Value, "of 2")
}

func TestDoRefusesInvalidKeys(t *testing.T) {
	s := newFaultStore()
	r := newReceiver(t, s, everonce.Refuse, nil)
	for _, key := range []everonce.Key{{}, {Scope: "s"}, {ID: "x"}, keyOf("a\x00"), keyOf(strings.Repeat("x", 513))} {
		do(t, r, key, never(t), everonce.Invalid, everonce.ErrInvalidKey)
	}
	checkEqual(t, "calls of the store", len(s.calls), 0)
}

// ending is how the work of an attempt ends, and what follows under each policy.
var endings = []struct {
	name string
	err  error
	opts *everonce.Options

	outcome map[everonce.Policy]everonce.Outcome
	class   string
}{
	{"an unmarked error", errWork, nil, unlessReexecuted(everonce.Unknown), "error"},
	{"a deadline", fmt.Errorf("call: %w", context.DeadlineExceeded), nil, unlessReexecuted(everonce.Unknown), "deadline"},
	{"a cancellation", context.Canceled, nil, unlessReexecuted(everonce.Unknown), "canceled"},
	{"NotDone", everonce.NotDone(errWork), nil, always(everonce.Failed), "not_done"},
	{"NotDone, wrapped", fmt.Errorf("charge: %w", everonce.NotDone(errWork)), nil, always(everonce.Failed), "not_done"},
	{"classified as NotDone", errWork, classify(everonce.NotDone), always(everonce.Failed), "error"},
	{"classified as nothing", errWork, classify(func(error) error { return nil }), unlessReexecuted(everonce.Unknown), "error"},
	{"classified as itself", errWork, classify(func(err error) error { return err }), unlessReexecuted(everonce.Unknown), "error"},
	{"Permanent", everonce.Permanent("declined", errWork, nil), nil, always(everonce.Rejected), ""},
	{
		"classified as Permanent", errWork,
		classify(func(err error) error { return everonce.Permanent("classified", err, nil) }), always(everonce.Rejected), "",
	},
	{"a mark wins over the classifier", everonce.NotDone(errWork), classify(func(error) error { panic("asked") }), always(everonce.Failed), "not_done"},
	{"all effects in steps, none open", errWork, &everonce.Options{EffectsInSteps: true}, always(everonce.Failed), "error"},
}

func always(o everonce.Outcome) map[everonce.Policy]everonce.Outcome {
	return map[everonce.Policy]everonce.Outcome{everonce.Reexecute: o, everonce.Refuse: o, everonce.Reconcile: o}
}

func unlessReexecuted(o everonce.Outcome) map[everonce.Policy]everonce.Outcome {
	m := always(o)
	m[everonce.Reexecute] = everonce.Failed
	return m
}

func classify(f func(error) error) *everonce.Options { return &everonce.Options{Classify: f} }

func TestEndingsUnderEachPolicy(t *testing.T) {
	for _, c := range endings {
		for _, p := range policies {
			t.Run(c.name+"/"+p.String(), func(t *testing.T) {
				s := memstore.New(nil)
				r := newReceiver(t, s, p, c.opts)
				key := keyOf("x")
				want := c.outcome[p]
				wantErr := c.err
				switch want {
				case everonce.Unknown:
					wantErr = everonce.ErrOutcomeUnknown
				case everonce.Rejected:
					wantErr = errAny
				}
				res, err := do(t, r, key, returns("dropped", c.err), want, wantErr, askNever(t))
				checkEqual(t, "Attempt", res.Attempt, 1)
				rec := recordIn(t, s, key)
				checkEqual(t, "class", rec.LastError, c.class)
				switch want {
				case everonce.Failed:
					checkEqual(t, "state", rec.State, driver.StateReleased)
					if err != c.err { //nolint:errorlint // it must be the work's own
						t.Errorf("error %v is not the work's own", err)
					}
					res, _ = do(t, r, key, returns("second", nil), everonce.Executed, nil, askNever(t))
					checkEqual(t, "second", res, everonce.Result[string]{Value: "second", Outcome: everonce.Executed, Attempt: 2})
				case everonce.Unknown:
					checkEqual(t, "state", rec.State, driver.StateAbandoned)
					checkEqual(t, "never purged", rec.PurgeAt, time.Time{})
					checkErr(t, err, c.err) // the cause is wrapped
					if p == everonce.Refuse {
						do(t, r, key, never(t), everonce.Unknown, everonce.ErrOutcomeUnknown)
					}
				case everonce.Rejected:
					checkEqual(t, "state", rec.State, driver.StateCompleted)
					res, again := do(t, r, key, never(t), everonce.Rejected, errAny, askNever(t))
					checkEqual(t, "the replayed failure", *asPermanent(t, again), *asPermanent(t, err))
					checkEqual(t, "the replay's attempt", res.Attempt, 0)
				}
			})
		}
	}
}

func TestPanicAndGoexitUnwindUnderEachPolicy(t *testing.T) {
	for _, p := range policies {
		for _, inSteps := range []bool{false, true} {
			for name, unwind := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
				t.Run(fmt.Sprintf("%v/in steps %v/%s", p, inSteps, name), func(t *testing.T) {
					s := memstore.New(nil)
					events := &recorder{}
					r := newReceiver(t, s, p, &everonce.Options{EffectsInSteps: inSteps, Observer: events})
					var panicked any
					done := make(chan struct{})
					go func() {
						defer close(done)
						defer func() { panicked = recover() }()
						_, err := everonce.Do(context.Background(), r, keyOf("x"), func(context.Context, *everonce.Attempt) (string, error) {
							unwind()
							return "", nil
						}, askNever(t))
						t.Errorf("Do returned, with %v", err)
					}()
					<-done
					if (panicked == "boom") != (name == "panic") {
						t.Errorf("recovered %v", panicked)
					}
					want, outcome := driver.StateAbandoned, everonce.Unknown
					if p == everonce.Reexecute || inSteps {
						want, outcome = driver.StateReleased, everonce.Failed
					}
					rec := recordIn(t, s, keyOf("x"))
					checkEqual(t, "state", rec.State, want)
					checkEqual(t, "class", rec.LastError, "panic")
					ev := events.only(t)
					checkEqual(t, "event's outcome", ev.Outcome, outcome)
					checkErr(t, ev.Err, errAny)
				})
			}
		}
	}
}

func TestInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t, memstore.New(nil), everonce.Refuse, &everonce.Options{Lease: 9 * time.Second, RetryAfter: 2 * time.Second})
		release, wg := running(t, r)
		_, err := do(t, r, keyOf("x"), never(t), everonce.InProgress, everonce.ErrInProgress)
		checkEqual(t, "RetryAfter", asError(t, err).RetryAfter, 2*time.Second)
		// Another process, whose lease ends sooner than that.
		close(release)
		wg.Wait()
	})
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{RetryAfter: time.Minute})
		diedIn(t, s, keyOf("x"), 5*time.Second)
		time.Sleep(2 * time.Second)
		_, err := do(t, r, keyOf("x"), never(t), everonce.InProgress, everonce.ErrInProgress)
		checkEqual(t, "RetryAfter is the rest of the lease", asError(t, err).RetryAfter, 3*time.Second)
	})
}

// blocks is work that returns when the channel is closed.
func blocks(release <-chan struct{}, v string) work {
	return func(context.Context, *everonce.Attempt) (string, error) {
		<-release
		return v, nil
	}
}

// running has an attempt of r, in a bubble of synctest, hold the key "x" until release is closed; its result is "v".
func running(t *testing.T, r *everonce.Receiver) (release chan struct{}, wg *sync.WaitGroup) {
	release = make(chan struct{})
	return release, started(t, r, blocks(release, "v"), everonce.Executed, nil)
}

// runningInVain is running, but in the end nothing was done.
func runningInVain(t *testing.T, r *everonce.Receiver) (release chan struct{}, wg *sync.WaitGroup) {
	release = make(chan struct{})
	return release, started(t, r, func(context.Context, *everonce.Attempt) (string, error) {
		<-release
		return "", everonce.NotDone(errWork)
	}, everonce.Failed, errWork)
}

func started(t *testing.T, r *everonce.Receiver, w work, want everonce.Outcome, wantErr error) *sync.WaitGroup {
	wg := new(sync.WaitGroup)
	wg.Go(func() { do(t, r, keyOf("x"), w, want, wantErr) })
	synctest.Wait()
	return wg
}

// diedIn claims as a process does that dies in its work.
func diedIn(t testing.TB, s everonce.Store, key everonce.Key, lease time.Duration, opts ...func(*driver.ClaimRequest)) driver.Record {
	t.Helper()
	req := driver.ClaimRequest{
		ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Owner: "dead:1", Lease: lease,
		Lifetime: everonce.ForWeb(), Take: driver.TakeAbandoned,
	}
	for _, o := range opts {
		o(&req)
	}
	res, err := s.Claim(context.Background(), req)
	if err != nil || res.Decision != driver.DecideClaimed {
		t.Fatalf("Claim: %v, %v", res.Decision, err)
	}
	return res.Record
}

func TestMismatch(t *testing.T) {
	s := newFaultStore()
	r := newReceiver(t, s, everonce.Refuse, nil)
	a, b := everonce.FingerprintOf(5, "EUR"), everonce.FingerprintOf(6, "EUR")
	do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil, a)
	before := s.record(t, keyOf("x"))
	do(t, r, keyOf("x"), never(t), everonce.Mismatch, everonce.ErrMismatch, b)
	checkEqual(t, "the record", s.record(t, keyOf("x")), before)
	do(t, r, keyOf("x"), never(t), everonce.Replayed, nil, a)
	do(t, r, keyOf("x"), never(t), everonce.Replayed, nil) // without a fingerprint nothing is compared
	do(t, r, keyOf("x"), never(t), everonce.Replayed, nil, everonce.Fingerprint{Alg: "parts/2"})

	// It is checked before everything else: the state of the record does not matter (rule 8).
	do(t, r, keyOf("failed"), returns("", everonce.NotDone(errWork)), everonce.Failed, errWork, a)
	do(t, r, keyOf("failed"), never(t), everonce.Mismatch, everonce.ErrMismatch, b)
	do(t, r, keyOf("unknown"), returns("", errWork), everonce.Unknown, errWork, a)
	do(t, r, keyOf("unknown"), never(t), everonce.Mismatch, everonce.ErrMismatch, b)
	do(t, r, keyOf("running"), func(context.Context, *everonce.Attempt) (string, error) {
		do(t, r, keyOf("running"), never(t), everonce.Mismatch, everonce.ErrMismatch, b, everonce.WithWait(time.Hour))
		return "", nil
	}, everonce.Executed, nil, a)
	// The same, by the store's quick way of answering.
	quick := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	do(t, quick, keyOf("x"), returns("v", nil), everonce.Executed, nil, a)
	do(t, quick, keyOf("x"), never(t), everonce.Mismatch, everonce.ErrMismatch, b)
	do(t, quick, keyOf("x"), never(t), everonce.Replayed, nil, a)
}

func TestExpiredTellsTheSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life := everonce.Lifetime{Retention: time.Hour, Remember: time.Hour}
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lifetime: life})
		sum := everonce.WithSummary(func(v string) []byte { return []byte("of " + v) })
		do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil, sum)
		do(t, r, keyOf("p"), returns("", everonce.Permanent("declined", nil, nil)), everonce.Rejected, errAny)
		time.Sleep(life.Retention - time.Nanosecond)
		do(t, r, keyOf("x"), never(t), everonce.Replayed, nil)
		time.Sleep(time.Nanosecond)
		for range 2 { // before and after the result was purged
			_, err := do(t, r, keyOf("x"), never(t), everonce.Expired, everonce.ErrExpired)
			e := asError(t, err)
			checkEqual(t, "Summary", string(e.Summary), "of v")
			checkEqual(t, "Kind", e.Kind, driver.ResultValue)
			_, err = do(t, r, keyOf("p"), never(t), everonce.Expired, everonce.ErrExpired)
			e = asError(t, err)
			checkEqual(t, "Summary of a failure", string(e.Summary), "declined")
			checkEqual(t, "Kind of a failure", e.Kind, driver.ResultFailure)
			_, err = s.Purge(context.Background(), driver.PurgeRequest{})
			checkErr(t, err, nil)
		}
		time.Sleep(life.Remember)
		res, _ := do(t, r, keyOf("x"), returns("new", nil), everonce.Executed, nil)
		checkEqual(t, "value of the new operation", res.Value, "new")
	})
}

func TestLifetimeOfOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		r := newReceiver(t, s, everonce.Refuse, nil)
		do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil, everonce.WithLifetime(everonce.ForFinance()))
		rec := recordIn(t, s, keyOf("x"))
		checkEqual(t, "retention", rec.ResultUntil.Sub(rec.CompletedAt), everonce.ForFinance().Retention)
		checkEqual(t, "total", rec.PurgeAt.Sub(rec.CompletedAt), everonce.ForFinance().Total())
	})
}

// Under Reexecute unsettled records expire; under the other policies they never do (rule 13).
func TestUnsettledRecordsExpireUnderReexecuteOnly(t *testing.T) {
	for _, p := range policies {
		for name, w := range map[string]work{
			"live":    nil,
			"unknown": returns("", errWork),
			"failed":  returns("", everonce.NotDone(errWork)),
		} {
			t.Run(p.String()+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := memstore.New(nil)
					life := everonce.Lifetime{Retention: time.Hour, Remember: time.Hour}
					r := newReceiver(t, s, p, &everonce.Options{Lifetime: life})
					if w != nil {
						do(t, r, keyOf("x"), w, outcomeOf(p, name), errWork, askNever(t))
					} else {
						do(t, r, keyOf("x"), func(context.Context, *everonce.Attempt) (string, error) {
							rec := recordIn(t, s, keyOf("x"))
							checkEqual(t, "a live record expires", !rec.PurgeAt.IsZero(), p == everonce.Reexecute)
							return "", nil
						}, everonce.Executed, nil, askNever(t))
						return
					}
					rec := recordIn(t, s, keyOf("x"))
					expires := p == everonce.Reexecute || name == "failed"
					checkEqual(t, "expires", !rec.PurgeAt.IsZero(), expires)
					time.Sleep(life.Total())
					_, err := s.Purge(context.Background(), driver.PurgeRequest{})
					checkErr(t, err, nil)
					checkEqual(t, "removed", recordIn(t, s, keyOf("x")).State == 0, expires)
				})
			})
		}
	}
}

func outcomeOf(p everonce.Policy, ending string) everonce.Outcome {
	if p == everonce.Reexecute || ending == "failed" {
		return everonce.Failed
	}
	return everonce.Unknown
}

// recaller is a store that answers for finished operations from next to nothing, and counts its claims.
type recaller struct {
	*memstore.Store
	claims int
}

func (s *recaller) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	s.claims++
	return s.Store.Claim(ctx, req)
}

// A store that can recall is not asked for a claim that could only be refused.
func TestFinishedOperationsAreRecalled(t *testing.T) {
	s := &recaller{Store: memstore.New(nil)}
	rec := &recorder{}
	r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Observer: rec})
	f := everonce.FingerprintOf(1)
	do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil, f)
	do(t, r, keyOf("p"), returns("", everonce.Permanent("declined", nil, nil)), everonce.Rejected, errAny)
	checkEqual(t, "claims", s.claims, 2)
	rec.take(t)
	for _, o := range []everonce.CallOption{f, everonce.WithCodec(everonce.JSON()), everonce.WithWait(time.Hour)} {
		res, _ := do(t, r, keyOf("x"), never(t), everonce.Replayed, nil, o)
		checkEqual(t, "result", res, everonce.Result[string]{Value: "v", Outcome: everonce.Replayed})
		checkEqual(t, "AlgChanged", rec.only(t).AlgChanged, false)
	}
	do(t, r, keyOf("x"), never(t), everonce.Replayed, nil, everonce.FingerprintJSON(1))
	checkEqual(t, "AlgChanged", rec.only(t).AlgChanged, true)
	do(t, r, keyOf("p"), never(t), everonce.Rejected, errAny)
	checkEqual(t, "claims for the replays", s.claims, 2)
	do(t, r, keyOf("x"), never(t), everonce.Mismatch, everonce.ErrMismatch, everonce.FingerprintOf(2)) // the claim decides
	checkEqual(t, "claims with a mismatch", s.claims, 3)

	// To who is gone already nothing is answered.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	res, err := everonce.Do(ctx, r, keyOf("x"), never(t))
	checkOutcome(t, res, err, everonce.Failed, context.Canceled)
}
