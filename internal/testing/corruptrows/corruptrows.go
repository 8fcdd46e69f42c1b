// Package corruptrows tests SQL stores with rows that no version has written: whatever a column contains, all
// statements must judge the record as a reader does.
package corruptrows

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// Store is a store of SQL, whose transactions are of type Tx.
type Store[Tx any] interface {
	driver.TxStore[Tx]
	driver.Lister
	driver.ScopeDeleter
	driver.HealthChecker
}

// Database is an empty store and its tables.
type Database struct {
	Records string                       // the table of records
	Bytes   func(b []byte) string        // bytes, as they stand in a statement
	Exec    func(statement string) error // runs one
}

const columns = " id, scope, name, state, token, nonce, owner, attempt, rev, steps, format, created_at, updated_at, claimed_at, lease_until, purge_at, due_at, fp_alg, fp_sum, completed_at, result_until, result_kind, prev_state, prev_claimed "

var life = driver.Lifetime{Retention: time.Hour, Remember: time.Hour}

// odd returns values for each column, some of which no version has written.
func (d *Database) odd() map[string][]string {
	odd := map[string][]string{"fp_alg": {"NULL", "''", "'x'"}}
	for _, column := range strings.Fields("state token attempt format created_at updated_at claimed_at lease_until purge_at completed_at result_until result_kind prev_state prev_claimed") {
		odd[column] = strings.Fields("NULL -9223372036854775807 -1 0 1 2 3 4 5 77 257 2147483647 2147483648 1152921504606846976 1152921504606846977 9223372036854775807")
	}
	for column, size := range map[string]int{"nonce": 16, "fp_sum": 32} {
		odd[column] = []string{"NULL", d.Bytes(nil)}
		for n := size - 1; n <= size+1; n++ {
			odd[column] = append(odd[column], d.Bytes(make([]byte, n)))
		}
	}
	return odd
}

// Run writes them, each into the row of a record in each state. A corrupt record must not be granted to any claim,
// must be counted and listed as unreadable, and must not be deleted silently.
func Run[Tx any](t *testing.T, s Store[Tx], d Database) {
	t.Helper()
	what := d.fill(t, s)
	all, unreadable := listed(t, s, what), listed(t, s, what, 0)
	corrupt := 0
	for id, is := range what {
		got, err := s.Get(t.Context(), driver.GetRequest{ID: id})
		bad := errors.Is(err, driver.ErrCorruptRecord)
		if err != nil && !bad && !errors.Is(err, driver.ErrNewerRecord) {
			t.Fatalf("%s: %v", is, err)
		}
		if unreadable[id] != (err != nil) || all[id] != (err != nil || got.Found) {
			t.Errorf("%s: read as %v, found %v; it is listed: %v, as unreadable: %v", is, err, got.Found, all[id], unreadable[id])
		}
		if bad {
			corrupt++
			recordRefused(t, s, id, is)
		}
	}
	if n, err := s.Health(t.Context(), driver.HealthRequest{}); err != nil || n.Unreadable != int64(len(unreadable)) || n.Claimed+n.Released+n.Abandoned+n.Completed != int64(len(all)-len(unreadable)+len(states)) {
		t.Errorf("%d are listed, and %d of them as unreadable; they are counted as %+v, %v", len(all), len(unreadable), n, err)
	}
	if corrupt < 200 || corrupt > len(what)-200 {
		t.Errorf("%d of %d records are corrupt: the test looks in the wrong place", corrupt, len(what))
	}
	deleteScope(t, s, what)
}

// states are the states of the records whose rows are copied.
var states = [...]driver.State{driver.StateClaimed, driver.StateReleased, driver.StateAbandoned, driver.StateCompleted}

// fill writes the rows and returns what is odd in each.
func (d *Database) fill(t *testing.T, s driver.Store) map[driver.RecordID]string {
	t.Helper()
	for _, state := range states {
		claim := claimOf(everonce.Key{Scope: "model", ID: state.String()})
		claim.Lease = time.Minute
		res, err := s.Claim(t.Context(), claim)
		if err == nil {
			switch state {
			case driver.StateReleased, driver.StateAbandoned:
				_, err = s.Release(t.Context(), driver.ReleaseRequest{ID: claim.ID, Token: res.Record.Token, Nonce: claim.Nonce, State: state, Lifetime: life})
			case driver.StateCompleted:
				_, err = s.Complete(t.Context(), completionOf(claim.ID, res.Record.Token, claim.Nonce))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	what := make(map[driver.RecordID]string)
	for column, values := range d.odd() {
		for _, value := range values {
			for _, state := range states {
				is := fmt.Sprintf("%v, %s = %s", state, column, value)
				id := everonce.Key{Scope: "odd", ID: is}.RecordID()
				from := strings.NewReplacer(" id,", " "+d.Bytes(id[:])+",", " scope,", " 'odd',", " name,", " '"+strings.ReplaceAll(is, "'", "''")+"',",
					" "+column+",", " "+value+",", " "+column+" ", " "+value+" ").Replace(columns)
				err := d.Exec("INSERT INTO " + d.Records + " (" + columns + ") SELECT " + from + " FROM " + d.Records + " WHERE scope = 'model' AND name = '" + state.String() + "'")
				if err == nil { // otherwise the table itself rejects it
					what[id] = is
				}
			}
		}
	}
	return what
}

func listed(t *testing.T, s driver.Lister, what map[driver.RecordID]string, of ...driver.State) map[driver.RecordID]bool {
	t.Helper()
	page, err := s.List(t.Context(), driver.ListRequest{Scope: "odd", States: of, Limit: 2 * len(what)})
	if err != nil {
		t.Fatal(err)
	}
	ids := make(map[driver.RecordID]bool)
	for i := range page.Records {
		ids[page.Records[i].ID] = true
	}
	return ids
}

// recordRefused records a result without a claim, which must fail.
func recordRefused[Tx any](t *testing.T, s driver.TxStore[Tx], id driver.RecordID, is string) {
	t.Helper()
	claim := claimOf(everonce.Key{Scope: "odd", ID: is})
	tx, _, err := s.Begin(t.Context(), driver.BeginRequest{})
	if err != nil {
		t.Fatal(err)
	}
	done := completionOf(id, 0, claim.Nonce)
	if _, err := tx.Commit(t.Context(), driver.CommitRequest{Record: &claim, Complete: &done}); !errors.Is(err, driver.ErrConflict) {
		t.Errorf("%s: a record without a claim: %v, want ErrConflict", is, err)
	}
}

// deleteScope deletes the scope. A record that remains may be a live claim, and must be reported.
func deleteScope[Tx any](t *testing.T, s Store[Tx], what map[driver.RecordID]string) {
	t.Helper()
	var res driver.DeleteScopeResult
	var err error
	for res.More = true; res.More && err == nil; {
		res, err = s.DeleteScope(t.Context(), driver.DeleteScopeRequest{Scope: "odd"})
	}
	left := listed(t, s, what)
	for id, is := range what {
		_, state, _ := strings.Cut(is, " state = ")
		_, format, _ := strings.Cut(is, " format = ")
		if maybe := state != "" && !slices.Contains([]string{"1", "2", "3", "4"}, state) || format == "0" || strings.HasPrefix(format, "-"); maybe && !left[id] {
			t.Errorf("%s: it is deleted, and may be a live claim", is)
		}
	}
	for id := range left {
		got, unread := s.Get(t.Context(), driver.GetRequest{ID: id})
		switch {
		case unread != nil && !errors.Is(err, driver.ErrCorruptRecord), errors.Is(unread, driver.ErrNewerRecord) && !errors.Is(err, driver.ErrNewerRecord):
			t.Errorf("%s: it is left, read as %v, of which the deletion says %v", what[id], unread, err)
		case unread == nil && (!res.Live || got.Record.StateAt(got.Now) != driver.StateClaimed):
			t.Errorf("%s: it is left, and is %v", what[id], got.Record.StateAt(got.Now))
		case unread != nil && !strings.HasPrefix(what[id], "claimed") && !strings.Contains(what[id], " state = ") && !strings.Contains(what[id], " format = "):
			t.Errorf("%s: it is left, though it is no claim", what[id])
		}
	}
}

// claimOf returns a claim without a lease, as in a transaction.
func claimOf(key everonce.Key) driver.ClaimRequest {
	return driver.ClaimRequest{
		ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Owner: "test",
		Fingerprint: driver.Fingerprint(everonce.FingerprintOf(7)), Lifetime: life,
	}
}

func completionOf(id driver.RecordID, token driver.Token, nonce driver.Nonce) driver.CompleteRequest {
	return driver.CompleteRequest{
		ID: id, Token: token, Nonce: nonce, Lifetime: life,
		Result: driver.SavedResult{Kind: driver.ResultElided},
	}
}

// Hex returns bytes as SQL's hexadecimal digits between a prefix and a quote.
func Hex(prefix string) func(b []byte) string {
	return func(b []byte) string { return prefix + hex.EncodeToString(b) + "'" }
}
