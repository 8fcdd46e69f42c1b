package everonce

import "context"

// place says where in the calls of this package a context stands: inside which attempts and
// transactions. It is what makes nesting an error instead of a deadlock.
type place struct {
	outer   *place
	attempt *Attempt // whose store and record it is; without a key for InTx
	tx      any      // the transaction, inside one that everonce began, or that is the caller's in DoTx
}

type placeKey struct{}

func placeOf(ctx context.Context) *place {
	p, _ := ctx.Value(placeKey{}).(*place)
	return p
}

// placedContext adds a place to a context without a search through it.
type placedContext struct {
	context.Context
	place *place
}

func (c *placedContext) Value(key any) any {
	if key == (placeKey{}) {
		return c.place
	}
	return c.Context.Value(key)
}

// checkPlace refuses what could only wait for itself: the operation inside its own work, and any call on
// a store inside a transaction that everonce began on it. own is the transaction that the call itself uses.
func (op *operation) checkPlace(own any) error {
	for p := op.place; p != nil; p = p.outer {
		if p.attempt.store != op.store {
			continue
		}
		if p.attempt.id == op.id {
			return op.fail(Invalid, ErrNested, nil)
		}
		if p.tx != nil && p.tx != own {
			return op.fail(Invalid, ErrInTransaction, nil)
		}
	}
	return nil
}

// inTransactionOn reports whether ctx stands inside a transaction that everonce began on the store.
func inTransactionOn(ctx context.Context, store Store) bool {
	for p := placeOf(ctx); p != nil; p = p.outer {
		if p.tx != nil && p.attempt.store == store {
			return true
		}
	}
	return false
}

// AttemptFrom returns the innermost attempt to whose work ctx belongs.
func AttemptFrom(ctx context.Context) (*Attempt, bool) {
	for p := placeOf(ctx); p != nil; p = p.outer {
		if p.attempt.number > 0 {
			return p.attempt, true
		}
	}
	return nil, false
}
