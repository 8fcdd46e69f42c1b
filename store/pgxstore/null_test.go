package pgxstore_test

import (
	"testing"

	"github.com/everonce/everonce"
)

// The tables hold NULL where a value is missing or not yet known: a record that was claimed under Refuse has no end.
func TestWhatIsNullInTheTables(t *testing.T) {
	t.Parallel()
	h := newPgx(t, setup{})
	_, err := h.store.Claim(t.Context(), claimOf(everonce.Key{Scope: "null", ID: "claimed"}))
	noErr(t, err)
	finished(t, h, "completed")
	for _, c := range []struct{ name, where string }{
		{"claimed", "purge_at IS NULL AND due_at IS NULL AND completed_at IS NULL AND result_kind IS NULL AND lease_until IS NOT NULL"},
		{"completed", "purge_at IS NOT NULL AND due_at IS NOT NULL AND completed_at IS NOT NULL AND result_kind IS NOT NULL AND lease_until IS NULL"},
	} {
		if n := number(t, "SELECT count(*) FROM "+h.record()+" WHERE name = $1 AND "+c.where, c.name); n != 1 {
			t.Errorf("the record that is %s is not the one with %s", c.name, c.where)
		}
	}
}
