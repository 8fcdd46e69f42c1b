package pgxstore_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/driver/drivertest"
	"github.com/everonce/everonce/store/pgxstore"
)

// TestConformanceByAnotherClock runs the suite on a server whose clock is years from this process's clock, stands
// still, and is moved (rule 2). Sessions find the clock_timestamp() of their schema before the server's own.
func TestConformanceByAnotherClock(t *testing.T) {
	const conns = 8
	drivertest.Run(t, func(t testing.TB) drivertest.Harness {
		schema := newSchema(t)
		mustExec(t, "CREATE TABLE "+schema+".clock AS SELECT timestamptz '2040-05-04 03:02:01+00' AS at")
		mustExec(t, "CREATE FUNCTION "+schema+".clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT at FROM "+schema+".clock'")
		pool := newPool(t, func(config *pgx.ConnConfig) { config.RuntimeParams["search_path"] = schema + ", pg_catalog" }, conns)
		opts := &pgxstore.Options{Schema: schema, Listen: true}
		store, err := pgxstore.New(pool, opts)
		noErr(t, err)
		peer, err := pgxstore.New(pool, opts)
		noErr(t, err)
		noErr(t, store.Migrate(t.Context()))
		advance := func(d time.Duration) {
			mustExec(t, "UPDATE "+schema+".clock SET at = at + make_interval(secs => $1)", d.Seconds())
		}
		h := harness(t, schema, store, peer)
		h.Advance = advance
		return h
	}, variant())
}
