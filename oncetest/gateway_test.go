package oncetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
)

func TestGateway(t *testing.T) {
	for _, dedup := range []bool{false, true} {
		g := NewGateway(&GatewayOptions{Deduplicates: dedup})
		one, err := g.Call(t.Context(), "k", "charge")
		if err != nil || one.Request != "charge" {
			t.Fatalf("%+v, %v", one, err)
		}
		two, err := g.Call(t.Context(), "k", "charge")
		if err != nil || (one == two) != dedup {
			t.Errorf("deduplicates %v: a second call was answered %+v (%v), the first %+v", dedup, two, err, one)
		}
		effects := map[bool]int{true: 1, false: 2}[dedup]
		if g.Effects("k") != effects || g.Total() != effects || g.Calls("k") != 2 || len(g.Requested("charge")) != effects {
			t.Errorf("deduplicates %v: %d effects under the key, %d in all, %d calls", dedup, g.Effects("k"), g.Total(), g.Calls("k"))
		}
		if first, ok := g.Find("k"); !ok || first != one {
			t.Errorf("found %+v, %v", first, ok)
		}
		if _, ok := g.Find("other"); ok || g.Effects("other") != 0 {
			t.Error("found what never came")
		}
		_, err = g.Call(t.Context(), "k", "refund")
		if errors.Is(err, ErrOtherRequest) != dedup {
			t.Errorf("deduplicates %v: the key with another request: %v", dedup, err)
		}
		if other, err := g.Call(t.Context(), "j", "charge"); err != nil || other.ID == one.ID {
			t.Errorf("another key was answered %+v (%v)", other, err)
		}
		if keys, want := g.Requested("charge"), map[bool][]string{true: {"k", "j"}, false: {"k", "k", "j"}}[dedup]; !slices.Equal(keys, want) {
			t.Errorf("requested under %v, want %v: once for every effect", keys, want)
		}
	}
}

func TestGatewayFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := []Fault{FailBefore, FailAfter, HangBefore, HangAfter, Unreached}
		g := NewGateway(&GatewayOptions{Plan: func(c Call) Fault {
			if c.Op != OpEffect || c.Key != faults[c.N-1].String() {
				t.Errorf("the plan was asked about %+v", c)
			}
			return faults[c.N-1]
		}})
		for _, f := range faults {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := g.Call(ctx, f.String(), "charge")
			if !errors.Is(err, ErrInjected) {
				t.Errorf("%v: %v", f, err)
			}
			if hung := ctx.Err() != nil; hung != (f == HangBefore || f == HangAfter) {
				t.Errorf("%v: it hung: %v", f, hung)
			}
			if got := g.Effects(f.String()) == 1; got != f.takesHold() {
				t.Errorf("%v: took hold: %v", f, got)
			}
			if everonce.IsNotDone(err) != (f == Unreached) {
				t.Errorf("%v: its error proves that it is not done: %v", f, everonce.IsNotDone(err))
			}
			cancel()
			if _, err := g.Call(ctx, f.String(), "charge"); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("called with a context that has ended: %v", err)
			}
		}
	})
}

func TestFaultsEffect(t *testing.T) {
	declined := errors.New("declined")
	for _, tc := range []struct {
		fault Fault
		err   error
		runs  bool
	}{{Pass, nil, true}, {Pass, declined, true}, {FailBefore, nil, false}, {FailAfter, declined, true}, {dieBefore, nil, false}, {dieAfter, nil, true}} {
		w := newWorld()
		f := &Faults{world: w}
		w.run(func(c Call) Fault {
			if c.Op != OpEffect || c.N != 1 || c.Key != "e" {
				t.Errorf("the plan was asked about %+v", c)
			}
			return tc.fault
		})
		ran := false
		err := f.Effect(t.Context(), "e", func() error { ran = true; return tc.err })
		if ran != tc.runs {
			t.Errorf("%v: the effect ran: %v", tc.fault, ran)
		}
		if tc.fault == Pass && !errors.Is(err, tc.err) || tc.fault != Pass && !errors.Is(err, ErrInjected) {
			t.Errorf("%v: %v", tc.fault, err)
		}
		w.run(nil)
		ran = false
		err = f.Effect(t.Context(), "e", func() error { ran = true; return nil })
		if died := tc.fault == dieBefore || tc.fault == dieAfter; died == ran || died != errors.Is(err, everonce.ErrAttemptEnded) {
			t.Errorf("%v, and later: the effect ran: %v (%v)", tc.fault, ran, err)
		}
		if ran = false; (&Faults{world: w}).Effect(t.Context(), "e", func() error { ran = true; return nil }) != nil || !ran {
			t.Errorf("%v: the next process can do nothing", tc.fault)
		}
	}
}
