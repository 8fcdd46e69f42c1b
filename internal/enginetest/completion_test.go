package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// brittle is a codec that fails on demand.
type brittle struct{ marshal, unmarshal func() error }

func (c brittle) Name() string { return "brittle" }

func (c brittle) Marshal(v any) ([]byte, error) {
	if c.marshal != nil {
		if err := c.marshal(); err != nil {
			return nil, err
		}
	}
	return json.Marshal(v)
}

func (c brittle) Unmarshal(data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil || c.unmarshal == nil {
		return err
	}
	return c.unmarshal()
}

func fails() error  { return errors.New("no encoding") }
func panics() error { panic("codec") }

// A result that cannot be kept is elided: the first caller has it, a duplicate gets ErrResultElided, and nothing
// runs again (rule 10).
func TestResultsThatCanNotBeKeptAreElided(t *testing.T) {
	for _, c := range []struct {
		name string
		opts everonce.Options
		do   behaviour // of the store's Complete
		why  string
	}{
		{"size", everonce.Options{MaxResult: 11}, nil, "size"},
		{"encoding", everonce.Options{Codec: brittle{marshal: fails}}, nil, "encoding"},
		{"codec panics", everonce.Options{Codec: brittle{marshal: panics}}, nil, "encoding"},
		{"store", everonce.Options{}, refuse(fmt.Errorf("mysql: %w", driver.ErrTooLarge)), "store"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newFaultStore()
			rec := &recorder{}
			c.opts.Observer = rec
			r := newReceiver(t, s, everonce.Reexecute, &c.opts)
			if c.do != nil {
				s.on("Complete", 1, c.do)
			}
			sum := everonce.WithSummary(func(v string) []byte { return []byte(v[:3]) })
			res, _ := do(t, r, keyOf("x"), returns("0123456789", nil), everonce.Executed, nil, sum)
			checkEqual(t, "the first caller's value", res.Value, "0123456789")
			checkEqual(t, "Observation.Elided", rec.only(t).Elided, c.why)
			_, err := do(t, r, keyOf("x"), never(t), everonce.Elided, everonce.ErrResultElided, sum)
			e := asError(t, err)
			checkEqual(t, "Summary", string(e.Summary), "012")
			checkEqual(t, "Kind", e.Kind, driver.ResultElided)
			saved := s.record(t, keyOf("x")).Result
			checkEqual(t, "saved", saved.Kind, driver.ResultElided)
			checkEqual(t, "saved data", saved.Data, []byte(nil))
		})
	}
}

func TestResultOfExactlyTheLargestSizeIsKept(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, &everonce.Options{MaxResult: 12})
	do(t, r, keyOf("x"), returns("0123456789", nil), everonce.Executed, nil)
	res, _ := do(t, r, keyOf("x"), never(t), everonce.Replayed, nil)
	checkEqual(t, "value", res.Value, "0123456789")
}

// A permanent failure that the store refuses by its size loses its detail, for the first caller too,
// and stays a permanent failure.
func TestFailureTooLargeForTheStoreLosesItsDetail(t *testing.T) {
	s := newFaultStore()
	r := newReceiver(t, s, everonce.Refuse, nil)
	s.on("Complete", 1, refuse(driver.ErrTooLarge))
	failure := everonce.Permanent("declined", errors.New("no funds"), []byte("long"))
	_, first := do(t, r, keyOf("x"), returns("", failure), everonce.Rejected, errAny)
	_, again := do(t, r, keyOf("x"), never(t), everonce.Rejected, errAny)
	want := everonce.PermanentError{Code: "declined", Message: "no funds", Truncated: true}
	checkEqual(t, "first", *asPermanent(t, first), want)
	checkEqual(t, "replay", *asPermanent(t, again), want)

	do(t, r, keyOf("y"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		s.on("SaveStep", 2, refuse(driver.ErrTooLarge))
		_, err := everonce.Step(ctx, a, "s", func(context.Context) (int, error) { return 0, failure })
		checkEqual(t, "a step's failure", *asPermanent(t, err), want)
		return "", everonce.NotDone(err)
	}, everonce.Failed, errAny)
	do(t, r, keyOf("y"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		_, err := everonce.Step(ctx, a, "s", func(context.Context) (int, error) { return 0, errors.New("must not run") })
		checkEqual(t, "a step's replayed failure", *asPermanent(t, err), want)
		return "", nil
	}, everonce.Executed, nil)
}

func TestSummaries(t *testing.T) {
	for name, c := range map[string]struct {
		summarize func(string) []byte
		want      string
	}{
		"kept":     {func(v string) []byte { return []byte("of " + v) }, "of v"},
		"largest":  {func(string) []byte { return make([]byte, driver.MaxSummaryLen) }, strings.Repeat("\x00", driver.MaxSummaryLen)},
		"too long": {func(string) []byte { return make([]byte, driver.MaxSummaryLen+1) }, ""},
		"panics":   {func(string) []byte { panic("summary") }, ""},
		"nil":      {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			checkEqual(t, "summary", summaryOf(t, everonce.WithSummary(c.summarize)), c.want)
		})
	}
}

// A result that cannot be decoded is never a reason to run again.
func TestUndecodableNeverRunsAgain(t *testing.T) {
	for _, p := range policies {
		t.Run(p.String(), func(t *testing.T) {
			s := memstore.New(nil)
			r := newReceiver(t, s, p, nil)
			undecodable := func(r *everonce.Receiver, key everonce.Key, opts ...everonce.CallOption) {
				t.Helper()
				do(t, r, key, never(t), everonce.StoreFailed, everonce.ErrUndecodable, append(opts, askNever(t))...)
			}
			do(t, r, keyOf("text"), returns("v", nil), everonce.Executed, nil, askNever(t))
			res, err := everonce.Do(context.Background(), r, keyOf("text"),
				func(context.Context, *everonce.Attempt) (int, error) { return 0, errors.New("must not run") },
				everonce.WithReconcile(func(context.Context, everonce.Abandoned) (v everonce.Verdict[int], _ error) { return v, nil }))
			checkOutcome(t, res, err, everonce.StoreFailed, everonce.ErrUndecodable)

			for name, c := range map[string]brittle{"fails": {unmarshal: fails}, "panics": {unmarshal: panics}} {
				own := newReceiver(t, s, p, &everonce.Options{Codec: c})
				do(t, own, keyOf(name), returns("v", nil), everonce.Executed, nil, askNever(t))
				undecodable(own, keyOf(name))
				undecodable(r, keyOf(name)) // a codec that this receiver does not know
				undecodable(r, keyOf(name), everonce.WithCodec(everonce.Raw()))
			}

			broken := diedIn(t, s, keyOf("failure"), time.Minute)
			_, err = s.Complete(context.Background(), driver.CompleteRequest{
				ID: broken.ID, Token: broken.Token, Nonce: broken.Nonce, Lifetime: everonce.ForWeb(),
				Result: driver.SavedResult{Kind: driver.ResultFailure, Data: []byte("{")},
			})
			checkErr(t, err, nil)
			undecodable(r, keyOf("failure"))

			empty := diedIn(t, s, keyOf("empty"), time.Minute)
			_, err = s.Complete(context.Background(), driver.CompleteRequest{ID: empty.ID, Token: empty.Token, Nonce: empty.Nonce, Lifetime: everonce.ForWeb()})
			checkErr(t, err, nil)
			do(t, r, keyOf("empty"), never(t), everonce.StoreFailed, driver.ErrCorruptRecord, askNever(t))
		})
	}
}

func TestCodecs(t *testing.T) {
	s := memstore.New(nil)
	ctx := context.Background()
	r := newReceiver(t, s, everonce.Refuse, nil)
	raw := newReceiver(t, s, everonce.Refuse, &everonce.Options{Codec: everonce.Raw()})
	bytesWork := func(v []byte) func(context.Context, *everonce.Attempt) ([]byte, error) {
		return func(context.Context, *everonce.Attempt) ([]byte, error) { return v, nil }
	}
	for name, v := range map[string][]byte{"bytes": {0, 0xff, 'a'}, "empty": {}} {
		res, err := everonce.Do(ctx, raw, keyOf(name), bytesWork(v))
		checkOutcome(t, res, err, everonce.Executed, nil)
		checkEqual(t, "saved unchanged", string(recordIn(t, s, keyOf(name)).Result.Data), string(v))
		for range 2 {
			res, err = everonce.Do(ctx, r, keyOf(name), bytesWork([]byte("again"))) // the built-in codec of the record
			checkOutcome(t, res, err, everonce.Replayed, nil)
			checkEqual(t, "replayed", res.Value, v)
			if len(res.Value) > 0 {
				res.Value[0]++ // a separate copy
			}
		}
	}
	// One call's codec: of Do, of a step, and of a duplicate.
	do(t, r, keyOf("call"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		_, err := everonce.Step(ctx, a, "raw", func(context.Context) (string, error) { return "step", nil }, everonce.WithCodec(everonce.Raw()))
		checkErr(t, err, nil)
		_, err = everonce.Step(ctx, a, "json", func(context.Context) (string, error) { return "step", nil }) // the receiver's
		checkErr(t, err, nil)
		return "v", nil
	}, everonce.Executed, nil, everonce.WithCodec(everonce.Raw()))
	rec := recordIn(t, s, keyOf("call"))
	checkEqual(t, "codec", rec.Result.Codec, "raw")
	checkEqual(t, "codec of the steps", rec.Steps[0].Result.Codec+" "+rec.Steps[1].Result.Codec, "raw json")
	res, _ := do(t, r, keyOf("call"), never(t), everonce.Replayed, nil)
	checkEqual(t, "value", res.Value, "v")
	// A value that the raw codec does not take.
	n, err := everonce.Do(ctx, raw, keyOf("int"), func(context.Context, *everonce.Attempt) (int, error) { return 5, nil })
	checkOutcome(t, n, err, everonce.Executed, nil)
	n, err = everonce.Do(ctx, raw, keyOf("int"), func(context.Context, *everonce.Attempt) (int, error) { return 6, nil })
	checkOutcome(t, n, err, everonce.Elided, everonce.ErrResultElided)
	// Nothing to say at all.
	none, err := everonce.Do(ctx, r, keyOf("none"), func(context.Context, *everonce.Attempt) (struct{}, error) { return struct{}{}, nil })
	checkOutcome(t, none, err, everonce.Executed, nil)
	none, err = everonce.Do(ctx, r, keyOf("none"), func(context.Context, *everonce.Attempt) (struct{}, error) {
		return struct{}{}, errors.New("must not run")
	})
	checkOutcome(t, none, err, everonce.Replayed, nil)
}

func TestNotRecordedComesWithTheValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{CompletionTimeout: 10 * time.Second, StoreTimeout: time.Second, Lease: 3 * time.Second})
		s.on("Complete", 0, refuse(errNet))
		start := time.Now()
		res, err := do(t, r, keyOf("x"), returns("receipt", nil), everonce.NotRecorded, everonce.ErrNotRecorded)
		checkErr(t, err, errNet)
		checkEqual(t, "value", res.Value, "receipt")
		checkEqual(t, "Attempt", res.Attempt, 1)
		checkEqual(t, "it was tried for the limit", time.Since(start), 10*time.Second)
		if n := s.count("Complete"); n < 8 || n > 200 {
			t.Errorf("it was tried %d times in 10 s", n)
		}
		// The heartbeat went on until then (rule 5), and then stopped.
		if n := s.count("Renew"); n < 9 {
			t.Errorf("renewed %d times in 10 s with a lease of 3 s", n)
		}
		synctest.Wait() // a renewal was due at the same instant
		before := s.count("Renew")
		time.Sleep(time.Minute)
		checkEqual(t, "renewals afterwards", s.count("Renew")-before, 0)
		s.heal()
		do(t, r, keyOf("x"), never(t), everonce.Unknown, everonce.ErrOutcomeUnknown)

		// A permanent failure that could not be saved is returned, and does not match ErrNotRecorded, which would
		// mean an effect.
		s.on("Complete", 0, refuse(errNet))
		_, err = do(t, r, keyOf("p"), returns("", everonce.Permanent("declined", nil, nil)), everonce.NotRecorded, everonce.ErrStore)
		checkEqual(t, "code", asPermanent(t, err).Code, "declined")
		checkErr(t, err, errNet)
		checkEqual(t, "it says that the effect happened", errors.Is(err, everonce.ErrNotRecorded), false)
	})
}

// A completion is tried until it is stored, past the lease, as long as its token is current (rules 3, 4).
func TestCompletionIsRetriedPastTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lease: time.Second})
		down := time.Now().Add(10 * time.Second)
		outage := func(_ context.Context, call func() error) error {
			if time.Now().Before(down) {
				return errNet
			}
			return call()
		}
		s.on("Complete", 0, outage)
		s.on("Renew", 0, outage)
		res, _ := do(t, r, keyOf("x"), returns("late", nil), everonce.Executed, nil)
		checkEqual(t, "value", res.Value, "late")
		if d := time.Until(down); d > 0 {
			t.Errorf("it ended %v before the outage", d)
		}
		res, _ = do(t, r, keyOf("x"), never(t), everonce.Replayed, nil)
		checkEqual(t, "value", res.Value, "late")
	})
}

func TestCompletionWhoseAnswerWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, nil)
		s.on("Complete", 1, lose(errNet))
		s.on("Complete", 2, hang)
		start := time.Now()
		do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
		checkEqual(t, "completions", s.count("Complete"), 3)
		if d := time.Since(start); d < 5*time.Second || d > 6*time.Second {
			t.Errorf("it took %v: a call that hangs is cut at the store's timeout of 5 s", d)
		}
		do(t, r, keyOf("x"), never(t), everonce.Replayed, nil)
	})
}

// Completion and release do not die with the caller (rule 6).
func TestCompletionOutlivesTheCaller(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		want  everonce.Outcome
		state driver.State
	}{
		"completed": {nil, everonce.Executed, driver.StateCompleted},
		"released":  {everonce.NotDone(errWork), everonce.Failed, driver.StateReleased},
		"abandoned": {errWork, everonce.Unknown, driver.StateAbandoned},
		"rejected":  {everonce.Permanent("declined", nil, nil), everonce.Rejected, driver.StateCompleted},
	} {
		for _, store := range []string{"prompt", "remote"} {
			t.Run(name+"/"+store, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var s everonce.Store = memstore.New(nil)
					if store == "remote" {
						f := newFaultStore()
						s = f
						for _, method := range []string{"Complete", "Release"} {
							f.on(method, 1, refuse(errNet))
							f.on(method, 0, func(ctx context.Context, call func() error) error {
								checkErr(t, ctx.Err(), nil)
								return call()
							})
						}
					}
					r := newReceiver(t, s, everonce.Refuse, nil)
					ctx, cancel := context.WithCancelCause(context.Background())
					gone := errors.New("the client went away")
					res, err := everonce.Do(ctx, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
						cancel(gone)
						<-ctx.Done() // the work's context ends
						checkErr(t, context.Cause(ctx), gone)
						checkEqual(t, "Lost", a.Lost(), false)
						if c.err != nil {
							return "", c.err
						}
						return "v", nil
					})
					checkEqual(t, "outcome", res.Outcome, c.want)
					if c.want == everonce.Executed {
						checkErr(t, err, nil)
					}
					checkEqual(t, "state", recordIn(t, s, keyOf("x")).State, c.state)
				})
			})
		}
	}
}

// A release that fails is returned, with the work's own error.
func TestReleaseThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, nil)
		s.on("Release", 0, refuse(errNet))
		start := time.Now()
		_, err := do(t, r, keyOf("x"), returns("", everonce.NotDone(errWork)), everonce.Failed, errWork)
		checkErr(t, err, everonce.ErrStore)
		checkErr(t, err, errNet)
		checkEqual(t, "it was tried as long as a completion", time.Since(start), 30*time.Second)

		// Abandoning has the same effect as a lapsing lease, so it is tried briefly.
		start = time.Now()
		do(t, r, keyOf("y"), returns("", errWork), everonce.Unknown, everonce.ErrOutcomeUnknown)
		checkEqual(t, "an abandoned one was tried for", time.Since(start), 5*time.Second)
		time.Sleep(time.Minute)
		checkEqual(t, "state", s.record(t, keyOf("y")).State, driver.StateAbandoned)
	})
}

// When the record was lost, what stands in it is the answer, and the loser's own is dropped (rule 11).
func TestLeaseLost(t *testing.T) {
	settle := func(t *testing.T, s everonce.Store, v everonce.Settlement) {
		t.Helper()
		v.Force = true
		checkErr(t, everonce.Settle(context.Background(), s, keyOf("x").RecordID(), v), nil)
	}
	for _, ending := range []error{nil, everonce.Permanent("loser", nil, nil), errWork, everonce.NotDone(errWork)} {
		name := "value"
		if ending != nil {
			name = fmt.Sprintf("%T", ending)
		}
		run := func(t *testing.T, between func(t *testing.T, s *memstore.Store), want everonce.Outcome, wantErr error) (everonce.Result[string], error) {
			t.Helper()
			s := memstore.New(nil)
			rec := &recorder{}
			r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Observer: rec})
			res, err := do(t, r, keyOf("x"), func(context.Context, *everonce.Attempt) (string, error) {
				between(t, s)
				return "of the loser", ending
			}, want, wantErr)
			checkEqual(t, "Observation.LeaseLost", rec.only(t).LeaseLost, true)
			return res, err
		}
		t.Run(name+"/with an answer", func(t *testing.T) {
			res, _ := run(t, func(t *testing.T, s *memstore.Store) {
				settle(t, s, everonce.Settlement{Verdict: everonce.SettleDone, Encoded: []byte(`"of the winner"`)})
			}, everonce.Replayed, nil)
			checkEqual(t, "value", res.Value, "of the winner")
		})
		t.Run(name+"/with a failure", func(t *testing.T) {
			_, err := run(t, func(t *testing.T, s *memstore.Store) {
				settle(t, s, everonce.Settlement{Verdict: everonce.SettleDone, Failure: &everonce.PermanentError{Code: "winner"}})
			}, everonce.Rejected, errAny)
			checkEqual(t, "code", asPermanent(t, err).Code, "winner")
		})
		t.Run(name+"/without an answer", func(t *testing.T) {
			run(t, func(t *testing.T, s *memstore.Store) {
				diedIn(t, s, keyOf("x"), time.Minute, func(req *driver.ClaimRequest) { req.Take = driver.TakeForced })
			}, everonce.LeaseLost, everonce.ErrLeaseLost)
		})
	}
}

// nameless is a codec that has no name.
type nameless struct{ everonce.Codec }

func TestCodecWithoutAName(t *testing.T) {
	s := memstore.New(nil)
	r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Codec: nameless{everonce.JSON()}})
	do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
	checkEqual(t, "codec", recordIn(t, s, keyOf("x")).Result.Codec, "custom")
	res, _ := do(t, r, keyOf("x"), never(t), everonce.Replayed, nil)
	checkEqual(t, "value", res.Value, "v")
	// A receiver whose codec changed reads what the built-in ones wrote.
	do(t, newReceiver(t, s, everonce.Refuse, nil), keyOf("json"), returns("v", nil), everonce.Executed, nil)
	res, _ = do(t, newReceiver(t, s, everonce.Refuse, &everonce.Options{Codec: everonce.Raw()}), keyOf("json"), never(t), everonce.Replayed, nil)
	checkEqual(t, "value", res.Value, "v")
}

// A release whose answer was lost, and after which another came: its repetition does not take that for a loss.
func TestReleaseWhoseAnswerWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, nil)
		s.on("Release", 1, func(_ context.Context, call func() error) error {
			checkErr(t, call(), nil)
			diedIn(t, s.under, keyOf("x"), time.Hour)
			return errNet
		})
		do(t, r, keyOf("x"), returns("", everonce.NotDone(errWork)), everonce.Failed, errWork)
		checkEqual(t, "releases", s.count("Release"), 2)
		checkEqual(t, "the other one's claim", s.record(t, keyOf("x")).Owner, "dead:1")
	})
}
