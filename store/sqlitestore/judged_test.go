package sqlitestore

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
)

// oddColumns are values of which some no version has written, by their columns.
func oddColumns() map[string][]string {
	odd := map[string][]string{"fp_alg": {"NULL", "''", "'x'"}}
	for _, column := range strings.Fields("state token attempt format created_at updated_at claimed_at lease_until purge_at completed_at result_until result_kind prev_state prev_claimed") {
		odd[column] = strings.Fields("NULL -9223372036854775807 -1 0 1 2 3 4 5 77 257 2147483647 2147483648 1152921504606846976 1152921504606846977 9223372036854775807")
	}
	for column, size := range map[string]int{"nonce": 16, "fp_sum": 32} {
		odd[column] = []string{"NULL", "x''"}
		for n := size - 1; n <= size+1; n++ {
			odd[column] = append(odd[column], "x'"+hex.EncodeToString(make([]byte, n))+"'")
		}
	}
	return odd
}

// Whatever stands in a column, all statements judge the record as whoever reads it: what is corrupt is granted to nobody, counted and listed as what cannot be
// read, and not forgotten in silence.
func TestAllStatementsJudgeARecordAlike(t *testing.T) {
	s := openTest(t, nil)
	ctx := t.Context()
	life := everonce.Lifetime{Retention: time.Hour, Remember: time.Hour}
	for _, state := range []string{"claimed", "released", "abandoned", "completed"} {
		claim := claimOf(state)
		claim.Fingerprint, claim.Lifetime = everonce.FingerprintOf(7), life
		res, err := s.Claim(ctx, claim)
		if err != nil {
			t.Fatal(err)
		}
		switch state {
		case "released", "abandoned":
			to := map[string]everonce.State{"released": everonce.StateReleased, "abandoned": everonce.StateAbandoned}[state]
			_, err = s.Release(ctx, everonce.ReleaseRequest{ID: claim.ID, Token: res.Record.Token, Nonce: claim.Nonce, State: to, Lifetime: life})
		case "completed":
			_, err = s.Complete(ctx, everonce.CompleteRequest{ID: claim.ID, Token: res.Record.Token, Nonce: claim.Nonce, Lifetime: life, Result: everonce.SavedResult{Kind: everonce.ResultElided}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	what := make(map[everonce.RecordID]string)
	for column, values := range oddColumns() {
		for _, value := range values {
			for _, state := range []string{"claimed", "released", "abandoned", "completed"} {
				is := fmt.Sprintf("%s, %s = %s", state, column, value)
				key := everonce.Key{Scope: "odd", ID: is}
				id := key.RecordID()
				all := " id, scope, name, state, token, nonce, owner, attempt, rev, steps, format, created_at, updated_at, claimed_at, lease_until, purge_at, due_at, fp_alg, fp_sum, completed_at, result_until, result_kind, prev_state, prev_claimed "
				from := strings.NewReplacer(" id,", " x'"+hex.EncodeToString(id[:])+"',", " scope,", " 'odd',", " name,", " ?,", " "+column+",", " "+value+",", " "+column+" ", " "+value+" ").Replace(all)
				_, err := s.DB().Exec("INSERT INTO everonce_record ("+all+") SELECT "+from+" FROM everonce_record WHERE scope = 'test' AND name = ?", is, state)
				if err == nil { // else the table itself refuses it
					what[id] = is
				}
			}
		}
	}

	listed := func(states ...everonce.State) map[everonce.RecordID]bool {
		page, err := s.List(ctx, everonce.ListRequest{Scope: "odd", States: states, Limit: 2 * len(what)})
		if err != nil {
			t.Fatal(err)
		}
		ids := make(map[everonce.RecordID]bool)
		for _, rec := range page.Records {
			ids[rec.ID] = true
		}
		return ids
	}
	all, unreadable := listed(), listed(0)
	corrupt := 0
	for id, is := range what {
		got, err := s.Get(ctx, everonce.GetRequest{ID: id})
		bad := errors.Is(err, everonce.ErrCorruptRecord)
		if err != nil && !bad && !errors.Is(err, everonce.ErrNewerRecord) {
			t.Fatalf("%s: %v", is, err)
		}
		if unreadable[id] != (err != nil) || all[id] != (err != nil || got.Found) {
			t.Errorf("%s: read as %v, found %v; it is listed: %v, as unreadable: %v", is, err, got.Found, all[id], unreadable[id])
		}
		if !bad {
			continue
		}
		corrupt++
		claim := claimOf(is)
		claim.ID, claim.Lease, claim.Scope = id, 0, "odd"
		tx, _, err := s.Begin(ctx, everonce.BeginRequest{})
		if err != nil {
			t.Fatal(err)
		}
		done := everonce.CompleteRequest{ID: id, Nonce: claim.Nonce, Lifetime: life, Result: everonce.SavedResult{Kind: everonce.ResultElided}}
		if err := tx.Commit(ctx, everonce.CommitRequest{Record: &claim, Complete: &done}); !errors.Is(err, everonce.ErrConflict) {
			t.Errorf("%s: a record without a claim: %v, want ErrConflict", is, err)
		}
	}
	if h, err := s.Health(ctx); err != nil || h.Unreadable != int64(len(unreadable)) || h.Claimed+h.Released+h.Abandoned+h.Completed != int64(len(all)-len(unreadable)+4) {
		t.Errorf("%d are listed, and %d of them as unreadable; they are counted as %+v, %v", len(all), len(unreadable), h, err)
	}
	if corrupt < 300 || corrupt > len(what)-300 {
		t.Errorf("%d of %d records are corrupt: the test looks in the wrong place", corrupt, len(what))
	}

	var res everonce.DeleteScopeResult
	var err error
	for res.More = true; res.More && err == nil; {
		res, err = s.DeleteScope(ctx, everonce.DeleteScopeRequest{Scope: "odd"})
	}
	left := listed()
	for id, is := range what {
		_, state, _ := strings.Cut(is, " state = ")
		_, format, _ := strings.Cut(is, " format = ")
		if maybe := state != "" && !strings.Contains("1234", state) || format == "0" || strings.HasPrefix(format, "-"); maybe && !left[id] {
			t.Errorf("%s: it is deleted, and may be a live claim", is)
		}
	}
	for id := range left {
		got, unread := s.Get(ctx, everonce.GetRequest{ID: id})
		switch {
		case unread != nil && !errors.Is(err, everonce.ErrCorruptRecord), errors.Is(unread, everonce.ErrNewerRecord) && !errors.Is(err, everonce.ErrNewerRecord):
			t.Errorf("%s: it is left, read as %v, of which the deletion says %v", what[id], unread, err)
		case unread == nil && (!res.Live || got.Record.StateAt(got.Now) != everonce.StateClaimed):
			t.Errorf("%s: it is left, and is %v", what[id], got.Record.StateAt(got.Now))
		case unread != nil && !strings.HasPrefix(what[id], "claimed") && !strings.Contains(what[id], " state = ") && !strings.Contains(what[id], " format = "):
			t.Errorf("%s: it is left, though it is no claim", what[id])
		}
	}
}
