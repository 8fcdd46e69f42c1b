package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
)

var _ driver.TxBatch = (*txHandle[any])(nil)

// ClaimAll claims many keys inside the transaction. It writes nothing.
func (h *txHandle[Tx]) ClaimAll(ctx context.Context, req driver.ClaimAllRequest) (driver.ClaimAllResult, error) {
	all, err := h.claimAll(ctx, req.Claims)
	return driver.ClaimAllResult{Claims: all}, err
}

func (h *txHandle[Tx]) claimAll(ctx context.Context, reqs []driver.ClaimRequest) (all []driver.ClaimResult, err error) {
	all = make([]driver.ClaimResult, len(reqs))
	if h.store.text.ReadLockedAll == nil {
		return all, h.claimEach(ctx, reqs, all)
	}
	read := readMany{rows: make([]*row, len(reqs))}
	ids := make([]byte, 0, len(reqs)*len(driver.RecordID{}))
	for i := range reqs {
		ids = append(ids, reqs[i].ID[:]...)
	}
	err = h.conn.Send(ctx, h.store.call(h.store.text.ReadLockedAll, ids, int64(len(reqs))).ForEach(read.scan))
	if err == nil {
		err = h.readStepsOf(ctx, read.rows)
	}
	if err != nil {
		return nil, h.wrapError("claim", err)
	}
	if h.claims == nil {
		h.claims = make(map[driver.RecordID]*txClaim, len(reqs))
	}
	claims := make([]txClaim, len(reqs))
	for i := range reqs {
		w := read.rows[i]
		if w == nil {
			w = &row{now: read.now, locked: true}
		}
		if all[i], err = h.grant(&reqs[i], w, &claims[i]); err != nil {
			return nil, h.wrapError("claim", err)
		}
		h.store.hits.count(all[i].Decision != driver.DecideClaimed)
	}
	return all, nil
}

// claimEach claims one key after the other. The keys that others hold are waited for together, not each for itself.
func (h *txHandle[Tx]) claimEach(ctx context.Context, reqs []driver.ClaimRequest, all []driver.ClaimResult) (err error) {
	began := time.Now()
	for i, req := range reqs {
		if h.store.text.Lock != nil {
			var w row
			all[i], err = h.lock(ctx, &req, &w, began)
			err = h.wrapError("claim", err)
		} else {
			all[i], err = h.Claim(ctx, req)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readMany is the answer of ReadLockedAll: nil for a key that was locked and has no record.
type readMany struct {
	now  time.Time
	rows []*row
}

func (m *readMany) scan(r sqldb.Row) error {
	w := new(row)
	if err := w.scan(r); err != nil {
		return err
	}
	m.now = w.now
	if w.place > 0 && w.place <= int64(len(m.rows)) {
		m.rows[w.place-1] = w
	}
	return nil
}

// readStepsOf reads the steps of those records that have some.
func (h *txHandle[Tx]) readStepsOf(ctx context.Context, rows []*row) error {
	var calls []*sqldb.Call
	for _, w := range rows {
		if w != nil && w.stepped() {
			calls = append(calls, h.store.readSteps(&w.rec))
		}
	}
	if len(calls) == 0 {
		return nil
	}
	return h.conn.Send(ctx, calls...)
}

// CommitAll writes the results of many claims of this transaction as the last statements, and commits.
func (h *txHandle[Tx]) CommitAll(ctx context.Context, req driver.CommitAllRequest) (res driver.CommitAllResult, err error) {
	if !h.own {
		return res, errNotOurs("commit")
	}
	last, err := h.finishCalls(req.Completions)
	if err != nil {
		_ = h.conn.Rollback(ctx) //nolint:errcheck // the first error is returned
		return res, err
	}
	err = h.conn.Commit(ctx, last...)
	if errors.Is(err, sqldb.ErrNothingWritten) {
		return res, driver.ErrConflict
	}
	return res, h.wrapError("commit", err)
}

// finishCalls writes what is new and alike by one statement, and the rest one by one.
func (h *txHandle[Tx]) finishCalls(reqs []driver.CompleteRequest) ([]*sqldb.Call, error) {
	var last []*sqldb.Call
	var alike finishMany
	for i := range reqs {
		req := &reqs[i]
		claim, ok := h.claims[req.ID]
		switch {
		case !ok || claim.token != req.Token || claim.req.Nonce != req.Nonce:
			return nil, driver.ErrConflict
		case h.store.text.FinishAll != nil && alike.add(claim, req):
		default:
			last = append(last, h.store.finishCall(claim, req))
			if claim.steps {
				last = append(last, h.store.orphans(req.ID))
			}
		}
	}
	switch len(alike.done) {
	case 0:
	case 1:
		last = append(last, h.store.finishCall(alike.claims[0], alike.done[0]))
	default:
		last = append(last, alike.call(h.store.text.FinishAll))
	}
	return last, nil
}

// finishMany are claims of keys that had no record, whose results differ in nothing but what each has for itself.
type finishMany struct {
	claims []*txClaim
	done   []*driver.CompleteRequest
}

func (m *finishMany) add(claim *txClaim, done *driver.CompleteRequest) bool {
	if claim.rev != 0 {
		return false
	}
	if len(m.done) > 0 {
		first, like := &m.claims[0].req, m.done[0]
		if req := &claim.req; req.Scope != first.Scope || req.Owner != first.Owner || req.Fingerprint.Alg != first.Fingerprint.Alg ||
			done.Result.Kind != like.Result.Kind || done.Result.Codec != like.Result.Codec || done.Lifetime != like.Lifetime {
			return false
		}
	}
	m.claims, m.done = append(m.claims, claim), append(m.done, done)
	return true
}

func (m *finishMany) call(st *sqldb.Statement) *sqldb.Call {
	n := len(m.done)
	var names, tokens, data, summaries sqldb.Array
	var sums any
	ids, nonces := make([]byte, 0, n*32), make([]byte, 0, n*16)
	if !m.claims[0].req.Fingerprint.IsZero() {
		packed := make([]byte, 0, n*32)
		for _, claim := range m.claims {
			packed = append(packed, claim.req.Fingerprint.Sum[:]...)
		}
		sums = packed
	}
	for i, claim := range m.claims {
		ids, nonces = append(ids, claim.req.ID[:]...), append(nonces, claim.req.Nonce[:]...)
		names.Text(claim.req.Name)
		tokens.Int(int64(claim.token))
		data.Bytes(m.done[i].Result.Data)
		summaries.Bytes(m.done[i].Result.Summary)
	}
	req, like := &m.claims[0].req, m.done[0]
	return &sqldb.Call{Statement: st, Must: true, AtLeast: int64(n), Args: []any{
		ids, int64(n), string(req.Scope), names.Arg(), tokens.Arg(), nonces, req.Owner,
		text(req.Fingerprint.Alg), sums, int64(driver.FormatVersion),
		int64(like.Result.Kind), text(like.Result.Codec), data.Arg(), summaries.Arg(),
		like.Lifetime.Retention.Microseconds(), like.Lifetime.Total().Microseconds(),
	}}
}
