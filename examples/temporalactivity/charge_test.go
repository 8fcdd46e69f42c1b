package temporalactivity

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/store/memstore"
)

// gateway counts the charges that reached it; fail may answer in its place.
type gateway struct {
	charges atomic.Int64
	fail    func(ctx context.Context, key string) error
}

func (g *gateway) Charge(ctx context.Context, o Order, key string) (Receipt, error) {
	g.charges.Add(1)
	if g.fail != nil {
		if err := g.fail(ctx, key); err != nil {
			return Receipt{}, err
		}
	}
	return Receipt{Number: "receipt-" + o.ID}, nil
}

func newActivities(t *testing.T, g *gateway) *Activities {
	t.Helper()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Activities{Receiver: r, Gateway: g}
}

// charging runs a workflow that calls the activity named "Charge" for each order.
func charging(ctx workflow.Context, orders []Order) ([]Receipt, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	var receipts []Receipt
	for _, o := range orders {
		var r Receipt
		if err := workflow.ExecuteActivity(ctx, "Charge", o).Get(ctx, &r); err != nil {
			return nil, err
		}
		receipts = append(receipts, r)
	}
	return receipts, nil
}

// run executes the workflow with that activity.
func run(t *testing.T, charge func(context.Context, Order) (Receipt, error), orders ...Order) ([]Receipt, error) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.RegisterActivityWithOptions(charge, activity.RegisterOptions{Name: "Charge"})
	env.ExecuteWorkflow(charging, orders)
	if err := env.GetWorkflowError(); err != nil {
		return nil, err
	}
	var receipts []Receipt
	if err := env.GetWorkflowResult(&receipts); err != nil {
		t.Fatal(err)
	}
	return receipts, nil
}

// TestLostAnswer: the worker dies after the charge, before Temporal hears of it, three times.
func TestLostAnswer(t *testing.T) {
	g := &gateway{}
	a := newActivities(t, g)
	var attempts int32
	receipts, err := run(t, func(ctx context.Context, o Order) (Receipt, error) {
		r, err := a.Charge(ctx, o)
		if attempts = activity.GetInfo(ctx).Attempt; attempts <= 3 {
			return Receipt{}, errors.New("the worker is gone")
		}
		return r, err
	}, Order{ID: "7", Cents: 1200})
	if err != nil || len(receipts) != 1 || receipts[0].Number != "receipt-7" {
		t.Fatalf("receipts %v, %v", receipts, err)
	}
	if n := g.charges.Load(); n != 1 || attempts != 4 {
		t.Errorf("%d charges by %d attempts, want 1 by 4", n, attempts)
	}
}

// TestEachActivityIsItsOwn: two activities of one workflow are two operations, equal arguments or not.
func TestEachActivityIsItsOwn(t *testing.T) {
	g := &gateway{}
	o := Order{ID: "7", Cents: 1200}
	if _, err := run(t, newActivities(t, g).Charge, o, o); err != nil {
		t.Fatal(err)
	}
	if n := g.charges.Load(); n != 2 {
		t.Errorf("%d charges, want 2", n)
	}
}

// TestDeclined: what is refused for good is not tried again.
func TestDeclined(t *testing.T) {
	g := &gateway{fail: func(context.Context, string) error { return everonce.Permanent("card_declined", nil, nil) }}
	_, err := run(t, newActivities(t, g).Charge, Order{ID: "7"})
	refused(t, err, "rejected")
	if n := g.charges.Load(); n != 1 {
		t.Errorf("%d charges, want 1", n)
	}
}

// TestUnknown: after a timeout of the gateway the outcome is unknown; under Refuse the charge is not repeated, even by
// Temporal.
func TestUnknown(t *testing.T) {
	g := &gateway{fail: func(context.Context, string) error { return errors.New("gateway timeout") }}
	_, err := run(t, newActivities(t, g).Charge, Order{ID: "7"})
	refused(t, err, "unknown")
	if n := g.charges.Load(); n != 1 {
		t.Errorf("%d charges, want 1", n)
	}
}

// TestUnknownButAsked: where another attempt would ask about what is unknown, Temporal makes one, with everonce's
// pause.
func TestUnknownButAsked(t *testing.T) {
	for after, final := range map[time.Duration]bool{0: true, 2 * time.Second: false} {
		err := forTemporal(everonce.Unknown, &everonce.Error{Outcome: everonce.Unknown, Sentinel: everonce.ErrOutcomeUnknown, RetryAfter: after})
		app, ok := errors.AsType[*temporal.ApplicationError](err)
		if !ok || app.Type() != "unknown" || app.NonRetryable() != final || app.NextRetryDelay() != after {
			t.Errorf("with a RetryAfter of %v: %v", after, err)
		}
	}
}

// TestNotDone: what the gateway has refused to begin is tried again by Temporal's retry policy.
func TestNotDone(t *testing.T) {
	g := &gateway{}
	g.fail = func(context.Context, string) error {
		if g.charges.Load() < 3 {
			return everonce.NotDone(errors.New("gateway busy"))
		}
		return nil
	}
	receipts, err := run(t, newActivities(t, g).Charge, Order{ID: "7"})
	if err != nil || len(receipts) != 1 {
		t.Fatalf("receipts %v, %v", receipts, err)
	}
	if n := g.charges.Load(); n != 3 {
		t.Errorf("%d calls of the gateway, want 3", n)
	}
}

// TestTheStoreIsAway: nothing was charged, and Temporal tries again by its retry policy, until the store is back: after
// more claims than one attempt makes.
func TestTheStoreIsAway(t *testing.T) {
	r, err := everonce.NewReceiver(failing(oncetest.OpClaim, 4), everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{}
	receipts, err := run(t, (&Activities{Receiver: r, Gateway: g}).Charge, Order{ID: "7"})
	if err != nil || len(receipts) != 1 || g.charges.Load() != 1 {
		t.Errorf("receipts %v, %v, after %d charges", receipts, err, g.charges.Load())
	}
	lost := &everonce.Error{Outcome: everonce.LeaseLost, Sentinel: everonce.ErrLeaseLost}
	if got := forTemporal(everonce.LeaseLost, lost); got != error(lost) { //nolint:errorlint // the very error
		t.Errorf("for a lost lease Temporal gets %v", got)
	}
}

// TestStillRunning: Temporal gave an attempt up that still runs. The next one gets the time at which to try again.
func TestStillRunning(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	g := &gateway{fail: func(context.Context, string) error {
		close(inside)
		<-leave
		return nil
	}}
	a := newActivities(t, g)
	attempt := func() (Receipt, error) { // each environment gives its first activity the same ID
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestActivityEnvironment()
		env.RegisterActivity(a.Charge)
		got, err := env.ExecuteActivity(a.Charge, Order{ID: "7"})
		var r Receipt
		if err == nil {
			err = got.Get(&r)
		}
		return r, err
	}
	first := make(chan error, 1)
	go func() {
		_, err := attempt()
		first <- err
	}()
	<-inside
	_, err := attempt()
	app, ok := errors.AsType[*temporal.ApplicationError](err)
	if !ok || app.Type() != "in_progress" || app.NonRetryable() || app.NextRetryDelay() <= 0 {
		t.Errorf("the second attempt: %v, want in_progress with a delay", err)
	}
	close(leave)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if r, err := attempt(); err != nil || r.Number != "receipt-7" {
		t.Errorf("the third attempt: %v, %v; want the receipt", r, err)
	}
	if n := g.charges.Load(); n != 1 {
		t.Errorf("%d charges, want 1", n)
	}
}

// TestNotRecorded: the charge is made and the store is gone. Temporal takes the receipt.
func TestNotRecorded(t *testing.T) {
	store := failing(oncetest.OpComplete, math.MaxInt)
	r, err := everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{CompletionTimeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{}
	receipts, err := run(t, (&Activities{Receiver: r, Gateway: g}).Charge, Order{ID: "7"})
	if err != nil || len(receipts) != 1 || receipts[0].Number != "receipt-7" {
		t.Fatalf("receipts %v, %v", receipts, err)
	}
	if n := g.charges.Load(); n != 1 {
		t.Errorf("%d charges, want 1", n)
	}
}

// TestDeclinedAndNotRecorded: nothing was charged and the store is gone. Temporal takes no receipt.
func TestDeclinedAndNotRecorded(t *testing.T) {
	r, err := everonce.NewReceiver(failing(oncetest.OpComplete, math.MaxInt), everonce.Refuse, &everonce.Options{CompletionTimeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{fail: func(context.Context, string) error { return everonce.Permanent("card_declined", nil, nil) }}
	receipts, err := run(t, (&Activities{Receiver: r, Gateway: g}).Charge, Order{ID: "7"})
	if len(receipts) != 0 {
		t.Errorf("receipts %v of a charge that was declined", receipts)
	}
	refused(t, err, "not_recorded")
	if !strings.Contains(err.Error(), "card_declined") {
		t.Errorf("%v does not say that the card was declined", err)
	}
}

// failing returns a store whose first n calls of op fail.
func failing(op oncetest.Op, n int) everonce.Store {
	return oncetest.FaultStore(memstore.New(nil), func(c oncetest.Call) oncetest.Fault {
		if c.Op == op && c.N <= n {
			return oncetest.FailBefore
		}
		return oncetest.Pass
	})
}

func refused(t *testing.T, err error, want string) {
	t.Helper()
	app, ok := errors.AsType[*temporal.ApplicationError](err)
	if !ok || app.Type() != want || !app.NonRetryable() {
		t.Fatalf("the workflow ended with %v, want the type %s, not to be retried", err, want)
	}
}
