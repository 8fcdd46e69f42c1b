package enginetest

import (
	"bytes"
	"context"
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

// states are the states of a record, and how it comes to them.
var states = map[string]func(t testing.TB, s everonce.Store, r *everonce.Receiver, key everonce.Key){
	"absent": func(testing.TB, everonce.Store, *everonce.Receiver, everonce.Key) {},
	"live": func(t testing.TB, s everonce.Store, _ *everonce.Receiver, key everonce.Key) {
		diedIn(t, s, key, time.Minute)
	},
	"lapsed": func(t testing.TB, s everonce.Store, _ *everonce.Receiver, key everonce.Key) {
		diedIn(t, s, key, time.Minute)
		time.Sleep(time.Hour)
	},
	"abandoned": func(t testing.TB, _ everonce.Store, r *everonce.Receiver, key everonce.Key) { leaveUnknown(t, r, key) },
	"step unknown": func(t testing.TB, _ everonce.Store, r *everonce.Receiver, key everonce.Key) {
		inAttempt(t, r, key, func(ctx context.Context, a *everonce.Attempt) {
			_, err := everonce.Step(ctx, a, "mail", stepReturns("", errWork))
			checkErr(t, err, errWork)
		})
		do(t, r, key, func(ctx context.Context, a *everonce.Attempt) (string, error) {
			return everonce.Step(ctx, a, "mail", stepNever(t))
		}, everonce.Unknown, everonce.ErrOutcomeUnknown)
	},
	"released": func(t testing.TB, _ everonce.Store, r *everonce.Receiver, key everonce.Key) {
		inAttempt(t, r, key, func(context.Context, *everonce.Attempt) {})
	},
	"completed": func(t testing.TB, _ everonce.Store, r *everonce.Receiver, key everonce.Key) {
		do(t, r, key, returns("v", nil), everonce.Executed, nil)
	},
	"tombstone": func(t testing.TB, _ everonce.Store, r *everonce.Receiver, key everonce.Key) {
		do(t, r, key, returns("v", nil), everonce.Executed, nil)
		time.Sleep(everonce.ForWeb().Retention)
	},
}

func TestSettleInEachState(t *testing.T) {
	for state, want := range map[string]struct {
		err     error
		outcome everonce.Outcome
		forced  bool // with Force it can be settled
	}{
		"absent":       {everonce.ErrNotFound, everonce.Failed, false},
		"live":         {everonce.ErrInProgress, everonce.InProgress, true},
		"lapsed":       {},
		"abandoned":    {},
		"step unknown": {},
		"released":     {everonce.ErrNotUnknown, everonce.Failed, false},
		"completed":    {everonce.ErrNotUnknown, everonce.Replayed, false},
		"tombstone":    {everonce.ErrNotUnknown, everonce.Replayed, false},
	} {
		for _, v := range []everonce.Settlement{{Verdict: everonce.SettleDone, Value: "settled"}, {Verdict: everonce.SettleNotDone}} {
			for _, force := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/verdict %d/force %v", state, v.Verdict, force), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := memstore.New(nil)
						r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Owner: "host:1"})
						key := keyOf("x")
						states[state](t, s, r, key)
						before := recordIn(t, s, key)
						v.Force = force
						err := r.Settle(context.Background(), key, v)
						after := recordIn(t, s, key)
						if want.err != nil && (!force || !want.forced) {
							checkErr(t, err, want.err)
							e := asError(t, err)
							checkEqual(t, "outcome", e.Outcome, want.outcome)
							checkEqual(t, "KeyHash", e.KeyHash, key.RecordID().Short())
							if state == "live" {
								checkEqual(t, "RetryAfter", e.RetryAfter, time.Minute)
							}
							checkEqual(t, "the record", after, before)
							return
						}
						checkErr(t, err, nil)
						checkEqual(t, "Owner", after.Owner, "host:1")
						if after.Token <= before.Token {
							t.Errorf("the token went from %d to %d: the old attempt is not fenced off", before.Token, after.Token)
						}
						if v.Verdict == everonce.SettleDone {
							res, _ := do(t, r, key, never(t), everonce.Replayed, nil)
							checkEqual(t, "value", res.Value, "settled")
							return
						}
						checkEqual(t, "state", after.State, driver.StateReleased)
						checkEqual(t, "UnknownStep", after.UnknownStep, "")
						do(t, r, key, returns("again", nil), everonce.Executed, nil)
					})
				})
			}
		}
	}
}

func TestSettleResults(t *testing.T) {
	for name, c := range map[string]struct {
		settlement everonce.Settlement
		outcome    everonce.Outcome
		err        error
		value      string
		summary    string
	}{
		"value":         {everonce.Settlement{Value: "v"}, everonce.Replayed, nil, "v", ""},
		"encoded":       {everonce.Settlement{Encoded: []byte(`"v"`)}, everonce.Replayed, nil, "v", ""},
		"encoded raw":   {everonce.Settlement{Encoded: []byte(`v`), Codec: "raw"}, everonce.Replayed, nil, "v", ""},
		"other codec":   {everonce.Settlement{Encoded: []byte(`v`), Codec: "gob"}, everonce.StoreFailed, everonce.ErrUndecodable, "", ""},
		"failure":       {everonce.Settlement{Failure: &everonce.PermanentError{Code: "declined"}}, everonce.Rejected, errAny, "", ""},
		"nothing":       {everonce.Settlement{}, everonce.Elided, everonce.ErrResultElided, "", ""},
		"summary alone": {everonce.Settlement{Summary: []byte("see #7")}, everonce.Elided, everonce.ErrResultElided, "", "see #7"},
	} {
		t.Run(name, func(t *testing.T) {
			s := memstore.New(nil)
			r := newReceiver(t, s, everonce.Refuse, nil)
			leaveUnknown(t, r, keyOf("x"))
			c.settlement.Verdict = everonce.SettleDone
			checkErr(t, r.Settle(context.Background(), keyOf("x"), c.settlement), nil)
			res, err := do(t, r, keyOf("x"), never(t), c.outcome, c.err)
			checkEqual(t, "value", res.Value, c.value)
			if c.settlement.Failure != nil {
				checkEqual(t, "failure", *asPermanent(t, err), *c.settlement.Failure)
			} else if err != nil {
				checkEqual(t, "summary", string(asError(t, err).Summary), c.summary)
			}
		})
	}
}

func TestSettleUsesTheReceiversCodec(t *testing.T) {
	s := memstore.New(nil)
	r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Codec: everonce.Raw()})
	for id, value := range map[string]any{"x": "text", "empty": ""} {
		leaveUnknown(t, r, keyOf(id))
		checkErr(t, r.Settle(context.Background(), keyOf(id), everonce.Settlement{Verdict: everonce.SettleDone, Value: value}), nil)
		res, _ := do(t, r, keyOf(id), never(t), everonce.Replayed, nil)
		checkEqual(t, "value", any(res.Value), value)
	}
	// A codec that writes nothing at all has written a value.
	silent := newReceiver(t, s, everonce.Refuse, &everonce.Options{Codec: silentCodec{}})
	leaveUnknown(t, silent, keyOf("silent"))
	checkErr(t, silent.Settle(context.Background(), keyOf("silent"), everonce.Settlement{Verdict: everonce.SettleDone, Value: "v"}), nil)
	do(t, silent, keyOf("silent"), never(t), everonce.Replayed, nil)
}

// silentCodec writes nothing.
type silentCodec struct{}

func (silentCodec) Name() string                { return "silent" }
func (silentCodec) Marshal(any) ([]byte, error) { return nil, nil }
func (silentCodec) Unmarshal([]byte, any) error { return nil }

func TestSettlementsAreValidated(t *testing.T) {
	s := newFaultStore()
	r := newReceiver(t, s, everonce.Refuse, nil)
	leaveUnknown(t, r, keyOf("x"))
	before := len(s.calls)
	failure := &everonce.PermanentError{Code: "x"}
	for name, c := range map[string]everonce.Settlement{
		"no verdict":                {},
		"another verdict":           {Verdict: 3},
		"value and encoded":         {Verdict: everonce.SettleDone, Value: 1, Encoded: []byte("1")},
		"value and failure":         {Verdict: everonce.SettleDone, Value: 1, Failure: failure},
		"encoded and failure":       {Verdict: everonce.SettleDone, Encoded: []byte("1"), Failure: failure},
		"not done with a value":     {Verdict: everonce.SettleNotDone, Value: 1},
		"not done with a failure":   {Verdict: everonce.SettleNotDone, Failure: failure},
		"a value without encoding":  {Verdict: everonce.SettleDone, Value: make(chan int)},
		"summary too long":          {Verdict: everonce.SettleDone, Summary: make([]byte, driver.MaxSummaryLen+1)},
		"who is too long":           {Verdict: everonce.SettleDone, By: strings.Repeat("x", 129)},
		"a codec's name too long":   {Verdict: everonce.SettleDone, Encoded: []byte("1"), Codec: strings.Repeat("n", 200)},
		"lifetime without a result": {Verdict: everonce.SettleDone, Lifetime: everonce.Lifetime{Remember: 1}},
	} {
		err := r.Settle(context.Background(), keyOf("x"), c)
		if !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	checkErr(t, r.Settle(context.Background(), everonce.Key{}, everonce.Settlement{Verdict: everonce.SettleDone}), everonce.ErrInvalidKey)
	checkErr(t, everonce.Settle(context.Background(), s, keyOf("x").RecordID(), everonce.Settlement{Verdict: everonce.SettleDone, Value: 1}), everonce.ErrInvalidArgument)
	checkEqual(t, "calls of the store", len(s.calls), before)
}

func TestSettleAStepAndResume(t *testing.T) {
	for _, notDone := range []bool{false, true} {
		s := memstore.New(nil)
		r := newReceiver(t, s, everonce.Refuse, nil)
		key := keyOf("x")
		states["step unknown"](t, s, r, key)
		settlement := everonce.Settlement{Verdict: everonce.SettleDone, Step: "mail", Value: "sent by hand"}
		if notDone {
			settlement = everonce.Settlement{Verdict: everonce.SettleNotDone, Step: "mail"}
		}
		checkErr(t, r.Settle(context.Background(), key, settlement), nil)
		rec := recordIn(t, s, key)
		checkEqual(t, "state", rec.State, driver.StateReleased)
		checkEqual(t, "UnknownStep", rec.UnknownStep, "")
		do(t, r, key, func(ctx context.Context, a *everonce.Attempt) (string, error) {
			f := stepNever(t)
			if notDone {
				f = stepReturns("sent now", nil)
			}
			return everonce.Step(ctx, a, "mail", f)
		}, everonce.Executed, nil)
		res, _ := do(t, r, key, never(t), everonce.Replayed, nil)
		want := "sent by hand"
		if notDone {
			want = "sent now"
		}
		checkEqual(t, "value", res.Value, want)
	}
}

// A step that is not open leaves everything unchanged, a live attempt too.
func TestSettleAStepThatIsNotOpen(t *testing.T) {
	s := memstore.New(nil)
	r := newReceiver(t, s, everonce.Refuse, nil)
	states["step unknown"](t, s, r, keyOf("x"))
	before := recordIn(t, s, keyOf("x"))
	err := r.Settle(context.Background(), keyOf("x"), everonce.Settlement{Verdict: everonce.SettleDone, Step: "other"})
	checkErr(t, err, everonce.ErrNotUnknown)
	checkEqual(t, "the record", recordIn(t, s, keyOf("x")), before)
	err = r.Settle(context.Background(), keyOf("absent"), everonce.Settlement{Verdict: everonce.SettleDone, Step: "other"})
	checkErr(t, err, everonce.ErrNotFound)

	do(t, r, keyOf("live"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		_, err := everonce.Step(ctx, a, "done", stepReturns("", nil))
		checkErr(t, err, nil)
		for _, step := range []string{"done", "never begun"} {
			err = r.Settle(context.Background(), a.Key(), everonce.Settlement{Verdict: everonce.SettleNotDone, Step: step, Force: true})
			checkErr(t, err, everonce.ErrNotUnknown)
		}
		return "", nil
	}, everonce.Executed, nil)
}

// A settlement that cannot be written puts the record back as unknown, at once.
func TestSettlementThatFailsIsPutBack(t *testing.T) {
	for name, c := range map[string]struct {
		method     string
		settlement everonce.Settlement
		err        error
		sentinel   error
	}{
		"complete":          {"Complete", everonce.Settlement{Verdict: everonce.SettleDone, Value: "v"}, errNet, everonce.ErrStore},
		"release":           {"Release", everonce.Settlement{Verdict: everonce.SettleNotDone}, errNet, everonce.ErrStore},
		"step":              {"SaveStep", everonce.Settlement{Verdict: everonce.SettleDone, Step: "mail"}, errNet, everonce.ErrStore},
		"release of a step": {"Release", everonce.Settlement{Verdict: everonce.SettleDone, Step: "mail"}, errNet, everonce.ErrStore},
		"taken":             {"Complete", everonce.Settlement{Verdict: everonce.SettleDone}, everonce.ErrLeaseLost, everonce.ErrLeaseLost},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFaultStore()
			r := newReceiver(t, s, everonce.Refuse, nil)
			states["step unknown"](t, s, r, keyOf("x"))
			s.on(c.method, s.count(c.method)+1, refuse(c.err))
			err := r.Settle(context.Background(), keyOf("x"), c.settlement)
			checkErr(t, err, c.sentinel)
			rec := s.record(t, keyOf("x"))
			checkEqual(t, "state", rec.State, driver.StateAbandoned)
			checkEqual(t, "UnknownStep", rec.UnknownStep, "mail")
			checkEqual(t, "expires", rec.PurgeAt, time.Time{})
			checkErr(t, r.Settle(context.Background(), keyOf("x"), c.settlement), nil) // the same again
			checkEqual(t, "settled", s.record(t, keyOf("x")).State != driver.StateAbandoned, true)
		})
	}
	t.Run("claim", func(t *testing.T) {
		for _, do := range []behaviour{refuse(errNet), lose(errNet)} {
			s := newFaultStore()
			r := newReceiver(t, s, everonce.Refuse, nil)
			states["step unknown"](t, s, r, keyOf("x"))
			s.on("Claim", 0, do)
			checkErr(t, r.Settle(context.Background(), keyOf("x"), everonce.Settlement{Verdict: everonce.SettleDone}), everonce.ErrStore)
			rec := s.record(t, keyOf("x"))
			checkEqual(t, "state", rec.State, driver.StateAbandoned)
			checkEqual(t, "UnknownStep", rec.UnknownStep, "mail")
		}
	})
}

func TestSettleLifetimeAndOwner(t *testing.T) {
	s := memstore.New(nil)
	r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lifetime: everonce.ForQueue()})
	ctx := context.Background()
	for name, c := range map[string]struct {
		settle func(key everonce.Key) error
		want   everonce.Lifetime
		owner  string
	}{
		"the receiver's": {func(key everonce.Key) error {
			return r.Settle(ctx, key, everonce.Settlement{Verdict: everonce.SettleDone, By: "anna"})
		}, everonce.ForQueue(), "anna"},
		"its own": {func(key everonce.Key) error {
			return r.Settle(ctx, key, everonce.Settlement{Verdict: everonce.SettleDone, By: "bob", Lifetime: everonce.ForWeb()})
		}, everonce.ForWeb(), "bob"},
		"without a receiver": {func(key everonce.Key) error {
			return everonce.Settle(ctx, s, key.RecordID(), everonce.Settlement{Verdict: everonce.SettleDone, By: "carl"})
		}, everonce.ForFinance(), "carl"},
	} {
		leaveUnknown(t, r, keyOf(name))
		checkErr(t, c.settle(keyOf(name)), nil)
		rec := recordIn(t, s, keyOf(name))
		checkEqual(t, name, rec.PurgeAt.Sub(rec.CompletedAt), c.want.Total())
		checkEqual(t, name, rec.Owner, c.owner)
	}
}

// An operation that is settled as not done, or by a step, is kept for the lifetime: otherwise the steps that it has
// finished would run again.
func TestASettlementKeepsTheStepsForItsLifetime(t *testing.T) {
	for name, s := range map[string]everonce.Settlement{
		"the operation, as not done": {Verdict: everonce.SettleNotDone},
		"the step, as not done":      {Verdict: everonce.SettleNotDone, Step: "mail"},
		"the step, as done":          {Verdict: everonce.SettleDone, Step: "mail", Encoded: []byte("1")},
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New(nil)
			r := newReceiver(t, store, everonce.Refuse, &everonce.Options{EffectsInSteps: s.Step != ""})
			do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
				_, err := everonce.Step(ctx, a, "charge", func(context.Context) (int, error) { return 1, nil })
				checkErr(t, err, nil)
				_, err = everonce.Step(ctx, a, "mail", func(context.Context) (int, error) { return 0, errWork })
				return "", err
			}, everonce.Unknown, errWork)
			s.By = "anna"
			checkErr(t, everonce.Settle(context.Background(), store, keyOf("x").RecordID(), s), nil)
			rec := recordIn(t, store, keyOf("x"))
			checkEqual(t, "state", rec.State, driver.StateReleased)
			checkEqual(t, "it is kept for", rec.PurgeAt.Sub(rec.UpdatedAt), everonce.ForFinance().Total())
			checkEqual(t, "steps", len(rec.Steps), 2)
		})
	}
}

// The attempt that a forced settlement took the record from writes nothing more.
func TestForcedSettlementFencesTheAttemptOff(t *testing.T) {
	s := memstore.New(nil)
	r := newReceiver(t, s, everonce.Refuse, nil)
	res, _ := do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		checkErr(t, r.Settle(context.Background(), a.Key(), everonce.Settlement{Verdict: everonce.SettleNotDone, Force: true}), nil)
		_, err := everonce.Step(ctx, a, "s", stepNever(t))
		checkErr(t, err, everonce.ErrLeaseLost)
		return "dropped", nil
	}, everonce.LeaseLost, everonce.ErrLeaseLost)
	checkEqual(t, "value", res.Value, "")
	do(t, r, keyOf("x"), returns("second", nil), everonce.Executed, nil)
}

func TestSettleText(t *testing.T) {
	s := memstore.New(nil)
	err := everonce.Settle(context.Background(), s, keyOf("secret").RecordID(), everonce.Settlement{Verdict: everonce.SettleDone})
	if !bytes.Contains([]byte(err.Error()), []byte(keyOf("secret").RecordID().Short())) || strings.Contains(err.Error(), "secret") {
		t.Errorf("%q", err)
	}
}

// A settled refusal is outlived by its summary, or else by its code, as one that the work returned is.
func TestASettledFailureLeavesItsSummary(t *testing.T) {
	for want, summary := range map[string][]byte{"see #7": []byte("see #7"), "declined": nil} {
		synctest.Test(t, func(t *testing.T) {
			r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
			leaveUnknown(t, r, keyOf("x"))
			checkErr(t, r.Settle(context.Background(), keyOf("x"), everonce.Settlement{
				Verdict: everonce.SettleDone, Failure: &everonce.PermanentError{Code: "declined"}, Summary: summary,
			}), nil)
			time.Sleep(everonce.ForWeb().Retention)
			_, err := do(t, r, keyOf("x"), never(t), everonce.Expired, everonce.ErrExpired)
			checkEqual(t, "Summary", string(asError(t, err).Summary), want)
		})
	}
}

func TestSettleAStepWhenTheStoreFails(t *testing.T) {
	s := newFaultStore()
	r := newReceiver(t, s, everonce.Refuse, nil)
	states["step unknown"](t, s, r, keyOf("x"))
	claims := s.count("Claim")
	s.on("Get", 0, refuse(errNet))
	checkErr(t, r.Settle(context.Background(), keyOf("x"), everonce.Settlement{Verdict: everonce.SettleDone, Step: "mail"}), everonce.ErrStore)
	checkEqual(t, "claims", s.count("Claim"), claims)
}

// A step is settled, and the operation was unknown for another reason: it remains unknown.
func TestSettleAStepOfAnUnknownOperation(t *testing.T) {
	s := memstore.New(nil)
	r := newReceiver(t, s, everonce.Refuse, nil)
	do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		_, err := everonce.Step(ctx, a, "mail", stepReturns("", errWork))
		return "", err
	}, everonce.Unknown, errWork)
	checkErr(t, r.Settle(context.Background(), keyOf("x"), everonce.Settlement{Verdict: everonce.SettleDone, Step: "mail"}), nil)
	rec := recordIn(t, s, keyOf("x"))
	checkEqual(t, "state", rec.State, driver.StateAbandoned)
	checkEqual(t, "UnknownStep", rec.UnknownStep, "")
	checkErr(t, r.Settle(context.Background(), keyOf("x"), everonce.Settlement{Verdict: everonce.SettleNotDone}), nil)
	do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		_, err := everonce.Step(ctx, a, "mail", stepNever(t))
		checkErr(t, err, everonce.ErrResultElided)
		return "v", nil
	}, everonce.Executed, nil)
}
