// Command settle lists the operations with an unknown outcome, compares them with the gateway's own ledger, and settles
// them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// settleAll settles the unknown operations within a scope by the ledger, and returns how many. An operation that is not
// in the ledger is settled as not done when it has been unchanged for so long that its charge cannot arrive there any
// more: late is longer than a lease and the gateway's own timeout together.
func settleAll(ctx context.Context, store *sqlitestore.Store, r *everonce.Receiver, within everonce.Scope, ledger map[string]string, late time.Duration) (int, error) {
	settled := 0
	list := everonce.ListRequest{Scope: within, States: []everonce.State{everonce.StateAbandoned}}
	for {
		page, err := store.List(ctx, list)
		if err != nil {
			return settled, err
		}
		for _, rec := range page.Records {
			s := everonce.Settlement{Verdict: everonce.SettleNotDone, Token: rec.Token, By: "nightly settlement"}
			receipt, charged := ledger[rec.Name]
			switch {
			case rec.UnknownStep != "":
				continue // only a step is unknown, and this ledger is not the step's
			case charged:
				s.Verdict, s.Value = everonce.SettleDone, receipt // what every duplicate will get
			case page.Now.Sub(rec.UpdatedAt) < late:
				continue // the charge may still arrive: next time
			}
			err := r.Settle(ctx, everonce.Key{Scope: rec.Scope, ID: rec.Name}, s)
			switch {
			case err == nil:
				settled++
			case errors.Is(err, everonce.ErrNotUnknown), errors.Is(err, everonce.ErrInProgress), errors.Is(err, everonce.ErrLeaseLost):
				// somebody else was faster, or is at it
			case errors.Is(err, everonce.ErrCorruptRecord), errors.Is(err, everonce.ErrNewerRecord), errors.Is(err, everonce.ErrInvalidKey):
				// it cannot be read here; "everonce keys list" shows it
			default:
				return settled, err
			}
		}
		if page.Next == (everonce.RecordID{}) {
			return settled, nil
		}
		list.After = page.Next
	}
}

func main() {
	dir, err := os.MkdirTemp("", "everonce-settle-")
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
	receiver, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		return err
	}
	scope := everonce.ScopeOf("shop-1", "charge")
	ledger := map[string]string{} // the gateway's
	deliver := func(order string, gateway func() (string, error)) {
		res, _ := everonce.Do(ctx, receiver, everonce.Key{Scope: scope, ID: order}, //nolint:errcheck // the outcome tells it
			func(context.Context, *everonce.Attempt) (string, error) { return gateway() })
		fmt.Fprintln(out, strings.TrimSpace(fmt.Sprintf("%s: %v %s", order, res.Outcome, res.Value)))
	}
	deliver("order-1", func() (string, error) {
		ledger["order-1"] = "receipt-1"
		return "", errors.New("the answer was lost")
	})
	deliver("order-2", func() (string, error) { return "", errors.New("the request was lost") })
	deliver("order-1", nil)

	for _, late := range []time.Duration{time.Hour, 0} { // 0, as if the hour had passed
		n, err := settleAll(ctx, store, receiver, "shop-1", ledger, late)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "settled:", n)
		deliver("order-1", nil)
		deliver("order-2", func() (string, error) { return "receipt-2", nil })
	}
	return nil
}
