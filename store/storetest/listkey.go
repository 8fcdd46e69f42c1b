package storetest

import (
	"bytes"
	"slices"

	"github.com/everonce/everonce"
)

// The ID and the hash of a key find its record in every scope, or in one, on whatever page, together with all else that selects.
func checkListKey(e *env) {
	tenant, route := string(e.scope), everonce.ScopeOf(string(e.scope), "charge")
	var all []everonce.Record
	for _, of := range []everonce.Key{
		{Scope: everonce.Scope(tenant), ID: "pay-7"},
		{Scope: route, ID: "pay-7"},
		{Scope: everonce.Scope(tenant + "x"), ID: "pay-7"},
		{Scope: route, ID: "pay-70"},
		{Scope: route, ID: "PAY-7"},
		{Scope: route, ID: "pay_7"},
		{Scope: route, ID: "%"},
	} {
		a := e.claimed(claimReq(of))
		a.stepped("mail", everonce.StepDone)
		if of.Scope == route {
			a.completed("done")
		}
		all = append(all, e.look(a.req.ID).Record)
	}
	slices.SortFunc(all, func(a, b everonce.Record) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	ask := func(req everonce.ListRequest) {
		e.Helper()
		req.Limit = 1
		var got, want []everonce.RecordID
		for _, r := range e.listed(req) {
			if got = append(got, r.ID); (len(r.Steps) == 1) != req.Steps {
				e.Errorf("%+v: %d steps", req, len(r.Steps))
			}
		}
		for i := range all {
			r := &all[i]
			if (req.Scope == "" || r.Scope.Within(req.Scope)) && (req.Name == "" || r.Name == req.Name) && (req.KeyHash == (everonce.KeyHash{}) || r.ID.Hash() == req.KeyHash) &&
				(req.States == nil || slices.Contains(req.States, r.State)) && bytes.Compare(r.ID[:], req.After[:]) > 0 {
				want = append(want, r.ID)
			}
		}
		if !slices.Equal(got, want) {
			e.Errorf("%+v lists %d records, want %d", req, len(got), len(want))
		}
	}
	for i := range all {
		r := &all[i]
		for _, scope := range []everonce.Scope{"", everonce.Scope(tenant), route} {
			for _, steps := range []bool{false, true} {
				ask(everonce.ListRequest{Scope: scope, KeyHash: r.ID.Hash(), Steps: steps})
				ask(everonce.ListRequest{Scope: scope, Name: r.Name, Steps: steps})
			}
			ask(everonce.ListRequest{Scope: scope, Name: r.Name, KeyHash: r.ID.Hash()})
			ask(everonce.ListRequest{Scope: scope, Name: "pay-7", After: r.ID})
			ask(everonce.ListRequest{Scope: scope, KeyHash: r.ID.Hash(), After: r.ID})
			ask(everonce.ListRequest{Scope: scope, KeyHash: r.ID.Hash(), After: all[0].ID})
		}
		for _, state := range []everonce.State{everonce.StateClaimed, everonce.StateCompleted} {
			ask(everonce.ListRequest{States: []everonce.State{state}, Name: r.Name})
			ask(everonce.ListRequest{States: []everonce.State{state}, KeyHash: r.ID.Hash()})
		}
	}
	ask(everonce.ListRequest{Name: "pay-8"})
	ask(everonce.ListRequest{Name: "pay-%"})
	ask(everonce.ListRequest{KeyHash: everonce.KeyHash{1}})
	ask(everonce.ListRequest{Scope: route, KeyHash: everonce.KeyHash{1}})
}
