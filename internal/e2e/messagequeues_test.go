package e2e

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/pgxstore"
)

// openSchema makes a schema with the records and the effects, which is gone after the test.
func (s *messageSpec) openSchema(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := s.pool(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store, err := pgxstore.New(pool, &pgxstore.Options{Schema: s.Schema})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := pool.Exec(context.Background(), `DROP SCHEMA `+s.Schema+` CASCADE`); err != nil {
			t.Error(err)
		}
	})
	if _, err := pool.Exec(t.Context(), `CREATE TABLE effect (way TEXT NOT NULL, op BIGINT NOT NULL)`); err != nil { // nothing makes them unique
		t.Fatal(err)
	}
	return pool
}

// declare declares queues, as any consumer does, which are gone after the test.
func (s *messageSpec) declare(t *testing.T, ways ...string) {
	t.Helper()
	nobody, err := consume.NewNatural(consume.NaturalSpec[operation]{
		Consumer: "nobody", Key: consume.ProducerID(),
		Handle: func(context.Context, *consume.Message, operation) (bool, error) { return false, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range ways {
		c, err := rabbitonce.Dial(t.Context(), s.Broker, s.queue(way), nobody, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { s.deleteQueues(t, ways) })
}

func (s *messageSpec) deleteQueues(t *testing.T, ways []string) {
	t.Helper()
	conn, err := dialBroker(s.Broker)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.cut()
	defer conn.bound()()
	ch, err := conn.Channel()
	if err != nil {
		t.Error(err)
		return
	}
	for _, q := range s.queues(ways) {
		if _, err := ch.QueueDelete(q, false, false, false); err != nil {
			t.Error(err)
			return
		}
	}
}

// queues are the names of all queues.
func (s *messageSpec) queues(ways []string) (names []string) {
	for _, way := range ways {
		q := s.queue(way)
		names = append(names, q.Name, q.Name+".dead")
		for _, d := range q.Delays {
			names = append(names, q.Name+".retry."+d.String())
		}
	}
	return names
}

// waiting is how many messages are in the queues: those that a worker has in hand are in none.
func (s *messageSpec) waiting(ways ...string) (map[string]int, error) {
	conn, err := dialBroker(s.Broker)
	if err != nil {
		return nil, err
	}
	defer conn.cut()
	defer conn.bound()()
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, name := range s.queues(ways) {
		q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		if err != nil {
			return nil, err
		}
		if q.Messages > 0 {
			counts[name] = q.Messages
		}
	}
	return counts, nil
}
