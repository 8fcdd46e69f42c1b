// Command steps places an order: a charge in the database, an e-mail, a webhook, an analytics event and a
// metric in one operation, each once, though the first delivery breaks off in the middle.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// Order is what arrives, any number of times.
type Order struct {
	ID    string
	Cents int64
}

// shop has two receivers on one store: what is in its database, and what is not.
type shop struct {
	guarded  *everonce.Receiver
	database *everonce.TxReceiver[*sql.Tx]
	outside  *outside
	placed   int // a metric
}

// place executes all effects of an order. Its result is the balance.
func (s *shop) place(ctx context.Context, o Order) (everonce.Result[int64], error) {
	key := everonce.Key{Scope: everonce.ScopeOf("shop", "place"), ID: o.ID}
	res, err := everonce.Do(ctx, s.guarded, key, func(ctx context.Context, a *everonce.Attempt) (int64, error) {
		// In the database: the charge, its record and the check of the attempt are one commit.
		balance, err := everonce.StepTx(ctx, a, s.database, "charge", func(ctx context.Context, tx *sql.Tx) (balance int64, err error) {
			err = tx.QueryRowContext(ctx, `UPDATE account SET cents = cents - ? RETURNING cents`, o.Cents).Scan(&balance)
			return balance, err
		})
		if err != nil {
			return 0, err
		}
		// A mail cannot be taken back, and the mail server knows no keys: never twice.
		_, err = everonce.Step(ctx, a, "mail", func(ctx context.Context) (struct{}, error) {
			return struct{}{}, s.outside.mail(ctx, o)
		}, everonce.WithPolicy(everonce.Refuse))
		if err != nil {
			return 0, err
		}
		// The partner and the analytics take a key and drop what they have: again, when in doubt.
		_, err = everonce.Step(ctx, a, "webhook", func(ctx context.Context) (struct{}, error) {
			return struct{}{}, s.outside.webhook(ctx, o, a.DownstreamKey("webhook"))
		}, everonce.WithPolicy(everonce.Reexecute))
		if err != nil {
			return 0, err
		}
		_, err = everonce.Step(ctx, a, "event", func(ctx context.Context) (struct{}, error) {
			return struct{}{}, s.outside.event(ctx, o, a.DownstreamKey("event"))
		}, everonce.WithPolicy(everonce.Reexecute))
		return balance, err
	}, everonce.EffectsInSteps(), everonce.FingerprintOf(o.Cents))
	if res.Outcome == everonce.Executed {
		s.placed++ // a count of effects counts this outcome only
	}
	return res, err
}

// outside is the world: it writes down what reaches it. The first mail is taken, and its answer lost.
type outside struct {
	out   io.Writer
	mails int
}

func (w *outside) mail(_ context.Context, o Order) error {
	w.mails++
	fmt.Fprintln(w.out, "  mail for", o.ID)
	if w.mails == 1 {
		return errors.New("connection reset by the mail server")
	}
	return nil
}

func (w *outside) webhook(ctx context.Context, o Order, key string) error {
	fmt.Fprintf(w.out, "  webhook for %s, key %s…\n", o.ID, key[:8])
	return ctx.Err()
}

func (w *outside) event(ctx context.Context, o Order, key string) error {
	fmt.Fprintf(w.out, "  event for %s, key %s…\n", o.ID, key[:8])
	return ctx.Err()
}

func main() {
	dir, err := os.MkdirTemp("", "everonce-steps-")
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), os.Stdout, filepath.Join(dir, "shop.db"))
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, file string) (err error) {
	store, err := sqlitestore.Open(ctx, file, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	s := &shop{outside: &outside{out: out}}
	if s.guarded, err = everonce.NewReceiver(store, everonce.Refuse, nil); err != nil {
		return err
	}
	if s.database, err = everonce.NewTxReceiver(store, nil); err != nil {
		return err
	}
	for _, text := range []string{`CREATE TABLE account (cents INTEGER NOT NULL)`, `INSERT INTO account VALUES (5000)`} {
		if _, err := store.DB().ExecContext(ctx, text); err != nil {
			return err
		}
	}
	deliver := func() {
		res, err := s.place(ctx, Order{ID: "order-7", Cents: 1200})
		fmt.Fprintf(out, "%v, balance %d", res.Outcome, res.Value)
		if e, ok := errors.AsType[*everonce.Error](err); ok {
			fmt.Fprintf(out, ", because of the step %q", e.Step)
		}
		fmt.Fprintln(out)
	}
	deliver()
	deliver()

	// Somebody looks into the mail server's log, and finds the mail.
	key := everonce.Key{Scope: everonce.ScopeOf("shop", "place"), ID: "order-7"}
	err = s.guarded.Settle(ctx, key, everonce.Settlement{Verdict: everonce.SettleDone, Step: "mail", Value: struct{}{}})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "settled: the mail was sent")

	deliver()
	deliver()
	fmt.Fprintln(out, "orders placed:", s.placed)
	return nil
}
