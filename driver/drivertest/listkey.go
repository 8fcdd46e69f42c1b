package drivertest

import (
	"bytes"
	"slices"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// The ID and the hash of a key find its record in every scope, or in one, on whatever page, together with all else
// that selects.
func checkListKey(e *env) {
	tenant, route := string(e.scope), driver.ScopeOf(string(e.scope), "charge")
	var all []driver.Record
	for _, of := range []everonce.Key{
		{Scope: driver.Scope(tenant), ID: "pay-7"},
		{Scope: route, ID: "pay-7"},
		{Scope: driver.Scope(tenant + "x"), ID: "pay-7"},
		{Scope: route, ID: "pay-70"},
		{Scope: route, ID: "PAY-7"},
		{Scope: route, ID: "pay_7"},
		{Scope: route, ID: "%"},
	} {
		a := e.claimed(claimReq(of))
		a.stepped("mail", driver.StepDone)
		if of.Scope == route {
			a.completed("done")
		}
		all = append(all, e.look(a.req.ID).Record)
	}
	slices.SortFunc(all, func(a, b driver.Record) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	ask := func(req driver.ListRequest) {
		e.Helper()
		req.Limit = 1
		var got, want []driver.RecordID
		for _, r := range e.listed(req) {
			if got = append(got, r.ID); (len(r.Steps) == 1) != req.Steps {
				e.Errorf("%+v: %d steps", req, len(r.Steps))
			}
		}
		for i := range all {
			r := &all[i]
			if (req.Scope == "" || r.Scope.Within(req.Scope)) && (req.Name == "" || r.Name == req.Name) && (req.KeyHash == (driver.KeyHash{}) || r.ID.Hash() == req.KeyHash) &&
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
		for _, scope := range []driver.Scope{"", driver.Scope(tenant), route} {
			for _, steps := range []bool{false, true} {
				ask(driver.ListRequest{Scope: scope, KeyHash: r.ID.Hash(), Steps: steps})
				ask(driver.ListRequest{Scope: scope, Name: r.Name, Steps: steps})
			}
			ask(driver.ListRequest{Scope: scope, Name: r.Name, KeyHash: r.ID.Hash()})
			ask(driver.ListRequest{Scope: scope, Name: "pay-7", After: r.ID})
			ask(driver.ListRequest{Scope: scope, KeyHash: r.ID.Hash(), After: r.ID})
			ask(driver.ListRequest{Scope: scope, KeyHash: r.ID.Hash(), After: all[0].ID})
		}
		for _, state := range []driver.State{driver.StateClaimed, driver.StateCompleted} {
			ask(driver.ListRequest{States: []driver.State{state}, Name: r.Name})
			ask(driver.ListRequest{States: []driver.State{state}, KeyHash: r.ID.Hash()})
		}
	}
	ask(driver.ListRequest{Name: "pay-8"})
	ask(driver.ListRequest{Name: "pay-%"})
	ask(driver.ListRequest{KeyHash: driver.KeyHash{1}})
	ask(driver.ListRequest{Scope: route, KeyHash: driver.KeyHash{1}})
}
