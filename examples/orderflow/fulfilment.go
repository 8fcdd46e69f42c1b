package main

import (
	"context"
	"database/sql"
	"time"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/saga"
)

// fulfilment is the saga of an order. Its first and last step are in the order service's own database, the others in
// the databases of services that are called over HTTP.
func fulfilment(to *services) (*saga.Definition[Order, *sql.Tx], error) {
	const timeout = 400 * time.Millisecond
	retry := consume.RetryPolicy{Limit: 3, Min: 20 * time.Millisecond, Max: 200 * time.Millisecond}
	return saga.Define("fulfilment", 1,
		saga.Step[Order, *sql.Tx]{Name: "accept", ActionTx: become("accepted"), CompensationTx: cancelled},
		saga.Step[Order, *sql.Tx]{
			Name: "reserve", Action: to.action("stock/reserve"), Compensation: to.compensation("stock/release"), Timeout: timeout, Retry: retry,
		},
		saga.Step[Order, *sql.Tx]{
			Name: "charge", Action: to.action("payment/charge"), Compensation: to.compensation("payment/refund"), Timeout: timeout, Retry: retry,
			Concurrent: true, // with reserve
		},
		saga.Step[Order, *sql.Tx]{
			Name: "ship", Action: to.action("shipping/ship"), Compensation: to.compensation("shipping/cancel"), Timeout: timeout, Retry: retry,
		},
		saga.Step[Order, *sql.Tx]{Name: "finish", ActionTx: become("shipped"), Final: true},
	)
}

// become returns an action that changes the order's status, in the transaction that records that it was done.
func become(status string) func(context.Context, *sql.Tx, *saga.Call[Order]) (any, error) {
	return func(ctx context.Context, tx *sql.Tx, c *saga.Call[Order]) (any, error) {
		_, err := tx.ExecContext(ctx, `UPDATE orders SET status = $1 WHERE id = $2`, status, c.Saga)
		return nil, err
	}
}

func cancelled(ctx context.Context, tx *sql.Tx, c *saga.Call[Order]) error {
	_, err := become("cancelled")(ctx, tx, c)
	return err
}
