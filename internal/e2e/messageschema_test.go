package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/testserver"
)

// A consumer whose store has no tables ends at its start, and says what to run: waiting would not make them. Its
// messages remain in the queue.
func TestMessagesForAStoreWithoutTables(t *testing.T) {
	t.Parallel()
	s := newCutStream(t, "rabbitmq", wayTx)
	s.spec.Postgres = testserver.URL(t, "postgres")
	pool, err := s.spec.pool(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	recv, err := everonce.NewTxReceiver[pgx.Tx](postgresStore(t, s, pool), nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := consume.NewTx(recv, consume.TxSpec[operation, pgx.Tx]{
		Consumer: s.way, Key: consume.ProducerID(),
		Handle: func(context.Context, pgx.Tx, *consume.Message, operation) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.out.publish(s.ctx, s.way, []int{0}); err != nil {
		t.Fatal(err)
	}
	c, err := s.spec.broker().consumer(t.Context(), s.way, h, quickWorkers)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(s.ctx); !errors.Is(err, everonce.ErrSchema) || !strings.Contains(err.Error(), "Migrate") {
		t.Errorf("it ended with %v", err)
	}
	for left := map[string]int{}; left[s.way] != 1; { // a count follows what the broker has been given back
		if left, err = s.spec.waiting(s.way); err != nil {
			t.Fatal(err)
		}
	}
}
