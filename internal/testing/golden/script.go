package golden

import (
	"math"
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
)

// script makes the calls of a case. The first write is at the case's time, and each that follows a second later: so the
// files have it, whenever the calls are made.
type script struct {
	*testing.T
	h       Harness
	c       testCase
	rec     driver.Record
	writes  int
	known   []instant
	lengths map[time.Duration]bool
}

// instant is a time by the store's clock, and in the files.
type instant struct {
	us int64
	at time.Time
}

func (s *script) id() driver.RecordID { return s.c.key().RecordID() }

// wrote looks when the store has written, and lets its clock move on.
func (s *script) wrote(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", s.c.name, err)
	}
	s.rec = s.get().Record
	s.known = append(s.known, instant{s.rec.UpdatedAt.UnixMicro(), s.c.at(s.writes)})
	s.writes++
	s.wait(s.rec.UpdatedAt)
}

// wait returns when the store's clock is past a time, so that the times of two writes are distinct.
func (s *script) wait(until time.Time) {
	s.Helper()
	for !s.get().Now.After(until.Add(Apart)) {
	}
}

func (s *script) get() driver.GetResult {
	s.Helper()
	res, err := s.h.Store.Get(s.Context(), driver.GetRequest{ID: s.id()})
	if err != nil || !res.Found {
		s.Fatalf("%s: found %v, %v", s.c.name, res.Found, err)
	}
	return res
}

// lasts notes the lengths of time that are written.
func (s *script) lasts(lease time.Duration, life driver.Lifetime) {
	for _, d := range []time.Duration{lease, life.Retention, life.Total()} {
		s.lengths[d] = true
	}
}

// fixed is the script's [Times]. A time that no call explains is a fault of the store's, or of the form in which Dump
// has it.
func (s *script) fixed(us int64, early, late time.Duration) int64 {
	s.Helper()
	if us == 0 {
		return 0
	}
	nearest, fixed := int64(math.MaxInt64), us
	for _, k := range s.known {
		for d := range s.lengths {
			off := us - k.us - d.Microseconds()
			if off < -early.Microseconds() || off > late.Microseconds() {
				continue
			}
			if off = max(off, -off); off < nearest {
				nearest, fixed = off, k.at.Add(d).UnixMicro()
			}
		}
	}
	if nearest == math.MaxInt64 {
		s.Errorf("%s: %d is neither the time of a write nor derived from one", s.c.name, us)
	}
	return fixed
}

func (s *script) claim(req driver.ClaimRequest) {
	s.Helper()
	key := s.c.key()
	req.ID, req.Scope, req.Name = key.RecordID(), key.Scope, key.ID
	s.lasts(req.Lease, req.Lifetime)
	res, err := s.h.Store.Claim(s.Context(), req)
	if err == nil && res.Decision != driver.DecideClaimed {
		s.Fatalf("%s: %v", s.c.name, res.Decision)
	}
	s.wrote(err)
}

func (s *script) renew() {
	s.Helper()
	_, err := s.h.Store.Renew(s.Context(), driver.RenewRequest{ID: s.rec.ID, Token: s.rec.Token, Nonce: s.rec.Nonce, Lease: lease, Lifetime: web})
	s.wrote(err)
}

func (s *script) step(step driver.StepRecord, lease time.Duration) {
	s.Helper()
	step.Attempt = s.rec.Attempt
	_, err := s.h.Store.SaveStep(s.Context(), driver.SaveStepRequest{
		ID: s.rec.ID, Token: s.rec.Token, Nonce: s.rec.Nonce, Step: step, Lease: lease, Lifetime: web,
	})
	s.wrote(err)
}

func (s *script) release(req driver.ReleaseRequest) {
	s.Helper()
	key := s.c.key()
	req.ID, req.Scope, req.Name, req.Lifetime = key.RecordID(), key.Scope, key.ID, web
	if req.Nonce == (driver.Nonce{}) {
		req.Token, req.Nonce = s.rec.Token, s.rec.Nonce
	}
	s.lasts(0, web)
	_, err := s.h.Store.Release(s.Context(), req)
	s.wrote(err)
}

func (s *script) complete(result driver.SavedResult, life driver.Lifetime) {
	s.Helper()
	s.lasts(0, life)
	_, err := s.h.Store.Complete(s.Context(), driver.CompleteRequest{ID: s.rec.ID, Token: s.rec.Token, Nonce: s.rec.Nonce, Result: result, Lifetime: life})
	s.wrote(err)
}

// transact claims and completes in a transaction; optimistic says that it claims only with the commit.
func (s *script) transact(claim driver.ClaimRequest, result driver.SavedResult, optimistic bool) {
	s.Helper()
	key := s.c.key()
	claim.ID, claim.Scope, claim.Name = key.RecordID(), key.Scope, key.ID
	s.lasts(0, web)
	commit := driver.CommitRequest{Complete: &driver.CompleteRequest{ID: claim.ID, Nonce: claim.Nonce, Result: result, Lifetime: web}}
	first := &claim
	if optimistic {
		first, commit.Record = nil, first
	}
	s.wrote(s.h.Transact(s.Context(), first, commit))
	s.known = append(s.known, instant{int64(s.rec.Token), s.c.at(s.writes - 1)}) // of the claim, shortly before the write
}

// purge lets the result go.
func (s *script) purge() {
	s.Helper()
	s.wait(s.rec.ResultUntil)
	if _, err := s.h.Store.Purge(s.Context(), driver.PurgeRequest{}); err != nil {
		s.Fatal(err)
	}
}
