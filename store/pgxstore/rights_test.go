package pgxstore_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/pgxstore"
)

// newRole makes a role that may do nothing yet, and is gone after the test.
func newRole(t testing.TB) string {
	t.Helper()
	role := "everonce_" + random(t)
	mustExec(t, "CREATE ROLE "+role)
	t.Cleanup(func() { mustExec(t, "DROP ROLE "+role) })
	return role
}

// applySchema creates the tables as an administrator does, from their text.
func applySchema(t testing.TB, opts *pgxstore.Options) {
	t.Helper()
	store, err := pgxstore.New(admin(t), opts)
	noErr(t, err)
	mustExec(t, store.Schema())
}

// The grants of docs/reference/stores.md.
func grantService(t testing.TB, schema, role string) {
	t.Helper()
	mustExec(t, "GRANT USAGE ON SCHEMA "+schema+" TO "+role)
	mustExec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON "+schema+".everonce_record, "+schema+".everonce_step TO "+role)
	mustExec(t, "GRANT SELECT, INSERT ON "+schema+".everonce_meta TO "+role)
}

func grantReader(t testing.TB, schema, role string) {
	t.Helper()
	mustExec(t, "GRANT USAGE ON SCHEMA "+schema+" TO "+role)
	mustExec(t, "GRANT SELECT ON "+schema+".everonce_record, "+schema+".everonce_step, "+schema+".everonce_meta TO "+role)
}

func as(role string) func(*pgx.ConnConfig) {
	return func(c *pgx.ConnConfig) { c.RuntimeParams["role"] = role }
}

// Once a service has started, it needs no right to write the table of settings: the store's identity is already bound.
func TestAStoreThatIsBoundNeedsNoRightToBindIt(t *testing.T) {
	t.Parallel()
	service, schema := newRole(t), newSchema(t)
	opts := pgxstore.Options{Schema: schema}
	applySchema(t, &opts)
	grantService(t, schema, service)
	for _, start := range []string{"the first", "with the right taken back"} {
		h := newPgx(t, setup{opts: opts, config: as(service), pending: true})
		noErr(t, h.store.Migrate(t.Context()))
		r, err := everonce.NewReceiver(h.store, everonce.Refuse, &everonce.Options{IdentitySecret: []byte("0123456789abcdef")})
		noErr(t, err)
		if err := r.Ready(t.Context()); err != nil {
			t.Errorf("%s: %v", start, err)
		}
		mustExec(t, "REVOKE INSERT ON "+schema+".everonce_meta FROM "+service)
	}
}

// A role that may only read can list, look up and count, and can neither settle nor purge.
func TestWhoMayOnlyRead(t *testing.T) {
	t.Parallel()
	reader, schema := newRole(t), newSchema(t)
	opts := pgxstore.Options{Schema: schema}
	applySchema(t, &opts)
	grantReader(t, schema, reader)
	writer := newPgx(t, setup{opts: opts, pending: true})
	res, err := writer.store.Claim(t.Context(), claimOf(testKey))
	decided(t, res, err, driver.DecideClaimed)
	s := newPgx(t, setup{opts: opts, config: as(reader), pending: true}).store
	if page, err := s.List(t.Context(), driver.ListRequest{Steps: true}); err != nil || len(page.Records) != 1 {
		t.Errorf("List: %d records, %v", len(page.Records), err)
	}
	if got, err := s.Get(t.Context(), driver.GetRequest{ID: testKey.RecordID()}); err != nil || !got.Found {
		t.Errorf("Get: %v, %v", got.Found, err)
	}
	if h, err := s.Health(t.Context(), driver.HealthRequest{}); err != nil || h.Claimed != 1 {
		t.Errorf("Health: %+v, %v", h, err)
	}
	if err := everonce.Settle(t.Context(), s, testKey.RecordID(), everonce.Settlement{Verdict: everonce.SettleNotDone, Force: true}); !errors.Is(err, driver.ErrStore) {
		t.Errorf("Settle: %v, want ErrStore", err)
	}
	if _, err := s.Purge(t.Context(), driver.PurgeRequest{}); !errors.Is(err, driver.ErrStore) {
		t.Errorf("Purge: %v, want ErrStore", err)
	}
	if got, err := writer.store.Get(t.Context(), driver.GetRequest{ID: testKey.RecordID()}); err != nil || got.Record.Token != res.Record.Token {
		t.Errorf("the record was changed: %+v, %v", got.Record, err)
	}
}
