package everonce

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/everonce/everonce/driver"
)

// groupRetries is how often a group of several operations is run again as a whole. After that it is run in halves:
// a single operation may be the cause.
const groupRetries = 3

// group is a part of a batch that runs in one transaction after another until its operations are answered.
type group[T, Tx any] struct {
	*batch[T, Tx]
	runs[Tx]
	part   []int // the items not answered yet, in the order of the batch
	values []T   // of the latest run that came to its commit, by place in part
}

// loop answers the whole group, or returns the parts that must run separately.
func (g *group[T, Tx]) loop(ctx context.Context) [][]int {
	for {
		err := g.once(ctx)
		again := asAgain(err)
		switch {
		case err == nil:
			return nil
		case again == nil:
			return split(g.part, err)
		case g.lost == nil && g.retries >= min(groupRetries, g.set.TxRetries): // a lost commit is looked up as a whole
			return split(g.part, nil)
		}
		if end := g.next(ctx, &g.whole, again); end != nil {
			g.end(end)
			return nil
		}
		for _, i := range g.part {
			g.ops[i].repeated()
		}
	}
}

// end answers the remaining items.
func (g *group[T, Tx]) end(e *Error) {
	attempt := 0
	if g.lost != nil {
		attempt = 1
	}
	for _, i := range g.part {
		its := *e
		its.KeyHash = g.ops[i].id.Short()
		g.answer(i, Result[T]{Outcome: e.Outcome, Attempt: attempt}, &its)
	}
	g.part = nil
}

// once runs one transaction. An error that is not an errAgain means: split the group.
func (g *group[T, Tx]) once(ctx context.Context) error {
	tx, claims, err := g.claim(g.outliving(ctx))
	if err != nil {
		return g.notBegun(ctx, err)
	}
	defer tx.close(ctx)
	if claims, err = g.answerRefused(claims); err != nil || len(g.part) == 0 {
		return err
	}
	if ctx.Err() != nil {
		g.end(g.whole.callerGone(ctx, nil))
		return nil
	}
	a := &Attempt{operation: g.whole}
	if g.values, err = runIn(ctx, tx, a, a.inTx(tx.h.Tx()), g.perform); err != nil {
		return err
	}
	if err := tx.commitAll(ctx, g.completions(claims)); err != nil {
		if errors.Is(err, ErrConflict) {
			return &errAgain{err}
		}
		if errors.Is(err, driver.ErrTooLarge) || errors.Is(err, ErrTxTooLong) {
			return err
		}
		return g.commitError(err) // or a deferred constraint that one of the items violated
	}
	for k, i := range g.part {
		g.committed(i, g.values[k], claims[k].Record.Attempt)
	}
	g.part = nil
	return nil
}

func (g *group[T, Tx]) perform(ctx context.Context, tx Tx) ([]T, error) {
	values, err := g.work(ctx, tx, slices.Clone(g.part))
	if err == nil {
		err = checkCount(values, len(g.part))
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

// claim begins a transaction and claims all. The answers are by place in part.
func (g *group[T, Tx]) claim(ctx context.Context) (tx *lent[Tx], claims []driver.ClaimResult, err error) {
	order := g.order()
	reqs := make([]driver.ClaimRequest, len(order))
	for n, k := range order {
		reqs[n] = g.ops[g.part[k]].claimAs(ctx, g.nonce)
	}
	if tx, _, err = g.begin(ctx, driver.BeginRequest{Timeout: g.set.TxTimeout}); err != nil {
		return nil, nil, err
	}
	sorted, err := g.claimAll(ctx, tx.h, reqs)
	if err != nil {
		_ = tx.rollback(ctx) //nolint:errcheck // nothing was written
		return nil, nil, g.beginError(err)
	}
	claims = make([]driver.ClaimResult, len(sorted))
	for n, k := range order {
		claims[k] = sorted[n]
	}
	return tx, claims, nil
}

// claimAll claims by one store call, or by one for each.
func (g *group[T, Tx]) claimAll(ctx context.Context, h driver.TxHandle[Tx], reqs []driver.ClaimRequest) (claims []driver.ClaimResult, err error) {
	if many, ok := h.(driver.TxBatch); ok {
		one, cancel := context.WithTimeout(ctx, g.set.StoreTimeout)
		defer cancel()
		all, err := many.ClaimAll(one, driver.ClaimAllRequest{Claims: reqs})
		if err == nil && len(all.Claims) != len(reqs) {
			err = fmt.Errorf("%d answers to %d claims", len(all.Claims), len(reqs))
		}
		return all.Claims, err
	}
	claims = make([]driver.ClaimResult, len(reqs))
	for i, req := range reqs {
		one, cancel := context.WithTimeout(ctx, g.set.StoreTimeout)
		claims[i], err = h.Claim(one, req)
		cancel()
		if err != nil {
			return nil, err
		}
	}
	return claims, nil
}

// notBegun ends a transaction in which nothing was claimed.
func (g *group[T, Tx]) notBegun(ctx context.Context, err error) error {
	if asAgain(err) != nil || ctx.Err() == nil && (errors.Is(err, driver.ErrCorruptRecord) || errors.Is(err, driver.ErrNewerRecord)) { // caused by one of them
		return err
	}
	g.end(g.whole.storeFailed(ctx, err))
	return nil
}

// answerRefused answers the items whose claim was not granted, and returns the claims of the rest.
func (g *group[T, Tx]) answerRefused(claims []driver.ClaimResult) ([]driver.ClaimResult, error) {
	if g.lost != nil && slices.ContainsFunc(claims, func(c driver.ClaimResult) bool { return c.Decision == driver.DecideInProgress }) {
		return nil, &errAgain{g.lost} // the old transaction may still be open
	}
	left, granted := g.part[:0:0], claims[:0]
	for k, i := range g.part {
		claim, op := &claims[k], &g.ops[i]
		switch {
		case claim.Decision == driver.DecideClaimed:
			left, granted = append(left, i), append(granted, *claim)
		case g.lost != nil && hadCommitted(claim, g.nonce):
			g.committed(i, g.values[k], claim.Record.Attempt)
		default:
			res, err := resultOf[T](op, claim)
			g.answer(i, res, err)
		}
	}
	g.part, g.lost = left, nil
	return granted, nil
}

// completions returns the results to save, in the order of the keys' hashes.
func (g *group[T, Tx]) completions(claims []driver.ClaimResult) []driver.CompleteRequest {
	done := make([]driver.CompleteRequest, 0, len(g.values))
	for _, k := range g.order() {
		op := &g.ops[g.part[k]]
		saved, elided := encode(op.core, op.call, g.values[k], g.summarize)
		if op.ev != nil {
			op.ev.Attempt, op.ev.Elided = max(claims[k].Record.Attempt, 1), elided
		}
		done = append(done, driver.CompleteRequest{
			ID: op.id, Token: claims[k].Record.Token, Nonce: g.nonce, Result: saved, Lifetime: op.call.lifetime,
		})
	}
	return done
}

func (g *group[T, Tx]) committed(i int, value T, attempt int) {
	g.answer(i, Result[T]{Value: value, Outcome: Executed, Attempt: max(attempt, 1)}, nil)
	g.t.hub.Wake(g.ops[i].id)
}
