package tested

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/store/sqlitestore"
)

const (
	// lease is short, because the tests wait until the lease of a process that "died" has ended, and longer than a busy
	// machine delays this one.
	lease = 6 * time.Second
	// operations of the chaos: its time is real here, and so are the pauses before a retry.
	operations = 25
)

// world is what outlives a process: the database, and who mails.
type world struct {
	store *sqlitestore.Store
	mails *oncetest.Gateway
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	store, err := sqlitestore.Open(tb.Context(), filepath.Join(tb.TempDir(), "bank.db"), nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := store.Close(); err != nil {
			tb.Error(err)
		}
	})
	for _, text := range []string{Schema, `INSERT INTO account VALUES ('client-1', 1000000), ('client-2', 1000000)`} {
		if _, err := store.DB().ExecContext(tb.Context(), text); err != nil {
			tb.Fatal(err)
		}
	}
	return &world{store, oncetest.NewGateway(nil)}
}

// bank charges, as far as the test lets it.
type bank struct {
	Accounts
	faults *oncetest.Faults
}

func (b bank) Charge(ctx context.Context, tx *sql.Tx, p Payment) (balance int, err error) {
	err = b.faults.Effect(ctx, p.Client+"/"+p.ID, func() (err error) {
		balance, err = b.Accounts.Charge(ctx, tx, p)
		return err
	})
	return balance, err
}

// mailer mails, as far as the test lets it.
type mailer struct{ client *oncetest.Client }

func (m mailer) Mail(ctx context.Context, key, text string) error {
	_, err := m.client.Call(ctx, key, text)
	return err
}

// service is the application in one process.
func (w *world) service(tb testing.TB, f *oncetest.Faults) *Service {
	tb.Helper()
	store := oncetest.FaultTxStore(w.store, f.Plan())
	opts := everonce.Options{Lease: lease, TxRetries: 4} // its pauses double, up to a second
	tx, err := everonce.NewTxReceiver(store, &opts)
	if err != nil {
		tb.Fatal(err)
	}
	do, err := everonce.NewReceiver(store, everonce.Refuse, &opts)
	if err != nil {
		tb.Fatal(err)
	}
	return &Service{Bank: bank{Accounts{}, f}, Tx: tx, Do: do, Mail: mailer{w.mails.With(f.Plan())}}
}

// charges counts in the ledger.
func (w *world) charges(ctx context.Context, op oncetest.Operation) (n int, err error) {
	return n, w.store.DB().QueryRowContext(ctx,
		`SELECT count(*) FROM ledger WHERE client = ? AND payment = ?`, op.Client, op.Key).Scan(&n)
}

// sent returns the downstream keys of the mails of an operation.
func (w *world) sent(op oncetest.Operation) []string {
	return w.mails.Requested(op.Client + "/" + op.Key)
}

func payment(op oncetest.Operation) Payment {
	p := Payment{Client: op.Client, ID: op.Key, Cents: op.Amount}
	if op.Rejected {
		p.Cents = 2_000_000 // more than there is
	}
	return p
}

var capabilities = oncetest.Capabilities{
	Marks: true, Keys: true, Clients: true, Fingerprints: true, Rejections: true, Concurrency: true,
	EffectFaults: true, StoreFaults: true, Restarts: true,
}

// TestPay: charge and record commit together, so there is one charge whatever fails.
func TestPay(t *testing.T) {
	t.Parallel() // it waits, most of the time
	var system func(tb testing.TB, w *world, f *oncetest.Faults) oncetest.System
	system = func(tb testing.TB, w *world, f *oncetest.Faults) oncetest.System {
		tb.Helper()
		service := w.service(tb, f)
		return oncetest.System{
			Deliver: func(ctx context.Context, op oncetest.Operation) oncetest.Answer {
				return oncetest.AnswerOf(service.Pay(ctx, payment(op)))
			},
			Effects: w.charges,
			Restart: func(f *oncetest.Faults) oncetest.System { return system(tb, w, f) },
		}
	}
	oncetest.Run(t, oncetest.Subject{
		Mode: oncetest.Transactional, Lease: lease, Operations: operations, Capabilities: capabilities,
		New: func(tb testing.TB, f *oncetest.Faults) oncetest.System {
			tb.Helper()
			return system(tb, newWorld(tb), f)
		},
	})
}

// TestPayAndMail: at most one mail, and never a second charge. Only the mail may be unknown.
func TestPayAndMail(t *testing.T) {
	t.Parallel()
	var system func(tb testing.TB, w *world, f *oncetest.Faults) oncetest.System
	system = func(tb testing.TB, w *world, f *oncetest.Faults) oncetest.System {
		tb.Helper()
		service := w.service(tb, f)
		service.Bank = Accounts{} // of two effects, the mail is the one that the test lets fail
		return oncetest.System{
			Deliver: func(ctx context.Context, op oncetest.Operation) oncetest.Answer {
				return oncetest.AnswerOf(service.PayAndMail(ctx, payment(op)))
			},
			Effects: func(_ context.Context, op oncetest.Operation) (int, error) { return len(w.sent(op)), nil },
			SideEffects: func(ctx context.Context, op oncetest.Operation) ([]oncetest.SideEffect, error) {
				n, err := w.charges(ctx, op)
				return []oncetest.SideEffect{{Name: "charge", Key: op.Client + "/" + op.Key, Count: n}}, err
			},
			Restart: func(f *oncetest.Faults) oncetest.System { return system(tb, w, f) },
		}
	}
	c := capabilities
	c.SideEffects = true
	oncetest.Run(t, oncetest.Subject{
		Mode: oncetest.Refuse, Lease: lease, Operations: operations, Capabilities: c,
		New: func(tb testing.TB, f *oncetest.Faults) oncetest.System {
			tb.Helper()
			return system(tb, newWorld(tb), f)
		},
	})
}
