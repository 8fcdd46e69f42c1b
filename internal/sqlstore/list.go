package sqlstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce/internal/sqldb"

	"github.com/everonce/everonce/driver"
)

// defaultPage is the size of a page that names none.
const defaultPage = 100

// selection are the arguments that choose records by scope, after an ID: a range of the primary key, and
// the scope itself. With a scope, the hash of a key is a part of the range. It reports false where the range is behind
// the ID.
func selection(scope driver.Scope, hash driver.KeyHash, after driver.RecordID) ([]any, bool) {
	var low, high driver.RecordID
	for i := range high {
		high[i] = 0xff
	}
	if scope != "" {
		prefix := driver.ScopeRange(scope)
		copy(low[:], prefix[:])
		copy(high[:], prefix[:])
		if hash != (driver.KeyHash{}) {
			copy(low[len(prefix):], hash[:])
			copy(high[len(prefix):], hash[:])
		}
	}
	return []any{after[:], low[:], high[:], string(scope), string(scope) + "/"}, bytes.Compare(after[:], high[:]) < 0
}

// List returns records in the order of their IDs, without the data of their results: see [driver.Lister].
func (s *Store[Tx]) List(ctx context.Context, req driver.ListRequest) (res driver.ListResult, err error) {
	if err = s.ready(ctx); err != nil {
		return res, err
	}
	limit := req.Limit
	if limit <= 0 {
		limit = defaultPage
	}
	args, some := selection(req.Scope, req.KeyHash, req.After)
	if !some {
		return res, nil
	}
	states := int64(0)
	for _, state := range req.States {
		states |= 1 << state
	}
	if len(req.States) == 0 {
		states = allStates
	}
	var stepped []int
	text := s.text.ListOpen
	if states&(1|1<<driver.StateCompleted|1<<driver.StateTombstone) != 0 { // what is damaged may be completed for all that an index knows
		text = s.text.List
	}
	args = append(args, int64(limit), states)
	if req.Name != "" || req.KeyHash != (driver.KeyHash{}) && req.Scope == "" {
		var hash any
		if req.KeyHash != (driver.KeyHash{}) {
			hash = req.KeyHash[:]
		}
		if text = s.text.ListKey; hash == nil && req.Scope == "" {
			text = s.text.ListName
		}
		args = append(args, hash, req.Name)
	}
	list := s.call(text, args...)
	if s.dialect.Clock != nil {
		res.Now = at(list.Args[len(list.Args)-1].(int64))
	}
	list.Each = func(r sqldb.Row) error {
		var w row
		if err := w.scan(r); err != nil {
			return err
		}
		rec := &w.rec
		if w.err != nil { // it must be found to be dealt with
			*rec = driver.Record{ID: rec.ID, Scope: rec.Scope, Name: rec.Name, Format: rec.Format}
		}
		res.Now = w.now
		if w.steps > 0 && rec.Format <= driver.FormatVersion {
			stepped = append(stepped, len(res.Records))
		}
		rec.Result.Data = nil
		res.Records = append(res.Records, *rec)
		return nil
	}
	if err = s.driver.Read(ctx, list); err != nil {
		return driver.ListResult{}, s.wrapError("list", err)
	}
	if len(res.Records) == limit {
		res.Next = res.Records[limit-1].ID
	}
	if req.Steps && len(stepped) > 0 {
		calls := make([]*sqldb.Call, len(stepped))
		for i, n := range stepped {
			calls[i] = s.readSteps(&res.Records[n])
		}
		if err = s.driver.Read(ctx, calls...); err != nil {
			return driver.ListResult{}, s.wrapError("list steps", err)
		}
	}
	return res, nil
}

// DeleteScope deletes the records of a tenant: see [driver.ScopeDeleter]. It skips records that are locked at that
// moment, and reports More. A Limit of 0 is 1000.
//
// If the previous call for this scope reached its limit, DeleteScope continues after its last record: a database that
// keeps deleted rows, for a transaction that may still read them, would otherwise scan all of them in every call.
// Records that were inserted before that place also make it report More.
func (s *Store[Tx]) DeleteScope(ctx context.Context, req driver.DeleteScopeRequest) (driver.DeleteScopeResult, error) {
	var res driver.DeleteScopeResult // read only if the write returns nil
	if err := req.Scope.Validate(); err != nil {
		return res, err
	}
	limit := int64(req.Limit)
	if limit <= 0 {
		limit = defaultPurgeLimit
	}
	var from, reached driver.RecordID
	if stopped, ok := s.stopped.LoadAndDelete(req.Scope); ok {
		from = stopped.(driver.RecordID)
	}
	var left scopeLeft
	err := s.write(ctx, "delete scope", func(ctx context.Context, c sqldb.Conn) error {
		left, reached = scopeLeft{}, from
		args, _ := selection(req.Scope, driver.KeyHash{}, from)
		call := s.call(s.text.DeleteScope, append(args, limit)...).ForEach(func(r sqldb.Row) error {
			var id []byte
			err := r.Scan(&id)
			if bytes.Compare(id, reached[:]) > 0 {
				copy(reached[:], id)
			}
			return err
		})
		var err error
		if s.text.ChooseScope != nil {
			call.Statement = s.text.ChooseScope
			call.Affected, err = s.oneByOne(ctx, c, call, s.text.DeleteScope)
		} else {
			err = c.Send(ctx, call)
		}
		if err != nil {
			return err
		}
		res = driver.DeleteScopeResult{Records: int(call.Affected), More: call.Affected == limit}
		if res.More {
			return nil
		}
		// Records that others had locked were passed over, and are still to be deleted.
		reached = driver.RecordID{}
		args, _ = selection(req.Scope, driver.KeyHash{}, reached)
		err = c.Send(ctx, s.call(s.text.ScopeLeft, args...).ForEach(left.scan))
		res.More, res.Live = left.deletable > 0, left.live > 0
		return err
	})
	if err != nil {
		return driver.DeleteScopeResult{}, err
	}
	if reached != (driver.RecordID{}) {
		s.stopped.Store(req.Scope, reached)
	}
	if !res.More {
		err = s.wrapError("delete scope", left.err())
	}
	return res, err
}

// scopeLeft is the answer of ScopeLeft.
type scopeLeft struct{ all, deletable, live, newer int64 }

func (l *scopeLeft) scan(r sqldb.Row) error { return r.Scan(&l.all, &l.deletable, &l.live, &l.newer) }

// err returns an error that says which records of a scope are left, and why, if a later call cannot delete them either.
func (l *scopeLeft) err() error {
	var errs []error
	if l.newer > 0 {
		errs = append(errs, fmt.Errorf("%w: %d are left", driver.ErrNewerRecord, l.newer))
	}
	if n := l.all - l.deletable - l.live - l.newer; n > 0 {
		errs = append(errs, fmt.Errorf("%w: %d are left", driver.ErrCorruptRecord, n))
	}
	return errors.Join(errs...)
}

// Health counts records by state. It reads all records. See [driver.HealthChecker].
func (s *Store[Tx]) Health(ctx context.Context, _ driver.HealthRequest) (h driver.HealthResult, err error) {
	if err = s.ready(ctx); err != nil {
		return h, err
	}
	call := s.call(s.text.Health)
	call.Each = func(r sqldb.Row) error {
		var now, oldest int64
		if err := r.Scan(&now, &h.Claimed, &h.Abandoned, &h.Released, &h.Completed, &h.Unreadable, &oldest); err != nil {
			return err
		}
		h.Now, h.OldestAbandoned = at(now), at(oldest)
		return nil
	}
	if err = s.driver.Read(ctx, call); err != nil {
		return h, s.wrapError("health", err)
	}
	if s.traits.Notes != nil {
		if h.Notes, err = s.traits.Notes(ctx); err != nil {
			return h, s.wrapError("health", err)
		}
	}
	return h, nil
}
