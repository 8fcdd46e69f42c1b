package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/inbox"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/saga"
	"github.com/everonce/everonce/store/sqlitestore"
)

// fill makes an outbox, an inbox and sagas with an entry in each state, under IDs that say which: "blocked" has
// "behind" waiting for it, "dead-1" and "dead-2" have nothing behind them, and "later" is not due for an hour.
func fill[Tx any](store driver.TxStore[Tx]) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	r, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		return err
	}
	if err := fillOutbox(ctx, r); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	if err := fillInbox(ctx, r); err != nil {
		return fmt.Errorf("inbox: %w", err)
	}
	if err := fillSagas(ctx, r); err != nil {
		return fmt.Errorf("saga: %w", err)
	}
	return nil
}

var errRefused = everonce.Permanent("refused", errors.New("not wanted"), nil)

func fillOutbox[Tx any](ctx context.Context, r *everonce.TxReceiver[Tx]) error {
	box, err := outbox.New(r, nil)
	if err != nil {
		return err
	}
	if err := box.Migrate(ctx); err != nil {
		return err
	}
	if err := r.InTx(ctx, func(ctx context.Context, tx Tx) error {
		return box.Publish(ctx, tx,
			outbox.Event{ID: "done", Topic: "orders", Type: "order.placed", Payload: []byte(`{"order":1}`)},
			outbox.Event{ID: "blocked", Topic: "orders", Key: "alice", Type: "order.placed", Headers: map[string]string{"traceparent": "00-1"}, Payload: []byte(`{"card":"4242"}`)},
			outbox.Event{ID: "behind", Topic: "orders", Key: "alice", Payload: []byte(`{}`)},
			outbox.Event{ID: "dead-1", Topic: "mails", Payload: []byte(`{}`)},
			outbox.Event{ID: "dead-2", Topic: "mails", ContentType: "image/png", Payload: []byte("\xff\x00")},
			outbox.Event{ID: "later", Topic: "mails", NotBefore: time.Now().Add(time.Hour), Payload: []byte(`{}`)})
	}); err != nil {
		return err
	}
	ended := make(chan struct{}, 100)
	relay, err := box.Relay(outbox.One(1, func(_ context.Context, e *outbox.Event) error {
		if e.ID == "done" {
			return nil
		}
		return errRefused
	}), &outbox.RelayOptions{
		Log: slog.New(slog.DiscardHandler), NoListen: true, SkipFailed: func(topic string) bool { return topic == "mails" },
		Observe: func(_ context.Context, _ *outbox.Event, v outbox.Report) {
			if v.How == outbox.Published || v.How == outbox.SetAside {
				ended <- struct{}{}
			}
		},
	})
	if err != nil {
		return err
	}
	return until(ctx, ended, 4, relay.Run)
}

func fillInbox[Tx any](ctx context.Context, r *everonce.TxReceiver[Tx]) error {
	in, err := inbox.New(r, "billing", nil)
	if err != nil {
		return err
	}
	if err := in.Migrate(ctx); err != nil {
		return err
	}
	for id, kind := range map[string]string{"done": "order.placed", "dead": "order.paid", "strange": "order.lost"} {
		if _, err := in.Receive(ctx, &consume.Message{ID: id, Source: "shop", Subject: kind, Body: []byte(`{"card":"4242"}`)}); err != nil {
			return err
		}
	}
	ended := make(chan struct{}, 100)
	worker, err := in.Worker(inbox.Handler[Tx]{
		Types: []string{"order.placed", "order.paid"},
		Handle: func(_ context.Context, _ Tx, m *consume.Message) error {
			if m.ID == "done" {
				return nil
			}
			return errRefused
		},
	}, &inbox.WorkerOptions{
		Log: slog.New(slog.DiscardHandler), NoListen: true, SkipFailed: true,
		Observe: func(context.Context, *consume.Message, inbox.Report) { ended <- struct{}{} },
	})
	if err != nil {
		return err
	}
	return until(ctx, ended, 2, worker.Run)
}

func fillSagas[Tx any](ctx context.Context, r *everonce.TxReceiver[Tx]) error {
	sagas, err := saga.New(r)
	if err != nil {
		return err
	}
	if err := sagas.Migrate(ctx); err != nil {
		return err
	}
	type order struct{ Card string }
	fulfil, err := saga.Define("fulfilment", 1,
		saga.Step[order, Tx]{
			Name: "reserve", Retry: consume.RetryPolicy{Limit: 1, Min: time.Millisecond, Max: time.Millisecond}, Action: func(context.Context, *saga.Call[order]) (any, error) { return "shelf 4", nil },
			Compensation: func(context.Context, *saga.Call[order]) error { return errRefused },
		},
		saga.Step[order, Tx]{Name: "charge", Final: true, Action: func(_ context.Context, c *saga.Call[order]) (any, error) {
			if c.Saga == "done" {
				return nil, nil
			}
			return nil, errRefused
		}})
	if err != nil {
		return err
	}
	if err := r.InTx(ctx, func(ctx context.Context, tx Tx) error {
		return errors.Join(fulfil.Start(ctx, sagas, tx, "done", order{"4242"}), fulfil.Start(ctx, sagas, tx, "stuck", order{"4242"}))
	}); err != nil {
		return err
	}
	ended := make(chan struct{}, 100)
	runner, err := sagas.Runner(&saga.RunnerOptions{Log: slog.New(slog.DiscardHandler), NoListen: true, Observe: func(_ context.Context, v saga.Report) {
		if v.Waits || v.Status == saga.Completed {
			ended <- struct{}{}
		}
	}}, fulfil)
	if err != nil {
		return err
	}
	return until(ctx, ended, 2, runner.Run)
}

// until runs something until so many have ended.
func until(ctx context.Context, ended <-chan struct{}, n int, run func(context.Context) error) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	result := make(chan error, 1)
	go func() { result <- run(running) }()
	for range n {
		select {
		case <-ended:
		case err := <-result:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	stop()
	return <-result
}

func filled(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: filled FILE")
	}
	store, err := sqlitestore.Open(context.Background(), ts.MkAbs(args[0]), nil)
	ts.Check(err)
	ts.Check(fill(store))
	ts.Check(store.Close())
}

// writeSQL writes into a file of SQLite, as another program may.
func writeSQL(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sql FILE STATEMENT")
	}
	store, err := sqlitestore.Open(context.Background(), ts.MkAbs(args[0]), nil)
	ts.Check(err)
	_, err = store.DB().ExecContext(context.Background(), args[1])
	ts.Check(err)
	ts.Check(store.Close())
}
