package enginetest

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// unruly is an observer whose methods do what they must not.
type unruly struct {
	recorder
	start, end, nothing bool
}

func (u *unruly) Start(ctx context.Context, op everonce.Op) context.Context {
	inner := u.recorder.Start(ctx, op)
	switch {
	case u.start:
		panic("no start")
	case u.nothing:
		return nil
	}
	return inner
}

func (u *unruly) End(ctx context.Context, ev everonce.Observation) {
	u.recorder.End(ctx, ev)
	if u.end {
		panic("no end")
	}
}

// An observer decides nothing: if it panics, records and results are the same as without one.
func TestAPanicOfTheObserverChangesNothing(t *testing.T) {
	ctx := context.Background()
	for name, rec := range map[string]*unruly{
		"Start": {start: true}, "End": {end: true}, "both": {start: true, end: true}, "no context": {nothing: true},
	} {
		t.Run(name, func(t *testing.T) {
			var logs bytes.Buffer
			defer slog.SetDefault(slog.Default())
			slog.SetDefault(slog.New(slog.NewTextHandler(&logs, nil)))
			ends := func(want ...string) {
				t.Helper()
				var kinds []string
				for _, ev := range rec.events {
					kinds = append(kinds, ev.Kind)
				}
				checkEqual(t, "ended", kinds, want)
				rec.events = nil
			}
			s, r, x := newStepTx(t, &everonce.Options{Observer: rec})

			var inside [2]error
			operation := func(ctx context.Context, a *everonce.Attempt) (string, error) {
				_, inside[0] = everonce.StepTx(ctx, a, x, "charge", adds)
				_, inside[1] = everonce.Step(ctx, a, "mail", stepReturns("", errWork))
				return "done", ctx.Err()
			}
			do(t, r, keyOf("x"), operation, everonce.Executed, nil)
			checkErr(t, inside[0], nil)
			checkErr(t, inside[1], errWork)
			ends("step_tx", "step", "do")
			do(t, r, keyOf("x"), never(t), everonce.Replayed, nil)
			do(t, r, keyOf("y"), returns("", errWork), everonce.Unknown, errWork)
			checkErr(t, r.Settle(ctx, keyOf("y"), everonce.Settlement{Verdict: everonce.SettleDone, Value: "v"}), nil)
			do(t, r, keyOf("y"), never(t), everonce.Replayed, nil)
			ends("do", "do", "settle", "do")

			transact(t, x, s, keyOf("t"), adds, everonce.Executed, nil)
			tx := s.begin()
			doTx(t, x, tx, keyOf("d"), within(tx, nil), everonce.Executed, nil)
			checkErr(t, tx.Commit(), nil)
			results, err := everonce.TransactBatch(ctx, x, items("a", "b"), everonce.EachItem(func(ctx context.Context, tx *mapTx, _ int) (int, error) { return adds(ctx, tx) }))
			checkErr(t, err, nil)
			for _, res := range results {
				checkOutcome(t, res.Result, res.Err, everonce.Executed, nil)
			}
			ends("transact", "do_tx", "transact", "transact")
			checkEqual(t, "balance", s.row("balance"), 5*30)

			func() { // of two panics the work's goes on
				defer func() { checkEqual(t, "recovered", recover(), any("boom")) }()
				do(t, r, keyOf("z"), func(context.Context, *everonce.Attempt) (string, error) { panic("boom") }, everonce.Unknown, nil)
			}()
			checkEqual(t, "state", s.record(keyOf("z")).State, driver.StateAbandoned)
			ends("do")

			if told := strings.Contains(logs.String(), "the observer panicked"); told != (rec.start || rec.end) {
				t.Errorf("logged: %s", logs.String())
			}
			if strings.Contains(logs.String(), keyOf("x").ID+" ") || !rec.nothing && !strings.Contains(logs.String(), keyOf("x").RecordID().Short()) {
				t.Errorf("the log names the operation by its hash: %s", logs.String())
			}
		})
	}
}

// The logger for an observer's panic may panic as well.
func TestAPanicOfTheLogChangesNothing(t *testing.T) {
	broken := slog.New(brokenHandler{})
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(broken)
	_, r, _ := newStepTx(t, &everonce.Options{Observer: everonce.LogObserver(nil)})
	do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
	do(t, r, keyOf("x"), never(t), everonce.Replayed, nil)
}

type brokenHandler struct{ slog.Handler }

func (brokenHandler) Enabled(context.Context, slog.Level) bool { panic("no log") }
