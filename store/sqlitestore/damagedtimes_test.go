package sqlitestore

import (
	"strings"
	"testing"

	"github.com/everonce/everonce/driver"
)

// A record with a time that no version has written is corrupt, as in the other stores: it is neither taken over nor
// purged on the strength of that time, and remains for an operator to look at.
func TestADamagedTimeIsNotJudged(t *testing.T) {
	const largest = "9223372036854775807"
	for what, damage := range map[string]string{
		"over before all times":     "state = 2, lease_until = NULL, purge_at = -1, due_at = -1",
		"a lease before all times":  "lease_until = -1",
		"such a lease, and its end": "lease_until = -1, purge_at = 1, due_at = 1",
		"a claim without a lease":   "lease_until = NULL",
		"a result before all times": "state = 4, lease_until = NULL, result_kind = 3, result_until = -1, completed_at = 1, purge_at = 9000000000000000, due_at = 1",
		"a claim before all times":  "claimed_at = -1",
		"a lease that never ends":   "lease_until = " + largest,
		"a token that cannot grow":  "token = " + largest,
	} {
		s := openTest(t, nil)
		ctx := t.Context()
		claim, err := s.Claim(ctx, claimOf("a"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.DB().Exec("UPDATE everonce_record SET " + damage); err != nil {
			t.Fatal(err)
		}
		if res, err := s.Purge(ctx, driver.PurgeRequest{}); err != nil || res != (driver.PurgeResult{}) {
			t.Errorf("%s: purged: %+v, %v", what, res, err)
		}
		id := claim.Record.ID
		_, err = s.Get(ctx, driver.GetRequest{ID: id})
		wants(t, what+": Get", err, driver.ErrCorruptRecord, id.Short())
		take := claimOf("a")
		for take.Take = range driver.TakeForced + 1 {
			_, err = s.Claim(ctx, take)
			wants(t, what+": Claim", err, driver.ErrCorruptRecord, id.Short())
		}
		if list, err := s.List(ctx, driver.ListRequest{}); err != nil || len(list.Records) != 1 {
			t.Errorf("%s: List: %v, %v: it must be found to be dealt with", what, list, err)
		}
		if h, err := s.Health(ctx, driver.HealthRequest{}); err != nil || h.Unreadable != 1 {
			t.Errorf("%s: Health: %+v, %v: it is taken for what it is not", what, h, err)
		}
		res, err := s.DeleteScope(ctx, driver.DeleteScopeRequest{Scope: claim.Record.Scope})
		switch {
		case strings.Contains(what, "lease"):
			wants(t, what+": DeleteScope", err, driver.ErrCorruptRecord, "1 are left")
		case err != nil || res.Records == 0 && !res.Live:
			t.Errorf("%s: DeleteScope: %+v, %v", what, res, err)
		}
	}
}
