package e2e

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

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

// declare makes the queues of ways, which are gone after the test.
func (s *messageSpec) declare(t *testing.T, ways []string) {
	t.Helper()
	b := s.broker()
	if err := b.declare(t.Context(), ways); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.remove(context.Background(), ways); err != nil {
			t.Error(err)
		}
	})
}

func (s *messageSpec) waiting(ways ...string) (map[string]int, error) {
	return s.broker().waiting(ways)
}
