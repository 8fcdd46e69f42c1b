package pgxstore_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/store/pgxstore"
)

// Migrate refuses a server that has one session for all connections. In its place, a function of the schema gives its
// version.
func TestAServerWithOneSession(t *testing.T) {
	t.Parallel()
	schema := newSchema(t)
	_, err := newPool(t, nil, 0).Exec(t.Context(), "CREATE FUNCTION "+pgx.Identifier{schema}.Sanitize()+
		".version() RETURNS text LANGUAGE sql AS $$SELECT 'PostgreSQL 18.6 (PGlite 0.5.14) on wasm32'$$")
	noErr(t, err)
	pool := newPool(t, func(c *pgx.ConnConfig) { c.RuntimeParams["search_path"] = schema + ", pg_catalog" }, 0)
	s, err := pgxstore.New(pool, &pgxstore.Options{Schema: schema})
	noErr(t, err)
	if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "one session for all connections") {
		t.Errorf("Migrate: %v, want the cause", err)
	}
}
