package sqlstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/everonce/everonce/internal/sqldb"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// Claim begins an attempt, or returns why it cannot: see [driver.Store].
func (s *Store[Tx]) Claim(ctx context.Context, req driver.ClaimRequest) (res driver.ClaimResult, err error) {
	if err = s.ready(ctx); err != nil {
		return res, err
	}
	s.lease.see(req.Lease)
	if s.lookFirst(&req.ID) {
		if done, res, err := s.look(ctx, &req); done || err != nil {
			return res, s.wrapError("claim", err)
		}
		if s.locks != nil && s.locks.Locked(req.ID) {
			return s.inProgress(), nil
		}
	}
	var answer driver.ClaimResult // read only if Write returns nil: it may still be written otherwise
	err = s.driver.Write(ctx, func(ctx context.Context, c sqldb.Conn) (err error) {
		answer, err = s.claim(ctx, c, &req)
		return err
	})
	if err != nil {
		return res, s.wrapError("claim", err)
	}
	s.hits.count(answer.Decision != driver.DecideClaimed)
	return answer, nil
}

// lookFirst says whether a read should come before the claim: where that can spare the only writer.
func (s *Store[Tx]) lookFirst(id *driver.RecordID) bool {
	return s.traits.ReadFirst &&
		(s.hits.likely() || s.traits.WriterBusy != nil && s.traits.WriterBusy() || s.locks != nil && s.locks.Locked(*id))
}

// look answers a claim by a read, if that is enough.
func (s *Store[Tx]) look(ctx context.Context, req *driver.ClaimRequest) (done bool, res driver.ClaimResult, err error) {
	var w row
	if err = s.find(ctx, reader[Tx]{s.driver}, &req.ID, &w); err != nil {
		return false, res, err
	}
	rec, err := w.record()
	if err != nil || rec == nil {
		return false, res, err
	}
	next, res, err := transition.Claim(rec, *req, w.now)
	s.hits.count(next == nil)
	return next == nil, res, err
}

// claim claims through c, which is a separate transaction or makes one of every statement.
func (s *Store[Tx]) claim(ctx context.Context, c sqldb.Conn, req *driver.ClaimRequest) (res driver.ClaimResult, err error) {
	if req.Take >= driver.TakeToSettle { // never inserts
		err = s.decide(ctx, c, &req.ID, func(rec *driver.Record, w *row) (*driver.Record, error) {
			return s.judge(rec, w, req, &res)
		})
		return res, err
	}
	began := time.Now()
	for try := range swapTries {
		var w row
		call := s.claimCall(req, &w)
		if err = c.Send(ctx, call); err != nil {
			return res, err
		}
		if !call.Statement.Rows { // a bare INSERT
			w.inserted = call.Affected > 0
			if call.InsertID != 0 {
				w.now = at(call.InsertID)
			}
		}
		if w.inserted {
			_, res, err = transition.Claim(nil, *req, w.now)
			return res, err
		}
		if !call.Statement.Rows {
			if err = s.load(ctx, c, &req.ID, &w); err != nil {
				return res, err
			}
			w.locked = !call.Busy
		} else if w.stepped() {
			if err = c.Send(ctx, s.readSteps(&w.rec)); err != nil {
				return res, err
			}
		}
		rec, err := w.record()
		switch {
		case err != nil:
			return res, err
		case rec == nil && w.locked: // it came after the statement's snapshot, or has just gone
			if err := pauseBriefly(ctx, try); err != nil {
				return res, err
			}
			continue
		}
		if s.heldBriefly(try, began, rec, &w, req) {
			if err := pauseBriefly(ctx, try); err != nil {
				return res, err
			}
			continue
		}
		next, err := s.judge(rec, &w, req, &res)
		if next == nil || err != nil {
			return res, err
		}
		if done, err := s.replace(ctx, c, &w, next); done || err != nil {
			return res, err
		}
		if err := pauseBriefly(ctx, try); err != nil {
			return res, err
		}
	}
	return res, errBusyKey
}

// How often a claim looks again at a record that it could have, if it was not locked: for some 120 ms; and at one that
// it cannot see: it is another claim's, or has just been removed, or a purge locks what is beside it.
const (
	briefTries  = 16
	unseenTries = 8
)

// brieflyMost is when a claim looks no more: each look waits in the server on MySQL.
const brieflyMost = 200 * time.Millisecond

// heldBriefly reports whether a record that is locked may be so for a moment only, by a purge or a late write of
// another attempt.
func (s *Store[Tx]) heldBriefly(try int, since time.Time, rec *driver.Record, w *row, req *driver.ClaimRequest) bool {
	if !s.dialect.MySQL || w.locked || time.Since(since) > brieflyMost || rec == nil && try >= unseenTries {
		return false
	}
	return try < briefTries && driver.Decide(rec, *req, w.now) == driver.DecideClaimed
}

// judge decides on a record that was read. Where the key is locked by a transaction, a claim that could be
// granted is in progress: it would have to wait.
func (s *Store[Tx]) judge(rec *driver.Record, w *row, req *driver.ClaimRequest, res *driver.ClaimResult) (next *driver.Record, err error) {
	next, *res, err = transition.Claim(rec, *req, w.now)
	if err == nil && res.Decision == driver.DecideClaimed && !w.locked {
		*res = driver.ClaimResult{Decision: driver.DecideInProgress, Now: w.now}
		return nil, nil
	}
	return next, err
}

func (s *Store[Tx]) claimCall(req *driver.ClaimRequest, w *row) *sqldb.Call {
	lease := req.Lease.Microseconds()
	var total, due any
	if req.ExpireUnsettled {
		us := req.Lifetime.Total().Microseconds()
		total, due = us, max(us, lease)
	}
	call := &sqldb.Call{Statement: s.text.Claim, Args: []any{
		req.ID[:], string(req.Scope), req.Name, req.Nonce[:], req.Owner, lease,
		text(req.Fingerprint.Alg), sumOf(&req.Fingerprint), int64(driver.FormatVersion), total, due,
	}}
	*w = row{locked: true}
	if s.dialect.Clock != nil {
		w.now = s.dialect.Clock().UTC().Truncate(time.Microsecond)
		call.Args = append(call.Args, w.now.UnixMicro())
	}
	if call.Statement.Rows {
		call.Each = w.scan
	}
	return call
}

// hitRate reports whether recent claims found a record more often than not: a read before the claim costs a new key
// something, and spares a duplicate the writer.
type hitRate struct{ per1024 atomic.Int32 }

func (h *hitRate) count(hit bool) {
	old := h.per1024.Load()
	now := old - old/16
	if hit {
		now += 1024 / 16
	}
	if now != old { // a count that is lost in a race is no harm
		h.per1024.Store(now)
	}
}

func (h *hitRate) likely() bool { return h.per1024.Load() > 256 }
