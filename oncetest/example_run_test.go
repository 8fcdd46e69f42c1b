package oncetest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/store/memstore"
)

// mailer is the application: it mails an invoice, and must not mail it twice.
type mailer struct {
	recv    *everonce.Receiver
	gateway interface {
		Call(ctx context.Context, key, request string) (oncetest.Receipt, error)
	}
}

// mail is what the tests deliver to.
func (m *mailer) mail(ctx context.Context, customer, invoice string, amount int) (everonce.Result[oncetest.Receipt], error) {
	key := everonce.Key{Scope: everonce.ScopeOf(customer, "invoices"), ID: invoice}
	return everonce.Do(ctx, m.recv, key, func(ctx context.Context, a *everonce.Attempt) (oncetest.Receipt, error) {
		return m.gateway.Call(ctx, a.DownstreamKey("mail"), customer+"/"+invoice)
	}, everonce.FingerprintOf(amount))
}

// testMailer is what would be called TestMailer in an application.
func testMailer(t *testing.T) {
	oncetest.Run(t, oncetest.Subject{
		// At most one mail: what may have been sent is not sent again.
		Mode: oncetest.Refuse,
		New: func(tb testing.TB, f *oncetest.Faults) oncetest.System {
			return mailerSystem(tb, f, memstore.New(nil), oncetest.NewGateway(nil))
		},
		Capabilities: oncetest.Capabilities{
			Marks: true, Keys: true, Clients: true, Fingerprints: true, Concurrency: true,
			EffectFaults: true, StoreFaults: true, Restarts: true,
		},
		// Nothing leaves this process, so its time can be fake.
		Bubble: true,
	})
}

// mailerSystem builds the application over a store and a gateway: at the start of a test, and again after
// its process "died", over the same two.
func mailerSystem(tb testing.TB, f *oncetest.Faults, store everonce.Store, gateway *oncetest.Gateway) oncetest.System {
	tb.Helper()
	recv, err := everonce.NewReceiver(oncetest.FaultStore(store, f.Plan()), everonce.Refuse, nil)
	if err != nil {
		tb.Fatal(err)
	}
	m := &mailer{recv: recv, gateway: gateway.With(f.Plan())}
	return oncetest.System{
		Deliver: func(ctx context.Context, op oncetest.Operation) oncetest.Answer {
			return oncetest.AnswerOf(m.mail(ctx, op.Client, op.Key, op.Amount))
		},
		Effects: func(_ context.Context, op oncetest.Operation) (int, error) {
			return len(gateway.Requested(op.Client + "/" + op.Key)), nil
		},
		Restart: func(f *oncetest.Faults) oncetest.System { return mailerSystem(tb, f, store, gateway) },
	}
}

// An application that mails invoices. testMailer is its test; here the application alone, sent an invoice
// twice.
func Example() {
	gateway := oncetest.NewGateway(nil)
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	m := &mailer{recv: recv, gateway: gateway}
	for range 2 {
		res, err := m.mail(context.Background(), "customer-1", "invoice-7", 1250)
		fmt.Println(res.Outcome, res.Value.ID, err)
	}
	fmt.Println("mails:", gateway.Total())
	// Output:
	// executed r-1 <nil>
	// replayed r-1 <nil>
	// mails: 1
}
