// Command reconcile charges through a gateway whose answer gets lost, and asks the gateway what became of
// the charge before it does anything else.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// Receipt is the gateway's.
type Receipt struct{ Number string }

// charge makes a charge, or finds the one that an earlier attempt made.
func charge(ctx context.Context, r *everonce.Receiver, g *gateway, order string) (everonce.Result[Receipt], error) {
	key := everonce.Key{Scope: everonce.ScopeOf("shop", "charge"), ID: order}
	return everonce.Do(ctx, r, key, func(ctx context.Context, a *everonce.Attempt) (Receipt, error) {
		return g.charge(ctx, a.DownstreamKey("charge"))
	}, everonce.WithReconcile(func(ctx context.Context, a everonce.Abandoned) (everonce.Verdict[Receipt], error) {
		receipt, found, err := g.find(ctx, a.Downstream("charge"))
		switch {
		case err != nil:
			return everonce.StillUnknown[Receipt](), err
		case found:
			return everonce.Happened(receipt), nil
		}
		// Safe because this gateway takes a key once: if the old call is still on its way, one of the
		// two calls will be dropped.
		return everonce.NotHappened[Receipt](), nil
	}))
}

// gateway takes each key once, and can be asked. How its next call goes is set beforehand.
type gateway struct {
	made map[string]Receipt
	next func(take func() Receipt) (Receipt, error)
	down bool
}

func (g *gateway) charge(_ context.Context, key string) (Receipt, error) {
	return g.next(func() Receipt {
		if _, ok := g.made[key]; !ok {
			g.made[key] = Receipt{fmt.Sprintf("receipt-%d", len(g.made)+1)}
		}
		return g.made[key]
	})
}

func (g *gateway) find(_ context.Context, key string) (Receipt, bool, error) {
	if g.down {
		return Receipt{}, false, errors.New("the gateway does not answer")
	}
	r, ok := g.made[key]
	return r, ok, nil
}

func goesWell(take func() Receipt) (Receipt, error) { return take(), nil }

func losesTheAnswer(take func() Receipt) (Receipt, error) {
	take()
	return Receipt{}, errors.New("timeout")
}

func losesTheRequest(func() Receipt) (Receipt, error) { return Receipt{}, errors.New("timeout") }

func main() {
	dir, err := os.MkdirTemp("", "everonce-reconcile-")
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
	receiver, err := everonce.NewReceiver(store, everonce.Reconcile, nil)
	if err != nil {
		return err
	}
	g := &gateway{made: map[string]Receipt{}}
	deliver := func(order, how string) {
		res, err := charge(ctx, receiver, g, order)
		fmt.Fprintf(out, "%s, %s: %v", order, how, res.Outcome)
		if err == nil {
			fmt.Fprintf(out, " %s", res.Value.Number)
		}
		if res.Reconciled {
			fmt.Fprint(out, ", found by asking")
		}
		fmt.Fprintln(out)
	}
	g.next = losesTheAnswer
	deliver("order-1", "the answer is lost")
	g.next = goesWell
	deliver("order-1", "again")
	deliver("order-1", "again")

	g.next = losesTheRequest
	deliver("order-2", "the request is lost")
	g.down = true
	deliver("order-2", "while the gateway is down")
	g.next, g.down = goesWell, false
	deliver("order-2", "when it is back")
	fmt.Fprintln(out, "charges at the gateway:", len(g.made))
	return nil
}
