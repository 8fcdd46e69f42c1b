package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/saga"
)

// inShop runs do with a database in a temporary file.
func inShop(do func(ctx context.Context, receiver *everonce.TxReceiver[*sql.Tx]) error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "everonce-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir) //nolint:errcheck // of the example
	d, err := openDatabase(ctx, filepath.Join(dir, "shop.db"), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.close() //nolint:errcheck // of the example
	if err := do(ctx, d.receiver); err != nil {
		fmt.Println(err)
	}
}

// The third step is refused for good, so the first two are compensated, the last one first.
func Example_saga() {
	inShop(func(ctx context.Context, receiver *everonce.TxReceiver[*sql.Tx]) error {
		says := func(what string) func(context.Context, *saga.Call[Order]) (any, error) {
			return func(_ context.Context, c *saga.Call[Order]) (any, error) {
				fmt.Println(what, c.Input.Item)
				return nil, nil
			}
		}
		undoes := func(what string) func(context.Context, *saga.Call[Order]) error {
			return func(context.Context, *saga.Call[Order]) error { fmt.Println(what); return nil }
		}
		fulfil, err := saga.Define("fulfilment", 1,
			saga.Step[Order, *sql.Tx]{Name: "reserve", Action: says("reserve"), Compensation: undoes("release")},
			saga.Step[Order, *sql.Tx]{Name: "charge", Action: says("charge"), Compensation: undoes("refund")},
			saga.Step[Order, *sql.Tx]{Name: "ship", Final: true, Action: func(context.Context, *saga.Call[Order]) (any, error) {
				return nil, everonce.Permanent("address", errors.New("no carrier delivers there"), nil)
			}},
		)
		if err != nil {
			return err
		}
		sagas, err := saga.New(receiver)
		if err != nil {
			return err
		}
		if err := sagas.Migrate(ctx); err != nil {
			return err
		}
		err = receiver.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return fulfil.Start(ctx, sagas, tx, "order-7", Order{Item: "lamp"}) // beside what else the order writes
		})
		if err != nil {
			return err
		}
		ctx, end := context.WithCancel(ctx)
		runner, err := sagas.Runner(&saga.RunnerOptions{Observe: func(_ context.Context, v saga.Report) {
			fmt.Println(v.ID, v.Status, v.Err)
			end()
		}}, fulfil)
		if err != nil {
			return err
		}
		return runner.Run(ctx)
	})
	// Output:
	// reserve lamp
	// charge lamp
	// refund
	// release
	// order-7 compensated the step "ship" failed: address: no carrier delivers there
}

// A compensation that keeps failing waits for an operator, who skips it.
func Example_operator() {
	inShop(func(ctx context.Context, receiver *everonce.TxReceiver[*sql.Tx]) error {
		sagas, err := saga.New(receiver)
		if err != nil {
			return err
		}
		if err := sagas.Migrate(ctx); err != nil {
			return err
		}
		fulfil, err := saga.Define("fulfilment", 1,
			saga.Step[Order, *sql.Tx]{
				Name: "charge", Retry: consume.RetryPolicy{Limit: 1, Min: 1, Max: 1},
				Action:       func(context.Context, *saga.Call[Order]) (any, error) { return "receipt 5", nil },
				Compensation: func(context.Context, *saga.Call[Order]) error { return errors.New("the bank is closed") },
			},
			saga.Step[Order, *sql.Tx]{Name: "ship", Final: true, Action: func(context.Context, *saga.Call[Order]) (any, error) {
				return nil, everonce.Permanent("address", errors.New("no carrier delivers there"), nil)
			}},
		)
		if err != nil {
			return err
		}
		if err := receiver.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return fulfil.Start(ctx, sagas, tx, "order-7", Order{}) }); err != nil {
			return err
		}
		ctx, end := context.WithCancel(ctx)
		runner, err := sagas.Runner(&saga.RunnerOptions{Observe: func(ctx context.Context, v saga.Report) {
			if v.Waits {
				if err := operate(ctx, sagas); err != nil {
					fmt.Println(err)
				}
			}
			if v.Status == saga.Compensated {
				fmt.Println(v.ID, v.Status)
				end()
			}
		}}, fulfil)
		if err != nil {
			return err
		}
		return runner.Run(ctx)
	})
	// Output:
	// order-7 waits: saga: the compensation of "charge" failed: step "undo:charge": the bank is closed
	// charge compensation=false: done
	// ship compensation=false: failed
	// charge compensation=true: open
	// order-7 compensated
}

// operate is what an operator does about sagas that wait for one.
func operate(ctx context.Context, sagas *saga.Sagas[*sql.Tx]) error {
	waiting, err := sagas.Backlog().List(ctx, backlog.Filter{States: []backlog.State{backlog.Blocked}})
	if err != nil {
		return err
	}
	for _, entry := range waiting {
		fmt.Println(entry.ID, "waits:", entry.Error)
		s, err := sagas.Get(ctx, entry.ID)
		if err != nil {
			return err
		}
		for _, step := range s.Steps {
			fmt.Printf("%s compensation=%t: %s\n", step.Name, step.Compensation, step.State)
		}
		// The money was given back by hand.
		if err := sagas.Skip(ctx, entry.ID, "charge"); err != nil {
			return err
		}
	}
	return nil
}

// A compensation that comes first has nothing to undo, and the action is refused when it comes.
func Example_participant() {
	inShop(func(ctx context.Context, receiver *everonce.TxReceiver[*sql.Tx]) error {
		stock, err := saga.NewParticipant(receiver, "stock", everonce.Lifetime{})
		if err != nil {
			return err
		}
		reserve := func(context.Context, *sql.Tx) (string, error) { fmt.Println("reserved"); return "shelf 4", nil }
		release := func(context.Context, *sql.Tx) error { fmt.Println("released"); return nil }

		b := saga.Branch{Saga: "order-7", Step: "reserve"}
		for range 2 { // the second is a repetition
			res, err := saga.Action(ctx, stock, b, reserve)
			fmt.Println(res.Value, res.Outcome, err)
		}
		fmt.Println(stock.Compensate(ctx, b, release))

		late := saga.Branch{Saga: "order-8", Step: "reserve"}
		fmt.Println(stock.Compensate(ctx, late, release))
		_, err = saga.Action(ctx, stock, late, reserve)
		fmt.Println(errors.Is(err, saga.ErrCancelled))
		return nil
	})
	// Output:
	// reserved
	// shelf 4 executed <nil>
	// shelf 4 replayed <nil>
	// released
	// <nil>
	// <nil>
	// true
}
