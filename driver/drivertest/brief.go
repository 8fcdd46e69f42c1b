package drivertest

import (
	"time"

	"github.com/everonce/everonce/driver"
)

// briefChecks test reads that ask only for the answer to a duplicate.
func briefChecks() []check {
	return []check{{name: "Rule20/ABriefReadTellsADuplicateAsMuch", run: checkBrief}}
}

// checkBrief reads records in every state, in brief and whole: a duplicate gets the same answer from both.
func checkBrief(e *env) {
	brief := func(id driver.RecordID) driver.GetResult {
		res, err := e.s.Get(e.ctx, driver.GetRequest{ID: id, Brief: true})
		if err != nil {
			e.Fatalf("Get in brief: %v", err)
		}
		return res
	}
	gone := claimReq(e.key())
	gone.Lifetime = driver.Lifetime{Retention: short}
	e.claimed(gone).completed("done")
	e.pass(short)
	for what, id := range map[string]driver.RecordID{"gone": gone.ID, "new": e.key().RecordID()} {
		if res := brief(id); res.Found {
			e.Errorf("read in brief, the record of a key that is %s is found, %v", what, res.Record.State)
		}
	}
	inStep := e.claimed(claimReq(e.key()))
	unknown := inStep.releasing(driver.StateAbandoned)
	unknown.Step = "mail"
	e.release(unknown)
	states := e.states()
	states["abandoned in a step"] = inStep
	for name, a := range states {
		got, full := brief(a.req.ID), e.look(a.req.ID)
		if !got.Found {
			e.Errorf("read in brief, the %s record is not found", name)
			continue
		}
		for _, sum := range []driver.Fingerprint{fingerprintA, fingerprintB, otherAlg, {}} {
			req := a.taking(driver.TakeNone)
			req.Fingerprint = sum
			want := driver.Decide(&full.Record, req, full.Now)
			if have := driver.Decide(&got.Record, req, got.Now); have != want {
				e.Errorf("read in brief, the %s record is answered %v, want %v", name, have, want)
			}
		}
		e.same("the "+name+" record, read in brief", briefPart(got.Record), briefPart(full.Record))
	}
}

// briefPart returns the part of a record that a brief read must return.
func briefPart(rec driver.Record) driver.Record {
	rec.ID, rec.Scope, rec.Name = driver.RecordID{}, "", ""
	rec.Steps, rec.Previous, rec.LastError = nil, driver.Previous{}, ""
	rec.CreatedAt, rec.ClaimedAt, rec.UpdatedAt = time.Time{}, time.Time{}, time.Time{}
	return rec
}
