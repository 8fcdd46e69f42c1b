package everonce

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/retry"
)

// groupRetries is how often a group of several operations is run again as a whole. After that it is run in
// halves: what makes it fail each time may be one of them.
const groupRetries = 3

// group is a part of a batch, of several operations, on its way through one transaction after the other.
type group[T, Tx any] struct {
	*batch[T, Tx]
	part []int // what is not answered yet, in the order of the batch

	lost    []T // the values whose commit's answer was lost, by place in part
	lostErr error
	retries int
}

// errSplit asks for smaller groups.
type errSplit struct{ cause error }

func (e *errSplit) Error() string { return fmt.Sprintf("in parts: %v", e.cause) }
func (e *errSplit) Unwrap() error { return e.cause }

// loop answers all of the group, or returns the parts that are to be run by themselves.
func (g *group[T, Tx]) loop(ctx context.Context) [][]int {
	for {
		err := g.once(ctx)
		if err == nil {
			return nil
		}
		again, ok := err.(*errAgain) //nolint:errorlint // never wrapped
		if !ok {
			return split(g.part, err)
		}
		limit, waitCtx := min(groupRetries, g.t.set.TxRetries), ctx
		if g.lostErr != nil { // what became of the commit is found out past the caller's end, and not in parts
			limit, waitCtx = g.t.set.TxRetries, context.WithoutCancel(ctx)
		}
		g.retries++
		switch {
		case g.retries > limit && g.lostErr != nil:
			g.unknown(again.cause)
			return nil
		case g.retries > limit:
			return split(g.part, nil)
		case retry.Pause(waitCtx, retry.Backoff(g.retries)) != nil:
			g.callerGone(ctx, again.cause)
			return nil
		}
		for _, i := range g.part {
			g.ops[i].repeated()
		}
	}
}

// end answers all that is left: of an attempt, or of none (0).
func (g *group[T, Tx]) end(attempt int, how func(op *operation) *Error) {
	for _, i := range g.part {
		e := how(&g.ops[i])
		g.answer(i, Result[T]{Outcome: e.Outcome, Attempt: attempt}, e)
	}
	g.part = nil
}

func (g *group[T, Tx]) callerGone(ctx context.Context, said error) {
	g.end(0, func(op *operation) *Error { return op.callerGone(ctx, said) })
}

func (g *group[T, Tx]) unknown(cause error) {
	cause = ofStore(errors.Join(g.lostErr, cause))
	g.end(1, func(op *operation) *Error {
		e := op.fail(Unknown, ErrOutcomeUnknown, cause)
		e.RetryAfter = op.set.RetryAfter
		return e
	})
}

// once runs one transaction. An *errAgain asks for another, an *errSplit, or an error of the work, for smaller groups.
func (g *group[T, Tx]) once(ctx context.Context) error {
	tx, claims, again, err := g.begin(ctx)
	if err != nil {
		return g.notBegun(ctx, again, err)
	}
	defer tx.close(ctx)
	if claims, err = g.hear(claims); err != nil || len(g.part) == 0 {
		return err
	}
	if ctx.Err() != nil {
		g.callerGone(ctx, nil)
		return nil
	}
	a := &Attempt{operation: g.whole}
	values, err := runIn(ctx, tx, a, a.inTx(tx.h.Tx()), g.perform)
	switch {
	case err == nil:
	case readMarks(err) == endedUnknown && g.t.txs.ClassifyTx(err) == driver.TxErrorRetry:
		return &errAgain{err}
	default:
		return err
	}
	if err := tx.commitAll(ctx, g.completions(claims, values)); err != nil {
		return g.uncommitted(err, values)
	}
	for k, i := range g.part {
		g.committed(i, values[k], claims[k].Record.Attempt)
	}
	g.part = nil
	return nil
}

func (g *group[T, Tx]) perform(ctx context.Context, tx Tx) ([]T, error) {
	values, err := g.work(ctx, tx, slices.Clone(g.part))
	if err == nil {
		err = counted(values, len(g.part))
	}
	return values, err
}

// order returns the places in part, in the order of the keys' hashes.
func (g *group[T, Tx]) order() []int {
	order := make([]int, len(g.part))
	for k := range order {
		order[k] = k
	}
	slices.SortFunc(order, func(k, l int) int { return g.byID(g.part[k], g.part[l]) })
	return order
}

// begin begins a transaction and claims all. The answers are by place in part.
func (g *group[T, Tx]) begin(ctx context.Context) (tx *lent[Tx], claims []driver.ClaimResult, again bool, err error) {
	if g.lostErr != nil {
		ctx = context.WithoutCancel(ctx)
	}
	order := g.order()
	reqs := make([]driver.ClaimRequest, len(order))
	for n, k := range order {
		reqs[n] = g.ops[g.part[k]].claimAs(g.nonce)
	}
	if tx, _, again, err = begin(ctx, g.t.txs, g.t.set, driver.BeginRequest{Timeout: g.t.set.TxTimeout}); err != nil {
		return nil, nil, again, err
	}
	sorted, err := g.claimAll(ctx, tx.h, reqs)
	if err != nil {
		_ = tx.rollback(ctx) //nolint:errcheck // nothing was written
		return nil, nil, !isFinal(err) && g.t.txs.ClassifyTx(err) == driver.TxErrorRetry, err
	}
	claims = make([]driver.ClaimResult, len(sorted))
	for n, k := range order {
		claims[k] = sorted[n]
	}
	return tx, claims, false, nil
}

// claimAll claims by one store call, or by one for each.
func (g *group[T, Tx]) claimAll(ctx context.Context, h driver.TxHandle[Tx], reqs []driver.ClaimRequest) (claims []driver.ClaimResult, err error) {
	if many, ok := h.(driver.TxBatch); ok {
		one, cancel := context.WithTimeout(ctx, g.t.set.StoreTimeout)
		defer cancel()
		all, err := many.ClaimAll(one, driver.ClaimAllRequest{Claims: reqs})
		if err == nil && len(all.Claims) != len(reqs) {
			err = fmt.Errorf("%d answers to %d claims", len(all.Claims), len(reqs))
		}
		return all.Claims, err
	}
	claims = make([]driver.ClaimResult, len(reqs))
	for i, req := range reqs {
		one, cancel := context.WithTimeout(ctx, g.t.set.StoreTimeout)
		claims[i], err = h.Claim(one, req)
		cancel()
		if err != nil {
			return nil, err
		}
	}
	return claims, nil
}

// notBegun is the end of a transaction in which nothing was claimed.
func (g *group[T, Tx]) notBegun(ctx context.Context, again bool, err error) error {
	switch {
	case g.lostErr != nil:
		return &errAgain{err}
	case ctx.Err() != nil:
		g.callerGone(ctx, err)
		return nil
	case errors.Is(err, driver.ErrCorruptRecord), errors.Is(err, driver.ErrNewerRecord): // one of them
		return &errSplit{err}
	case again:
		return &errAgain{err}
	}
	g.end(0, func(op *operation) *Error { return op.fail(StoreFailed, ErrStore, err) })
	return nil
}

// hear answers what was not granted, and returns the claims of what is left in part.
func (g *group[T, Tx]) hear(claims []driver.ClaimResult) ([]driver.ClaimResult, error) {
	if g.lostErr != nil && slices.ContainsFunc(claims, func(c driver.ClaimResult) bool { return c.Decision == driver.DecideInProgress }) {
		return nil, &errAgain{g.lostErr} // the old transaction may still be open
	}
	left, granted := g.part[:0:0], claims[:0]
	for k, i := range g.part {
		claim, op := &claims[k], &g.ops[i]
		switch {
		case claim.Decision == driver.DecideClaimed:
			left, granted = append(left, i), append(granted, *claim)
		case g.lostErr != nil && claim.Record.Nonce == g.nonce && (claim.Decision == driver.DecideReplay || claim.Decision == driver.DecideExpired):
			g.committed(i, g.lost[k], claim.Record.Attempt) // it had committed
		default:
			res, err := settled[T](op, claim)
			g.answer(i, res, err)
		}
	}
	g.part, g.lost, g.lostErr = left, nil, nil
	return granted, nil
}

// completions returns what is to be saved, in the order of the keys' hashes.
func (g *group[T, Tx]) completions(claims []driver.ClaimResult, values []T) []driver.CompleteRequest {
	done := make([]driver.CompleteRequest, 0, len(values))
	for _, k := range g.order() {
		op := &g.ops[g.part[k]]
		saved, elided := encode(op.core, op.call, values[k], g.summarize)
		if op.ev != nil {
			op.ev.Attempt, op.ev.Elided = max(claims[k].Record.Attempt, 1), elided
		}
		done = append(done, driver.CompleteRequest{
			ID: op.id, Token: claims[k].Record.Token, Nonce: g.nonce, Result: saved, Lifetime: op.call.lifetime,
		})
	}
	return done
}

// uncommitted is the end of a transaction whose commit failed.
func (g *group[T, Tx]) uncommitted(err error, values []T) error {
	switch {
	case errors.Is(err, driver.ErrConflict):
		return &errAgain{err}
	case errors.Is(err, driver.ErrTooLarge), errors.Is(err, ErrTxTooLong):
		return &errSplit{err}
	}
	switch g.t.txs.ClassifyTx(err) {
	case driver.TxErrorRetry:
		return &errAgain{err}
	case driver.TxErrorCommitLost:
		g.lost, g.lostErr = values, err
		return &errAgain{err}
	}
	return &errSplit{err} // a constraint that is checked at the commit, say: it is of one of them
}

func (g *group[T, Tx]) committed(i int, value T, attempt int) {
	g.answer(i, Result[T]{Value: value, Outcome: Executed, Attempt: max(attempt, 1)}, nil)
	g.t.hub.Wake(g.ops[i].id)
}
