package patterntest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/saga"
)

// actions are what a step of these tests does, outside of the database.
type (
	action = func(context.Context, *saga.Call[sagaOrder]) (any, error)
	undo   = func(context.Context, *saga.Call[sagaOrder]) error
)

// noting returns an action that is noted, and a compensation that is.
func noting(w *world, name string) (action, undo) {
	return func(_ context.Context, c *saga.Call[sagaOrder]) (any, error) { return name, w.do(name, c.Try) },
		func(_ context.Context, c *saga.Call[sagaOrder]) error { return w.do("undo-"+name, c.Try) }
}

// define defines a saga whose steps are noted, except as change says.
func define[Tx any](t testing.TB, name string, w *world, change func(steps map[string]*saga.Step[sagaOrder, Tx]), names ...string) *saga.Definition[sagaOrder, Tx] {
	t.Helper()
	steps := make([]saga.Step[sagaOrder, Tx], len(names))
	byName := make(map[string]*saga.Step[sagaOrder, Tx])
	for i, n := range names {
		act, back := noting(w, n)
		steps[i] = saga.Step[sagaOrder, Tx]{Name: n, Action: act, Compensation: back, Retry: quickly}
		byName[n] = &steps[i]
	}
	if change != nil {
		change(byName)
	}
	d, err := saga.Define(name, 1, steps...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func startSaga[In, Tx any](t testing.TB, h *handle[Tx], sagas *saga.Sagas[Tx], d *saga.Definition[In, Tx], id string, in In) {
	t.Helper()
	h.inTx(t, func(ctx context.Context, tx Tx) error { return d.Start(ctx, sagas, tx, id, in) })
}

func refusing(context.Context, *saga.Call[sagaOrder]) (any, error) {
	return nil, everonce.Permanent("no", errors.New("refused"), nil)
}

func isOf(id string, holds func(saga.Report) bool) func(saga.Report) bool {
	return func(v saga.Report) bool { return v.ID == id && holds(v) }
}

func waits(v saga.Report) bool { return v.Waits }

func TestSagaConcurrent(t *testing.T) {
	onAll(t, testSagaConcurrent[pgx.Tx], testSagaConcurrent[*sql.Tx])
}

// Concurrent steps run at the same time. If one fails, the other is compensated, and no action is called any more: not
// even one without an answer, when the compensations go on in a later run.
func testSagaConcurrent[Tx any](t *testing.T, h *handle[Tx]) {
	w := &world{fail: map[string]func(int) error{"undo-a": func(try int) error {
		if try == 1 {
			return errors.New("no answer")
		}
		return nil
	}}}
	met := make(chan struct{})
	d := define(t, "concurrent", w, func(steps map[string]*saga.Step[sagaOrder, Tx]) {
		steps["b"].Action = func(_ context.Context, c *saga.Call[sagaOrder]) (any, error) {
			if c.Try == 1 {
				met <- struct{}{}
			}
			return nil, errors.Join(w.do("b", c.Try), errors.New("no answer"))
		}
		steps["c"].Action = func(ctx context.Context, c *saga.Call[sagaOrder]) (any, error) {
			<-met
			return refusing(ctx, c)
		}
		steps["c"].Concurrent = true
	}, "a", "b", "c", "d")
	sagas := newSagas(t, h)
	startSaga(t, h, sagas, d, "1", sagaOrder{})
	if v := ran(t, sagas, d)(ended); v.Status != saga.Compensated || w.history() != "a b undo-b undo-a" {
		t.Errorf("%s after %q (%v)", v.Status, w.history(), v.Err)
	}
}

func TestSagaTimeout(t *testing.T) { onAll(t, testSagaTimeout[pgx.Tx], testSagaTimeout[*sql.Tx]) }

// A step that does not return in time is tried again, and then compensated, under a new context.
func testSagaTimeout[Tx any](t *testing.T, h *handle[Tx]) {
	w := &world{}
	d := define(t, "timeout", w, func(steps map[string]*saga.Step[sagaOrder, Tx]) {
		steps["a"].Timeout = time.Millisecond
		steps["a"].Action = func(ctx context.Context, _ *saga.Call[sagaOrder]) (any, error) {
			<-ctx.Done()
			return nil, errors.Join(w.do("a", 1), ctx.Err())
		}
		compensation := steps["a"].Compensation
		steps["a"].Compensation = func(ctx context.Context, c *saga.Call[sagaOrder]) error {
			if c.Try == 1 { // it has its own timeout too
				<-ctx.Done()
				return ctx.Err()
			}
			return compensation(ctx, c)
		}
	}, "a", "b")
	sagas := newSagas(t, h)
	startSaga(t, h, sagas, d, "1", sagaOrder{})
	v := ran(t, sagas, d)(ended)
	if v.Status != saga.Compensated || w.history() != "a a a undo-a" || !strings.Contains(fmt.Sprint(v.Err), context.DeadlineExceeded.Error()) {
		t.Errorf("%s after %q: %v", v.Status, w.history(), v.Err)
	}
}

func TestSagaWaits(t *testing.T) { onAll(t, testSagaWaits[pgx.Tx], testSagaWaits[*sql.Tx]) }

// A saga waits, visibly, if its steps have changed, if its input does not fit, or if no runner has its version; and
// goes on when there is one.
func testSagaWaits[Tx any](t *testing.T, h *handle[Tx]) {
	w := &world{}
	sagas := newSagas(t, h)
	began := define[Tx](t, "changed", w, nil, "a", "b")
	changed := define[Tx](t, "changed", w, nil, "a", "c")
	act := func(context.Context, *saga.Call[int]) (any, error) { return nil, nil }
	number, err := saga.Define("input", 1, saga.Step[int, Tx]{Name: "a", Action: act, Final: true})
	if err != nil {
		t.Fatal(err)
	}
	order := define(t, "input", w, func(steps map[string]*saga.Step[sagaOrder, Tx]) {
		steps["a"].Final, steps["a"].Compensation = true, nil
	}, "a")
	newer, err := saga.Define("input", 2, saga.Step[int, Tx]{Name: "a", Action: act, Final: true})
	if err != nil {
		t.Fatal(err)
	}
	startSaga(t, h, sagas, newer, "version", 7)
	startSaga(t, h, sagas, began, "steps", sagaOrder{})
	startSaga(t, h, sagas, number, "input", 7)
	await := ran(t, sagas, changed, order)
	if v := await(waits); v.Err == nil {
		t.Errorf("%+v", v)
	}
	await(waits) // the other
	if w.history() != "" {
		t.Errorf("%q has happened", w.history())
	}
	for id, state := range map[string]backlog.State{"version": backlog.Pending, "steps": backlog.Blocked, "input": backlog.Blocked} {
		got, err := sagas.Get(t.Context(), id)
		if err != nil || got.State != state || (got.Error == "") != (state == backlog.Pending) || got.Status != saga.Running {
			t.Errorf("%s: %+v, %v", id, got, err)
		}
	}
	stats, err := sagas.Backlog().Stats(t.Context())
	if err != nil || stats.Waiting != 1 || stats.Blocked != 2 {
		t.Errorf("%+v, %v", stats, err)
	}
	if n, err := sagas.Backlog().Retry(t.Context(), backlog.Filter{States: []backlog.State{backlog.Blocked}}); n != 2 || err != nil {
		t.Errorf("%d are tried again, %v", n, err)
	}
}

func TestSagaGoesOn(t *testing.T) { onAll(t, testSagaGoesOn[pgx.Tx], testSagaGoesOn[*sql.Tx]) }

// The version that a saga began with runs it beside a newer one.
func testSagaGoesOn[Tx any](t *testing.T, h *handle[Tx]) {
	w := &world{}
	sagas := newSagas(t, h)
	old := define[Tx](t, "versions", w, nil, "a", "b")
	act, back := noting(w, "c")
	newer, err := saga.Define("versions", 2, saga.Step[sagaOrder, Tx]{Name: "c", Action: act, Compensation: back})
	if err != nil {
		t.Fatal(err)
	}
	startSaga(t, h, sagas, old, "1", sagaOrder{})
	startSaga(t, h, sagas, newer, "2", sagaOrder{})
	await := ran(t, sagas, old, newer)
	versions := map[int]bool{}
	for range 2 {
		versions[await(ended).Version] = true
	}
	if len(versions) != 2 || !strings.Contains(w.history(), "a") || !strings.Contains(w.history(), "c") {
		t.Errorf("%v ran: %q", versions, w.history())
	}
}

func TestSagaOrderedMeanwhile(t *testing.T) {
	onAll(t, testSagaOrderedMeanwhile[pgx.Tx], testSagaOrderedMeanwhile[*sql.Tx])
}

// An order that is given while a runner has claimed the saga takes effect when the runner releases it, however long it
// would wait then.
func testSagaOrderedMeanwhile[Tx any](t *testing.T, h *handle[Tx]) {
	w := &world{}
	inHand, skipFailed := make(chan struct{}), make(chan struct{})
	blocked := func(try int) error {
		if try == 1 {
			inHand <- struct{}{}
			<-skipFailed
		}
		return errors.New("no answer")
	}
	d := define(t, "meanwhile", w, func(steps map[string]*saga.Step[sagaOrder, Tx]) {
		steps["b"].Retry = consume.RetryPolicy{Limit: -1, Min: time.Hour, Max: time.Hour}
		steps["b"].Action = func(_ context.Context, c *saga.Call[sagaOrder]) (any, error) { return nil, blocked(c.Try) }
		steps["b"].Compensation = func(_ context.Context, c *saga.Call[sagaOrder]) error {
			var out string
			if ok, err := c.Output("a", &out); !ok || err != nil || out != "a" { // though this run went back at once
				return fmt.Errorf("the output of a is %q (%v, %w)", out, ok, err)
			}
			return blocked(c.Try)
		}
	}, "a", "b")
	sagas := newSagas(t, h)
	startSaga(t, h, sagas, d, "1", sagaOrder{})
	await := ran(t, sagas, d)
	<-inHand
	if err := sagas.Abort(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	skipFailed <- struct{}{}
	<-inHand // in the compensation
	if err := sagas.Skip(t.Context(), "1", "b"); err != nil {
		t.Fatal(err)
	}
	skipFailed <- struct{}{}
	if v := await(ended); v.Status != saga.Compensated || w.history() != "a undo-a" {
		t.Errorf("%s after %q (%v)", v.Status, w.history(), v.Err)
	}
}

func TestSagaGrace(t *testing.T) { onAll(t, testSagaGrace[pgx.Tx], testSagaGrace[*sql.Tx]) }

// A runner that is to end cuts off what does not end in its grace, an action or a compensation. That fails no saga: the
// next runner goes on.
func testSagaGrace[Tx any](t *testing.T, h *handle[Tx]) {
	w := &world{}
	begun := make(chan struct{})
	hang := func(ctx context.Context) error {
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	phase := ""
	d := define(t, "grace", w, func(steps map[string]*saga.Step[sagaOrder, Tx]) {
		steps["a"].Retry = consume.RetryPolicy{Limit: 1, Min: time.Millisecond, Max: time.Millisecond}
		act, back := steps["a"].Action, steps["a"].Compensation
		steps["a"].Action = func(ctx context.Context, c *saga.Call[sagaOrder]) (any, error) {
			if phase == "action" {
				return nil, hang(ctx)
			}
			return act(ctx, c)
		}
		steps["a"].Compensation = func(ctx context.Context, c *saga.Call[sagaOrder]) error {
			if phase == "compensation" {
				return hang(ctx)
			}
			return back(ctx, c)
		}
		steps["b"].Action = refusing
	}, "a", "b")
	sagas := newSagas(t, h)
	startSaga(t, h, sagas, d, "1", sagaOrder{})
	for _, phase = range []string{"action", "action", "action", "compensation"} {
		runner, err := sagas.Runner(&saga.RunnerOptions{DrainTimeout: time.Millisecond}, d)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- runner.Run(ctx) }()
		<-begun
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(hung):
			t.Fatalf("the %s holds the runner longer than its grace", phase)
		}
	}
	phase = ""
	if v := ran(t, sagas, d)(ended); v.Status != saga.Compensated || w.history() != "a undo-a" {
		t.Errorf("%s after %q (%v)", v.Status, w.history(), v.Err)
	}
}

func TestSagaThatKillsItsRunners(t *testing.T) {
	onAll(t, testSagaThatKillsItsRunners[pgx.Tx], testSagaThatKillsItsRunners[*sql.Tx])
}

// A saga whose runners die again and again is set aside, and goes on when an operator says so.
func testSagaThatKillsItsRunners[Tx any](t *testing.T, h *handle[Tx]) {
	w := &world{}
	sagas := newSagas(t, h)
	d := define[Tx](t, "deadly", w, nil, "a")
	startSaga(t, h, sagas, d, "1", sagaOrder{})
	guarded, err := h.receiver.Guarded(everonce.Reexecute)
	if err != nil {
		t.Fatal(err)
	}
	died := errors.New("it died")
	for range 25 {
		_, err := everonce.Do(t.Context(), guarded, everonce.Key{Scope: everonce.ScopeOf("saga", "deadly"), ID: "1"},
			func(context.Context, *everonce.Attempt) (int, error) { return 0, died }, everonce.EffectsInSteps())
		if !errors.Is(err, died) {
			t.Fatal(err)
		}
	}
	await := ran(t, sagas, d)
	await(waits)
	if w.history() != "" {
		t.Errorf("%q has happened", w.history())
	}
	if _, err := sagas.Backlog().Retry(t.Context(), backlog.Filter{ID: "1"}); err != nil {
		t.Fatal(err)
	}
	if v := await(func(v saga.Report) bool { return ended(v) || waits(v) }); v.Status != saga.Completed || w.history() != "a" {
		t.Errorf("%+v after %q", v, w.history())
	}
}

func TestSagaOutputTooLarge(t *testing.T) {
	onAll(t, testSagaOutputTooLarge[pgx.Tx], testSagaOutputTooLarge[*sql.Tx])
}

// An output that cannot be kept fails the saga, which would be without it after the next crash.
func testSagaOutputTooLarge[Tx any](t *testing.T, h *handle[Tx]) {
	sagas := newSagas(t, h)
	for name, out := range map[string]any{"large": strings.Repeat("x", 2<<20), "channel": make(chan int)} {
		w := &world{}
		d := define(t, name, w, func(steps map[string]*saga.Step[sagaOrder, Tx]) {
			steps["a"].Action = func(context.Context, *saga.Call[sagaOrder]) (any, error) { return out, nil }
		}, "a", "b")
		startSaga(t, h, sagas, d, name, sagaOrder{})
		if v := ran(t, sagas, d)(ended); v.Status != saga.Compensated || w.history() != "undo-a" {
			t.Errorf("%s: %s after %q (%v)", name, v.Status, w.history(), v.Err)
		}
	}
}

// Define refuses these definitions.
func TestSagaDefine(t *testing.T) {
	t.Parallel()
	act, back := noting(&world{}, "a")
	type step = saga.Step[sagaOrder, *sql.Tx]
	good := step{Name: "a", Action: act, Compensation: back}
	for name, tc := range map[string]struct {
		name    string
		version int
		steps   []step
	}{
		"no name":                        {"", 1, []step{good}},
		"a name with an @":               {"a@b", 1, []step{good}},
		"no version":                     {"a", 0, []step{good}},
		"no steps":                       {"a", 1, nil},
		"two steps of a name":            {"a", 1, []step{good, good}},
		"a compensation's name":          {"a", 1, []step{{Name: "undo:b", Action: act, Compensation: back}}},
		"no action":                      {"a", 1, []step{{Name: "a", Compensation: back}}},
		"no compensation, and not final": {"a", 1, []step{{Name: "a", Action: act}}},
		"a compensation, and final":      {"a", 1, []step{{Name: "a", Action: act, Compensation: back, Final: true}}},
		"concurrent with nothing":        {"a", 1, []step{{Name: "a", Action: act, Compensation: back, Concurrent: true}}},
		"a negative time":                {"a", 1, []step{{Name: "a", Action: act, Compensation: back, Timeout: -1}}},
	} {
		if _, err := saga.Define(tc.name, tc.version, tc.steps...); !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
