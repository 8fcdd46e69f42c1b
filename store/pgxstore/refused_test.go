package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// A value that the database refuses for its size is elided, in both modes: the first caller gets the value, and no
// other attempt runs (rule 10). A write for which it has no room reports a full store.
func TestWhatTheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testWhatIsRefused[pgx.Tx], testWhatIsRefused[*sql.Tx])
}

func testWhatIsRefused[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	mustExec(t, "CREATE FUNCTION "+h.schema+".refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "+
		"IF NEW.name = 'full' THEN RAISE 'no room' USING ERRCODE = '53100'; END IF; "+
		"IF NEW.result_data IS NOT NULL THEN RAISE 'too large' USING ERRCODE = '54000'; END IF; RETURN NEW; END $$")
	mustExec(t, "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON "+h.record()+" FOR EACH ROW EXECUTE FUNCTION "+h.schema+".refuse()")
	r, err := everonce.NewReceiver(h.store, everonce.Refuse, nil)
	noErr(t, err)
	x, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	keyOf := func(id string) everonce.Key { return everonce.Key{Scope: "refused", ID: id} }
	work := func(context.Context, *everonce.Attempt) (string, error) { return "v", nil }
	workTx := func(context.Context, Tx) (string, error) { return "v", nil }
	check := func(what string, res everonce.Result[string], err error, want everonce.Outcome, value string, sentinel error) {
		t.Helper()
		if res.Outcome != want || res.Value != value || !errors.Is(err, sentinel) {
			t.Errorf("%s: %v %q, %v; want %v, %v", what, res.Outcome, res.Value, err, want, sentinel)
		}
	}
	for _, first := range []bool{true, false} {
		o, value, sentinel := everonce.Elided, "", everonce.ErrResultElided
		if first {
			o, value, sentinel = everonce.Executed, "v", nil
		}
		res, err := everonce.Do(ctx, r, keyOf("guarded"), work)
		check("guarded", res, err, o, value, sentinel)
		res, err = everonce.Transact(ctx, x, keyOf("in a transaction"), workTx)
		check("in a transaction", res, err, o, value, sentinel)
	}
	res, err := everonce.Do(ctx, r, keyOf("full"), work)
	check("full", res, err, everonce.StoreFailed, "", driver.ErrStoreFull)
	res, err = everonce.Transact(ctx, x, keyOf("full"), workTx)
	check("full, in a transaction", res, err, everonce.Failed, "", driver.ErrStoreFull)
}
