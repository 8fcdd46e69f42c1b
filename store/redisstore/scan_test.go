package redisstore_test

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/redisstore"
)

// scans is how many steps of scans a server has made.
func scans(t *testing.T, client rueidis.Client) int {
	t.Helper()
	text, err := command(t, client, "INFO", "commandstats").ToString()
	noErr(t, err)
	calls, _, _ := strings.Cut(strings.TrimPrefix(redisstore.InfoOf(text)["cmdstat_scan"], "calls="), ",")
	if calls == "" {
		return 0
	}
	n, err := strconv.Atoi(calls)
	noErr(t, err)
	return n
}

// fill claims n keys of a scope, and returns their IDs in the order of a list.
func fill(t *testing.T, client rueidis.Client, s *redisstore.Store, scope everonce.Scope, n int) []everonce.RecordID {
	t.Helper()
	template := claimed(t, s, everonce.Key{Scope: scope, ID: "template"})
	text, err := command(t, client, "GETDEL", redisstore.KeyOf(s, template.ID)).ToString()
	noErr(t, err)
	ids := make([]everonce.RecordID, n)
	sets := make(rueidis.Commands, n)
	for i := range ids {
		ids[i] = everonce.Key{Scope: scope, ID: strconv.Itoa(i)}.RecordID()
		sets[i] = client.B().Set().Key(redisstore.KeyOf(s, ids[i])).Value(text).Build()
	}
	for _, res := range client.DoMulti(t.Context(), sets...) {
		noErr(t, res.Error())
	}
	slices.SortFunc(ids, func(a, b everonce.RecordID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

// listed reads all pages.
func listed(t *testing.T, s *redisstore.Store, req everonce.ListRequest) (ids []everonce.RecordID) {
	t.Helper()
	for {
		page, err := s.List(t.Context(), req)
		noErr(t, err)
		for i := range page.Records {
			ids = append(ids, page.Records[i].ID)
		}
		if req.After = page.Next; req.After == (everonce.RecordID{}) {
			return ids
		}
	}
}

// All pages of a list together take a scan for the first, and as many as there are windows of IDs, and however small these are, each record is listed once, in order.
func TestPagesShareAScan(t *testing.T) {
	t.Parallel()
	p := startServer(t, "--appendfsync", "no")
	client := p.client(t)
	s := newStore(t, client, &redisstore.Options{})
	want := fill(t, client, s, "tenant/charge", 3000)
	for window, most := range map[int]int{1 << 18: 2, 1000: 4, 999: 5, 2987: 2, 300: 11} {
		redisstore.SetWindow(s, window)
		for _, req := range []everonce.ListRequest{
			{Limit: 13}, {Scope: "tenant", Limit: 13}, {Scope: "tenant/charge", Limit: 7}, {States: []everonce.State{everonce.StateClaimed}, Limit: 100},
		} {
			before := scans(t, client)
			if got := listed(t, s, req); !slices.Equal(got, want) {
				t.Errorf("%+v with windows of %d lists %d records, want all %d in the order of IDs", req, window, len(got), len(want))
			}
			// A step looks at about a thousand keys, and at least as many places of the table, which are up to twice as many.
			if got := scans(t, client) - before; got > 5*most {
				t.Errorf("%+v with windows of %d takes %d steps of scans, want at most %d", req, window, got, 5*most)
			}
		}
	}
}

// A list that goes on selects as the request says, and not as the one did whose IDs are at hand; and by how the records are by now.
func TestAPageIsOfItsOwnSelection(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	all := fill(t, client, s, "tenant", 20)
	one, err := s.List(t.Context(), everonce.ListRequest{States: []everonce.State{everonce.StateClaimed}, Limit: 5})
	noErr(t, err)
	for _, req := range []everonce.ListRequest{{Scope: "other"}, {Name: "none"}, {KeyHash: everonce.KeyHash{1}}, {States: []everonce.State{everonce.StateReleased}}} {
		req.After = one.Next
		if got := listed(t, s, req); len(got) != 0 {
			t.Errorf("%+v lists %d records", req, len(got))
		}
	}
	again := everonce.ListRequest{States: []everonce.State{everonce.StateClaimed}, Limit: 5}
	_, err = s.List(t.Context(), again)
	noErr(t, err)
	for _, id := range all[5:9] {
		rec := everonce.Record{ID: id}
		got, err := s.Get(t.Context(), everonce.GetRequest{ID: id})
		noErr(t, err)
		rec.Token, rec.Nonce = got.Record.Token, got.Record.Nonce
		_, err = s.Complete(t.Context(), completionOf(&rec, "v"))
		noErr(t, err)
	}
	again.After = one.Next
	if got := listed(t, s, again); !slices.Equal(got, all[9:]) {
		t.Errorf("of 15 records behind the first page, 4 of which were completed meanwhile, %d are listed as claimed", len(got))
	}
}

// A tenant is forgotten in two scans and a step for each call. What came meanwhile, where the scan had been already, is forgotten too.
func TestDeleteScopeGoesOn(t *testing.T) {
	t.Parallel()
	p := startServer(t, "--appendfsync", "no")
	client := p.client(t)
	s := newStore(t, client, &redisstore.Options{})
	others := fill(t, client, s, "other", 10_000)
	abandon := func(name string) {
		rec := claimed(t, s, everonce.Key{Scope: "tenant", ID: name})
		_, err := s.Release(t.Context(), releaseOf(&rec, everonce.StateAbandoned))
		noErr(t, err)
	}
	const n, limit = 1000, 50
	for i := range n {
		abandon(strconv.Itoa(i))
	}
	before, late := scans(t, client), 0
	for calls := 1; ; calls++ {
		res, err := s.DeleteScope(t.Context(), everonce.DeleteScopeRequest{Scope: "tenant", Limit: limit})
		if err != nil || res.Live || res.More != (res.Records == limit) {
			t.Fatalf("%+v, %v", res, err)
		}
		if !res.More {
			break
		}
		if calls == n/limit-1 { // the scan is nearly at its end
			for ; late < 50; late++ {
				abandon("late " + strconv.Itoa(late))
			}
		}
	}
	got := scans(t, client) - before
	if left := listed(t, s, everonce.ListRequest{Scope: "tenant"}); len(left) != 0 || late == 0 {
		t.Errorf("%d records are left of a tenant that was forgotten, %d came late", len(left), late)
	}
	if steps := 2*20 + n/limit + 5; got > steps {
		t.Errorf("it took %d steps of scans, want at most %d", got, steps)
	}
	if left := listed(t, s, everonce.ListRequest{Scope: "other", Limit: 1000}); len(left) != len(others) {
		t.Errorf("%d of %d records of another tenant are left", len(left), len(others))
	}
}

// The place of a scan means nothing to a server that was started anew: it would pass over records in silence. So that is a failure.
func TestAScanOverTwoServersIsAFailure(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	client := p.client(t)
	s := newStore(t, client, &redisstore.Options{})
	fill(t, client, s, "tenant", 3000)
	steps := 0
	err := redisstore.Scan(t.Context(), s, func() {
		if steps++; steps > 1 {
			return
		}
		p.kill(t)
		if !p.start(t) {
			t.Error("the server does not start")
		}
	})
	if err == nil || steps != 1 {
		t.Errorf("%d steps, %v", steps, err)
	}
	noErr(t, redisstore.Scan(t.Context(), s, func() {}))
}
