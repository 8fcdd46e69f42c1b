package patterntest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/saga"
)

func newSagas[Tx any](t testing.TB, h *handle[Tx]) *saga.Sagas[Tx] {
	t.Helper()
	sagas, err := saga.New(h.receiver)
	if err != nil {
		t.Fatal(err)
	}
	if err := sagas.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return sagas
}

// world is what the actions of a saga act on, outside of the database.
type world struct {
	mu   sync.Mutex
	done []string
	fail map[string]func(try int) error // by what would be done
}

func (w *world) do(what string, try int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if fail := w.fail[what]; fail != nil {
		if err := fail(try); err != nil {
			return err
		}
	}
	w.done = append(w.done, what)
	return nil
}

func (w *world) history() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.done, " ")
}

type sagaOrder struct{ Item string }

var quickly = consume.RetryPolicy{Limit: 2, Min: time.Millisecond, Max: time.Millisecond}

// orderSteps are reserve (in the database), charge and ship.
func orderSteps[Tx any](h *handle[Tx], w *world) []saga.Step[sagaOrder, Tx] {
	return []saga.Step[sagaOrder, Tx]{
		{
			Name: "reserve", Retry: quickly,
			ActionTx: func(ctx context.Context, tx Tx, c *saga.Call[sagaOrder]) (any, error) {
				return "shelf 4", errors.Join(h.exec(ctx, tx, "INSERT INTO effects (name) VALUES ($1)", "reserve "+c.Saga), w.do("reserve", c.Try))
			},
			CompensationTx: func(ctx context.Context, tx Tx, c *saga.Call[sagaOrder]) error {
				return errors.Join(h.exec(ctx, tx, "DELETE FROM effects WHERE name = $1", "reserve "+c.Saga), w.do("release", c.Try))
			},
		},
		{
			Name: "charge", Retry: quickly,
			Action: func(_ context.Context, c *saga.Call[sagaOrder]) (any, error) {
				var shelf string
				if ok, err := c.Output("reserve", &shelf); !ok || err != nil || shelf != "shelf 4" || c.Input.Item != "book" {
					return nil, fmt.Errorf("the output is %q (%v, %w), the input %v", shelf, ok, err, c.Input)
				}
				return map[string]string{"receipt": "r-1"}, w.do("charge", c.Try)
			},
			Compensation: func(_ context.Context, c *saga.Call[sagaOrder]) error {
				var receipt map[string]string
				ok, err := c.Output("charge", &receipt)
				return errors.Join(err, w.do(fmt.Sprint("refund:", ok, receipt["receipt"]), c.Try))
			},
		},
		{
			Name: "ship", Retry: quickly, Final: true,
			Action: func(_ context.Context, c *saga.Call[sagaOrder]) (any, error) { return nil, w.do("ship", c.Try) },
		},
	}
}

// ran runs sagas, and returns a function that waits for the verdict of which the condition holds.
func ran[Tx any](t testing.TB, sagas *saga.Sagas[Tx], definitions ...saga.Definitions[Tx]) (await func(holds func(saga.Report) bool) saga.Report) {
	t.Helper()
	verdicts := make(chan saga.Report, 1000)
	runner, err := sagas.Runner(&saga.RunnerOptions{Observe: func(_ context.Context, v saga.Report) { verdicts <- v }}, definitions...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- runner.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return func(holds func(saga.Report) bool) saga.Report {
		t.Helper()
		for {
			select {
			case v := <-verdicts:
				if holds(v) {
					return v
				}
			case <-time.After(hung):
				t.Fatal("the saga did not come so far")
			}
		}
	}
}

func ended(v saga.Report) bool {
	return v.Status == saga.Completed || v.Status == saga.Compensated
}

func TestSaga(t *testing.T) { onAll(t, testSaga[pgx.Tx], testSaga[*sql.Tx]) }

func testSaga[Tx any](t *testing.T, h *handle[Tx]) {
	refused := func(int) error { return everonce.Permanent("no", errors.New("the card was declined"), nil) }
	silent := func(int) error { return errors.New("no answer") }
	once := func(try int) error {
		if try == 1 {
			return errors.New("no answer")
		}
		return nil
	}
	sagas := newSagas(t, h)
	for i, tc := range []struct {
		name    string
		fail    map[string]func(int) error
		status  saga.Status
		history string
		effects int
	}{
		{"all goes well", nil, saga.Completed, "reserve charge ship", 1},
		{"a step is tried again", map[string]func(int) error{"charge": once}, saga.Completed, "reserve charge ship", 1},
		{"refused at once, so it is not compensated", map[string]func(int) error{"charge": refused}, saga.Compensated, "reserve release", 0},
		{"without an answer, so it is compensated too", map[string]func(int) error{"charge": silent}, saga.Compensated, "reserve refund:false release", 0},
		{"refused after a try without an answer", map[string]func(int) error{"charge": func(try int) error {
			if try == 1 {
				return silent(try)
			}
			return refused(try)
		}}, saga.Compensated, "reserve refund:false release", 0},
		{"a later step fails", map[string]func(int) error{"ship": refused}, saga.Compensated, "reserve charge refund:truer-1 release", 0},
		{"a step in the database is refused", map[string]func(int) error{"reserve": refused}, saga.Compensated, "", 0},
		{"a compensation is tried again", map[string]func(int) error{"ship": refused, "refund:truer-1": once}, saga.Compensated, "reserve charge refund:truer-1 release", 0},
		{"a panic", map[string]func(int) error{"charge": func(try int) error {
			if try == 1 {
				panic("once")
			}
			return nil
		}}, saga.Completed, "reserve charge ship", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := &world{fail: tc.fail}
			d, err := saga.Define(fmt.Sprint("order-", i), 1, orderSteps(h, w)...)
			if err != nil {
				t.Fatal(err)
			}
			id := fmt.Sprint("saga-", i)
			for range 2 { // started twice, it runs once
				h.inTx(t, func(ctx context.Context, tx Tx) error { return d.Start(ctx, sagas, tx, id, sagaOrder{"book"}) })
			}
			v := ran(t, sagas, d)(ended)
			if v.Status != tc.status || w.history() != tc.history {
				t.Errorf("%s after %q, want %s after %q (%v)", v.Status, w.history(), tc.status, tc.history, v.Err)
			}
			if n := h.number(t, "SELECT count(*) FROM effects WHERE name = $1", "reserve "+id); n != tc.effects {
				t.Errorf("%d effects in the database, want %d", n, tc.effects)
			}
			got, err := sagas.Get(t.Context(), id)
			if err != nil || got.Status != tc.status || tc.status == saga.Compensated && got.Cause == "" {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestSagaOperator(t *testing.T) { onAll(t, testSagaOperator[pgx.Tx], testSagaOperator[*sql.Tx]) }

// A compensation that keeps failing waits for an operator, who skips it; a saga is aborted; changed steps are refused.
func testSagaOperator[Tx any](t *testing.T, h *handle[Tx]) {
	sagas := newSagas(t, h)
	never := func(int) error { return errors.New("the bank is gone") }
	w := &world{fail: map[string]func(int) error{
		"ship":           func(int) error { return everonce.Permanent("no", errors.New("lost"), nil) },
		"refund:truer-1": never,
	}}
	d, err := saga.Define("order", 1, orderSteps(h, w)...)
	if err != nil {
		t.Fatal(err)
	}
	h.inTx(t, func(ctx context.Context, tx Tx) error { return d.Start(ctx, sagas, tx, "a", sagaOrder{"book"}) })
	await := ran(t, sagas, d)
	if v := await(func(v saga.Report) bool { return v.Waits }); v.Status != saga.Compensating || v.Err == nil {
		t.Fatalf("%+v", v)
	}
	if err := sagas.Skip(t.Context(), "a", "charge"); err != nil {
		t.Fatal(err)
	}
	if v := await(ended); v.Status != saga.Compensated || w.history() != "reserve charge release" {
		t.Errorf("%s after %q", v.Status, w.history())
	}
	got, err := sagas.Get(t.Context(), "a")
	if err != nil || !slices.ContainsFunc(got.Steps, func(s saga.StepStatus) bool {
		return s.Compensation && s.Name == "charge" && string(s.Output) == `"skipped"`
	}) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := sagas.Abort(t.Context(), "a"); !errors.Is(err, everonce.ErrNotFound) {
		t.Errorf("aborted after its end: %v", err)
	}

	w.fail = map[string]func(int) error{"ship": never}
	changed, err := saga.Define("order", 2, orderSteps(h, w)[:2]...)
	if err != nil {
		t.Fatal(err)
	}
	slow := orderSteps(h, w)
	slow[2].Retry = consume.RetryPolicy{Limit: -1, Min: time.Hour, Max: time.Hour}
	stuck, err := saga.Define("order", 3, slow...)
	if err != nil {
		t.Fatal(err)
	}
	h.inTx(t, func(ctx context.Context, tx Tx) error { return stuck.Start(ctx, sagas, tx, "b", sagaOrder{"book"}) })
	awaitStuck := ran(t, sagas, changed, stuck)
	awaitStuck(func(v saga.Report) bool { return v.ID == "b" && v.After > 0 })
	if err := sagas.Abort(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if v := awaitStuck(func(v saga.Report) bool { return v.ID == "b" && ended(v) }); v.Status != saga.Compensated {
		t.Errorf("%+v", v)
	}
}

func TestParticipant(t *testing.T) { onAll(t, testParticipant[pgx.Tx], testParticipant[*sql.Tx]) }

// Null compensation and hanging: a compensation that comes first has nothing to undo, and the action is refused then.
func testParticipant[Tx any](t *testing.T, h *handle[Tx]) {
	p, err := saga.NewParticipant(h.receiver, "stock", everonce.Lifetime{})
	if err != nil {
		t.Fatal(err)
	}
	act := func(b saga.Branch) error {
		_, err := saga.Action(t.Context(), p, b, func(ctx context.Context, tx Tx) (int, error) {
			return 1, h.exec(ctx, tx, "INSERT INTO effects (name) VALUES ($1)", "act "+b.Saga)
		})
		return err
	}
	undo := func(b saga.Branch) error {
		return p.Compensate(t.Context(), b, func(ctx context.Context, tx Tx) error {
			return h.exec(ctx, tx, "INSERT INTO effects (name) VALUES ($1)", "undo "+b.Saga)
		})
	}
	count := func(what string) int { return h.number(t, "SELECT count(*) FROM effects WHERE name = $1", what) }

	normal := saga.Branch{Saga: "1", Step: "reserve"}
	for range 2 {
		if err := act(normal); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := undo(normal); err != nil {
			t.Fatal(err)
		}
	}
	if count("act 1") != 1 || count("undo 1") != 1 {
		t.Errorf("%d actions, %d compensations, want 1 of each", count("act 1"), count("undo 1"))
	}

	hanging := saga.Branch{Saga: "2", Step: "reserve"}
	if err := undo(hanging); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := act(hanging); !errors.Is(err, saga.ErrCancelled) {
			t.Errorf("an action after its compensation: %v", err)
		}
	}
	if err := undo(hanging); err != nil {
		t.Fatal(err)
	}
	if count("act 2") != 0 || count("undo 2") != 0 {
		t.Errorf("%d actions, %d compensations, want none", count("act 2"), count("undo 2"))
	}

	// A compensation that fails is never final, whatever its error says; nor does it need to read what the action
	// returned.
	raw, err := everonce.NewTxReceiver(h.store, &everonce.Options{Codec: everonce.Raw()})
	if err != nil {
		t.Fatal(err)
	}
	if p, err = saga.NewParticipant(raw, "raw", everonce.Lifetime{}); err != nil {
		t.Fatal(err)
	}
	third := saga.Branch{Saga: "3", Step: "reserve"}
	if _, err := saga.Action(t.Context(), p, third, func(context.Context, Tx) (string, error) { return "done", nil }); err != nil {
		t.Fatal(err)
	}
	closed := everonce.Permanent("closed", errors.New("the shelf is closed"), nil)
	if err := p.Compensate(t.Context(), third, func(context.Context, Tx) error { return closed }); !errors.Is(err, closed) {
		t.Errorf("a compensation that fails: %v", err)
	}
	if err := undo(third); err != nil || count("undo 3") != 1 {
		t.Errorf("%d compensations after one that failed, want 1: %v", count("undo 3"), err)
	}

	headers := hanging.Headers()
	if b, err := saga.ParseBranch(func(name string) string { return headers[name] }); err != nil || b != hanging {
		t.Errorf("%+v, %v", b, err)
	}
	if _, err := saga.ParseBranch(func(string) string { return "" }); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Errorf("no headers: %v", err)
	}
}
