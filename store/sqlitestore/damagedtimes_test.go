package sqlitestore

import (
	"strings"
	"testing"

	"github.com/everonce/everonce"
)

// A record with a time that no version has written is corrupt, as in the other stores: what is over by it is granted to nobody, purged by nobody,
// and there to be looked at.
func TestADamagedTimeIsNotJudged(t *testing.T) {
	const largest = "9223372036854775807"
	for what, c := range map[string]struct {
		damage string
		counts bool // what alone a server is asked about tells that it is unreadable
	}{
		"over before all times":     {"state = 2, lease_until = NULL, purge_at = -1, due_at = -1", true},
		"a lease before all times":  {"lease_until = -1", true},
		"such a lease, and its end": {"lease_until = -1, purge_at = 1, due_at = 1", true},
		"a claim without a lease":   {"lease_until = NULL", true},
		"a result before all times": {"state = 4, lease_until = NULL, result_kind = 3, result_until = -1, completed_at = 1, purge_at = 9000000000000000", true},
		"a claim before all times":  {"claimed_at = -1", false},
		"a lease that never ends":   {"lease_until = " + largest, false},
		"a token that cannot grow":  {"token = " + largest, false},
	} {
		s := openTest(t, nil)
		ctx := t.Context()
		claim, err := s.Claim(ctx, claimOf("a"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.DB().Exec("UPDATE everonce_record SET " + c.damage); err != nil {
			t.Fatal(err)
		}
		if res, err := s.Purge(ctx, everonce.PurgeRequest{}); err != nil || res != (everonce.PurgeResult{}) {
			t.Errorf("%s: purged: %+v, %v", what, res, err)
		}
		id := claim.Record.ID
		_, err = s.Get(ctx, everonce.GetRequest{ID: id})
		wants(t, what+": Get", err, everonce.ErrCorruptRecord, id.Short())
		take := claimOf("a")
		for take.Take = range everonce.TakeForced + 1 {
			_, err = s.Claim(ctx, take)
			wants(t, what+": Claim", err, everonce.ErrCorruptRecord, id.Short())
		}
		if list, err := s.List(ctx, everonce.ListRequest{}); err != nil || len(list.Records) != 1 {
			t.Errorf("%s: List: %v, %v: it must be found to be dealt with", what, list, err)
		}
		if h, err := s.Health(ctx); err != nil || c.counts && h.Unreadable != 1 {
			t.Errorf("%s: Health: %+v, %v: it is taken for what it is not", what, h, err)
		}
		if res, err := s.DeleteScope(ctx, everonce.DeleteScopeRequest{Scope: claim.Record.Scope}); err != nil || strings.Contains(what, "lease") && res.Records != 0 {
			t.Errorf("%s: %d are deleted, %v: it may be live", what, res.Records, err)
		}
	}
}
