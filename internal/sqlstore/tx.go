package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/everonce/everonce/internal/sqldb"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// Begin begins a transaction, and claims in it if the request asks for it: see [driver.TxStore].
func (s *Store[Tx]) Begin(ctx context.Context, req driver.BeginRequest) (driver.TxHandle[Tx], driver.ClaimResult, error) {
	var none driver.ClaimResult
	if err := s.ready(ctx); err != nil {
		return nil, none, err
	}
	opts := BeginOptions{Timeout: s.lease.bound(s.traits.OneWriter, req.Timeout)}
	if req.Claim == nil {
		c, err := s.driver.Begin(ctx, opts)
		if err != nil {
			return nil, none, s.wrapError("begin", err)
		}
		return s.handle(c, true), none, nil
	}
	opts.Key = &req.Claim.ID
	if s.lookFirst(&req.Claim.ID) {
		if done, res, err := s.look(ctx, req.Claim); done || err != nil {
			return nil, res, s.wrapError("begin", err)
		}
	}
	var w row
	var first []*sqldb.Call
	if s.text.Lock == nil {
		first = []*sqldb.Call{s.firstRead(s.text.ReadLocked, &req.Claim.ID, &w)}
	}
	c, err := s.driver.Begin(ctx, opts, first...)
	switch {
	case errors.Is(err, ErrKeyLocked):
		return nil, s.inProgress(), nil
	case err != nil:
		return nil, none, s.wrapError("begin", err)
	}
	h := s.handle(c, true)
	var res driver.ClaimResult
	if first == nil {
		res, err = h.lock(ctx, req.Claim, &w, time.Now())
	} else {
		res, err = h.granted(ctx, req.Claim, first[0], &w)
	}
	s.hits.count(err == nil && res.Decision != driver.DecideClaimed)
	if err != nil || res.Decision != driver.DecideClaimed {
		_ = c.Rollback(ctx) //nolint:errcheck // nothing was written
		return nil, res, s.wrapError("begin", err)
	}
	return h, res, nil
}

// inProgress is the answer where a transaction of this process has the key.
func (s *Store[Tx]) inProgress() driver.ClaimResult {
	res := driver.ClaimResult{Decision: driver.DecideInProgress}
	if s.dialect.Clock != nil {
		res.Now = s.dialect.Clock()
	}
	return res
}

// Join wraps a transaction of the caller: see [driver.TxStore].
func (s *Store[Tx]) Join(ctx context.Context, tx Tx) (driver.TxHandle[Tx], error) {
	c, err := s.driver.Join(ctx, tx)
	if err != nil {
		return nil, s.wrapError("join", err)
	}
	return s.handle(c, false), nil
}

// ClassifyTx returns what an error means for its transaction: see [driver.TxStore].
func (s *Store[Tx]) ClassifyTx(err error) driver.TxErrorClass {
	switch {
	case err == nil:
		return driver.TxErrorOther
	case errors.Is(err, sqldb.ErrCommitLost):
		return driver.TxErrorCommitLost
	case errors.Is(err, errBusyKey):
		return driver.TxErrorRetry
	}
	if s.driver.Classify(err).Class == sqldb.ClassRetry {
		return driver.TxErrorRetry
	}
	return driver.TxErrorOther
}

func (s *Store[Tx]) handle(c sqldb.TxConn[Tx], own bool) *txHandle[Tx] {
	return &txHandle[Tx]{store: s, conn: c, own: own}
}

// txHandle is one transaction, begun here or the caller's.
type txHandle[Tx any] struct {
	store *Store[Tx]
	conn  sqldb.TxConn[Tx]
	own   bool
	// refused says that this handle has had nothing but a claim that was not granted: see ReleaseSavepoint.
	refused bool
	// claims are the claims of this handle that are not completed.
	claims map[driver.RecordID]*txClaim
}

// txClaim is a claim that has written nothing yet.
type txClaim struct {
	req   driver.ClaimRequest
	token driver.Token
	rev   int64 // of the record that the claim found, or has put there; 0 if there was no record
	steps bool  // the record had some
}

func (h *txHandle[Tx]) Tx() Tx { return h.conn.Tx() }

// granted decides a claim on what was read under the key's lock, and remembers it.
func (h *txHandle[Tx]) granted(ctx context.Context, req *driver.ClaimRequest, first *sqldb.Call, w *row) (res driver.ClaimResult, err error) {
	if err = h.store.readOn(ctx, h.conn, first, &req.ID, w); err != nil {
		return res, err
	}
	return h.grant(req, w, new(txClaim))
}

// grant decides a claim on a whole record, and remembers it in claim.
func (h *txHandle[Tx]) grant(req *driver.ClaimRequest, w *row, claim *txClaim) (res driver.ClaimResult, err error) {
	s := h.store
	rec, err := w.record()
	if err != nil {
		return res, err
	}
	if _, err = s.judge(rec, w, req, &res); err != nil || res.Decision != driver.DecideClaimed {
		return res, err
	}
	if old, ok := h.claims[req.ID]; ok && old.req.Nonce != req.Nonce || s.locks != nil && !s.locks.LockKey(h.conn, req.ID) {
		return driver.ClaimResult{Decision: driver.DecideInProgress, Now: res.Now}, nil
	}
	if h.claims == nil {
		h.claims = make(map[driver.RecordID]*txClaim, 1)
	}
	*claim = txClaim{req: *req, token: res.Record.Token, rev: w.rev, steps: w.steps > 0}
	h.claims[req.ID] = claim
	return res, nil
}

// errEnded says that the server has rolled the transaction back: a statement sent then would commit alone.
var errEnded = errors.New("the transaction has ended (roll back and run it again)")

// lock claims where the key is locked by a row: see [Statements.Lock]. It looks again at a key that others hold, as
// long as little time has passed since began.
func (h *txHandle[Tx]) lock(ctx context.Context, req *driver.ClaimRequest, w *row, began time.Time) (res driver.ClaimResult, err error) {
	for try := 0; ; try++ {
		var first *sqldb.Call
		if first, err = h.tryLock(ctx, req, w); err != nil {
			return res, err
		}
		if rec, err := w.record(); err != nil || !h.store.heldBriefly(try, began, rec, w, req) {
			if first == nil {
				return h.grant(req, w, new(txClaim))
			}
			return h.granted(ctx, req, first, w)
		}
		if err = pauseBriefly(ctx, try); err != nil {
			return res, err
		}
	}
}

// tryLock locks the key, if it can, and reads the record by the call that it returns, if there is one.
func (h *txHandle[Tx]) tryLock(ctx context.Context, req *driver.ClaimRequest, w *row) (*sqldb.Call, error) {
	s := h.store
	try := s.call(s.text.Lock, req.ID[:], string(req.Scope), req.Name, req.Nonce[:], int64(driver.FormatVersion))
	if err := h.conn.Send(ctx, try); err != nil {
		return nil, err
	}
	read := s.text.ReadLocked
	switch {
	case try.InsertID != 0:
		*w = row{now: at(try.InsertID), locked: true, rev: lockRev}
		return nil, nil
	case try.Busy:
		read = s.text.ReadBusy
	}
	first := s.readRow(read, &req.ID, w)
	if err := h.conn.Send(ctx, first); err != nil {
		return nil, err
	}
	if !w.found && !try.Busy {
		return nil, errEnded
	}
	w.locked = w.locked && !try.Busy
	return first, nil
}

// Claim claims inside the transaction. Other transactions cannot see what it writes, if anything.
func (h *txHandle[Tx]) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	var w row
	if h.store.text.Lock != nil {
		res, err := h.lock(ctx, &req, &w, time.Now())
		h.refused = err == nil && len(h.claims) == 0
		return res, h.wrapError("claim", err)
	}
	first := h.store.firstRead(h.store.text.ReadLocked, &req.ID, &w)
	if err := h.conn.Send(ctx, first); err != nil {
		return driver.ClaimResult{}, h.wrapError("claim", err)
	}
	res, err := h.granted(ctx, &req, first, &w)
	return res, h.wrapError("claim", err)
}

// Complete writes the result inside the transaction.
func (h *txHandle[Tx]) Complete(ctx context.Context, req driver.CompleteRequest) (res driver.CompleteResult, err error) {
	return res, h.complete(ctx, req)
}

func (h *txHandle[Tx]) complete(ctx context.Context, req driver.CompleteRequest) error {
	call := h.completeCall(&req)
	if err := h.conn.Send(ctx, call); err != nil {
		return h.wrapError("complete", err)
	}
	if call.Affected == 0 {
		return driver.ErrConflict
	}
	defer delete(h.claims, req.ID)
	return h.wrapError("complete", h.dropOrphans(ctx, req.ID))
}

// dropOrphans removes what is left of an operation that was gone by time when this transaction claimed
// its key.
func (h *txHandle[Tx]) dropOrphans(ctx context.Context, id driver.RecordID) error {
	if claim, ok := h.claims[id]; !ok || !claim.steps {
		return nil
	}
	return h.conn.Send(ctx, h.store.orphans(id))
}

func (s *Store[Tx]) orphans(id driver.RecordID) *sqldb.Call {
	return &sqldb.Call{Statement: s.text.DropOrphans, Args: []any{id[:]}}
}

// Record writes a completed record without a claim before it.
func (h *txHandle[Tx]) Record(ctx context.Context, req driver.RecordRequest) (res driver.RecordResult, err error) {
	return res, h.record(ctx, req.Claim, req.Complete)
}

func (h *txHandle[Tx]) record(ctx context.Context, claim driver.ClaimRequest, complete driver.CompleteRequest) error {
	over := &txClaim{req: claim}
	if old, ok := h.claims[claim.ID]; ok && old.req.Nonce == claim.Nonce && old.req.Take == driver.TakeNone {
		over.rev = old.rev // released or gone: as it was claimed, a record that is gone may have steps
	}
	call := h.store.finishCall(over, &complete)
	if err := h.conn.Send(ctx, call); err != nil {
		return h.wrapError("record", err)
	}
	if call.Affected == 0 {
		return driver.ErrConflict
	}
	defer delete(h.claims, claim.ID)
	return h.wrapError("record", h.dropOrphans(ctx, claim.ID))
}

// completeCall completes what this handle has claimed, or else an attempt of the guarded mode.
func (h *txHandle[Tx]) completeCall(req *driver.CompleteRequest) *sqldb.Call {
	claim, ok := h.claims[req.ID]
	if ok && claim.token == req.Token && claim.req.Nonce == req.Nonce {
		return h.store.finishCall(claim, req)
	}
	return h.store.completeCall(req)
}

func (s *Store[Tx]) finishCall(claim *txClaim, done *driver.CompleteRequest) *sqldb.Call {
	req := &claim.req
	st := s.text.Finish
	if s.text.FinishOver != nil && claim.rev != 0 && claim.token != 0 { // the claim's row may be undone: an update of none locks the gap
		st = s.text.FinishOver
		if claim.rev == lockRev {
			st = s.text.FinishLocked
		}
	}
	if s.text.FinishNew != nil && claim.rev == 0 && (claim.token != 0 || s.misses.take(&req.ID)) {
		st = s.text.FinishNew
	}
	call := s.call(st, req.ID[:], claim.rev, string(req.Scope), req.Name, int64(claim.token), req.Nonce[:], req.Owner,
		text(req.Fingerprint.Alg), sumOf(&req.Fingerprint), int64(driver.FormatVersion),
		int64(done.Result.Kind), text(done.Result.Codec), blob(done.Result.Data), blob(done.Result.Summary),
		done.Lifetime.Retention.Microseconds(), done.Lifetime.Total().Microseconds())
	call.Must = true
	return call
}

// Get reads inside the transaction.
func (h *txHandle[Tx]) Get(ctx context.Context, req driver.GetRequest) (driver.GetResult, error) {
	res, err := h.store.get(ctx, h.conn, req)
	return res, h.wrapError("get", err)
}

// Renew checks and locks the token inside the transaction, and renews the lease.
func (h *txHandle[Tx]) Renew(ctx context.Context, req driver.RenewRequest) (res driver.RenewResult, err error) {
	h.store.lease.see(req.Lease)
	return res, h.wrapError("renew", h.store.renew(ctx, h.conn, &req))
}

// savepoint runs a statement on a savepoint, whose name everonce chose.
func (h *txHandle[Tx]) savepoint(ctx context.Context, verb, name string, rides bool) error {
	if err := ValidateName("savepoint", name); err != nil {
		return err
	}
	return h.wrapError(verb, h.conn.Send(ctx, &sqldb.Call{Statement: &sqldb.Statement{Name: "savepoint", Text: verb + " " + name, Rides: rides}}))
}

func (h *txHandle[Tx]) Savepoint(ctx context.Context, name string) error {
	return h.savepoint(ctx, "SAVEPOINT", name, true)
}

func (h *txHandle[Tx]) RollbackTo(ctx context.Context, name string) error {
	return h.savepoint(ctx, "ROLLBACK TO SAVEPOINT", name, false) // it proves that the transaction is alive
}

func (h *txHandle[Tx]) ReleaseSavepoint(ctx context.Context, name string) error {
	if h.refused { // MySQL and MariaDB then unlock the record, if the transaction had not touched their engine before
		return h.savepoint(ctx, "ROLLBACK TO SAVEPOINT", name, false)
	}
	return h.savepoint(ctx, "RELEASE SAVEPOINT", name, true)
}

// Commit does what the request asks as the last statements, and commits.
func (h *txHandle[Tx]) Commit(ctx context.Context, req driver.CommitRequest) (res driver.CommitResult, err error) {
	return res, h.commit(ctx, req)
}

func (h *txHandle[Tx]) commit(ctx context.Context, req driver.CommitRequest) error {
	if !h.own {
		return errNotOurs("commit")
	}
	var last []*sqldb.Call
	switch {
	case req.Record != nil && req.Complete != nil:
		last = append(last, h.store.finishCall(&txClaim{req: *req.Record}, req.Complete))
	case req.Complete != nil:
		call := h.completeCall(req.Complete)
		if call.Must {
			last = append(last, call)
			if claim, ok := h.claims[req.Complete.ID]; ok && claim.steps {
				last = append(last, h.store.orphans(req.Complete.ID))
			}
			break
		}
		if err := h.complete(ctx, *req.Complete); err != nil { // a guarded attempt's: it does not ride
			_ = h.conn.Rollback(ctx) //nolint:errcheck // the first error is returned
			return err
		}
	case req.Record != nil:
		_ = h.conn.Rollback(ctx) //nolint:errcheck // the argument is what is wrong
		return fmt.Errorf("%w: CommitRequest.Record without Complete", driver.ErrInvalidArgument)
	}
	var step *sqldb.Call
	if req.SaveStep != nil {
		h.store.lease.see(req.SaveStep.Lease)
		save := cmp.Or(h.store.text.SaveStepOnce, h.store.text.SaveStep)
		steps := h.store.saveStepCalls(save, h.store.text.PutStepOnce, req.SaveStep)
		step = steps[0]
		for _, call := range steps { // both must write: the work already knows a step that stands
			call.Must = true
		}
		last = append(last, steps...)
	}
	err := h.conn.Commit(ctx, last...)
	if errors.Is(err, sqldb.ErrNothingWritten) {
		if step != nil && (last[0] == step || last[0].Affected > 0) {
			return h.store.whyNoStep(ctx, req.SaveStep)
		}
		return driver.ErrConflict
	}
	return h.wrapError("commit", err)
}

// whyNoStep distinguishes a lost lease from a full record, and from one that cannot be judged, after the transaction
// was rolled back.
func (s *Store[Tx]) whyNoStep(ctx context.Context, req *driver.SaveStepRequest) error {
	var w row
	if s.load(ctx, reader[Tx]{s.driver}, &req.ID, &w) != nil || !w.found {
		return driver.ErrLeaseLost
	}
	if w.err != nil {
		return s.wrapError("save step", w.err)
	}
	switch _, err := transition.SaveStep(&w.rec, *req, w.now); {
	case errors.Is(err, driver.ErrTooLarge):
		return err
	case errors.Is(err, driver.ErrNewerRecord):
		return s.wrapError("save step", err)
	case err == nil && !slices.ContainsFunc(w.rec.Steps, func(have driver.StepRecord) bool { return have.Name == req.Step.Name }):
		return s.wrapError("save step", errBusyKey) // others wrote steps beside it: the transaction may be run again
	}
	return driver.ErrLeaseLost
}

// Rollback ends the transaction.
func (h *txHandle[Tx]) Rollback(ctx context.Context) error {
	if !h.own {
		return errNotOurs("rollback")
	}
	return h.wrapError("rollback", h.conn.Rollback(ctx))
}

func errNotOurs(what string) error {
	return fmt.Errorf("%w: %s of a transaction that the caller began", driver.ErrInvalidArgument, what)
}

func (h *txHandle[Tx]) wrapError(what string, err error) error {
	if errors.Is(err, sqldb.ErrNothingWritten) {
		return driver.ErrConflict
	}
	return h.store.wrapError(what, err)
}
