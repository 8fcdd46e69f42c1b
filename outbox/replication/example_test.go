package replication_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/outbox/replication"
)

// A relay that replication wakes. If replication cannot go on, that is logged, and the relay polls.
func ExampleListen() {
	relay := func(ctx context.Context, pool *pgxpool.Pool, receiver *everonce.TxReceiver[pgx.Tx], to outbox.Publisher) error {
		box, err := outbox.New(receiver, &outbox.Options{NoAnnounce: true})
		if err != nil {
			return err
		}
		r, err := box.Relay(to, &outbox.RelayOptions{NoListen: true})
		if err != nil {
			return err
		}
		go func() { _ = replication.Listen(ctx, pool.Config().ConnConfig, box.Table(), r.Wake, nil) }()
		return r.Run(ctx)
	}
	_ = relay // see the example of package pgxstore for the pool and the receiver
}
