package everonce

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/everonce/everonce/driver"
)

const (
	// maxLeft is how many claims a receiver remembers that it could not take back. Those that were under way when the store went are the first.
	maxLeft = 1000
	// leftAtOnce is how many of them one call takes back for others.
	leftAtOnce = 16
)

// leftClaims are claims that may have been written, of attempts that never were, and that the store was not there to take back. Nobody
// else would know: their leases would lapse, and they would be unknown. Each is here until the store has answered.
type leftClaims struct {
	count atomic.Int32
	here  atomic.Bool // the store has answered since
	going atomic.Bool // somebody takes some back for others
	mu    sync.Mutex
	all   []driver.ReleaseRequest // the oldest first
}

func (l *leftClaims) add(req *driver.ReleaseRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.here.Store(false)
	if len(l.all) < maxLeft && l.index(req) < 0 {
		l.all = append(l.all, *req)
		l.count.Store(int32(len(l.all))) //nolint:gosec // bounded
	}
}

func (l *leftClaims) remove(req *driver.ReleaseRequest) {
	if l.count.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := l.index(req); i >= 0 {
		l.all = slices.Delete(l.all, i, i+1)
		l.count.Store(int32(len(l.all))) //nolint:gosec // bounded
	}
}

func (l *leftClaims) index(req *driver.ReleaseRequest) int {
	return slices.IndexFunc(l.all, func(r driver.ReleaseRequest) bool { return r.Nonce == req.Nonce })
}

// of returns those of a key: several callers may each have left one, and only the store knows which of them it has.
func (l *leftClaims) of(id *RecordID) (reqs []driver.ReleaseRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.all {
		if l.all[i].ID == *id {
			reqs = append(reqs, l.all[i])
		}
	}
	return reqs
}

func (l *leftClaims) oldest(n int) []driver.ReleaseRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all[:min(n, len(l.all))])
}

// takeBack releases a claim by its nonce, past the end of the caller's context. The work was not called, so nothing took hold. A claim that
// the store cannot release now is left for later.
func (r *core) takeBack(ctx context.Context, req *driver.ReleaseRequest) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.set.StoreTimeout)
	defer cancel()
	res, err := r.store.Release(ctx, *req)
	if err != nil && (!isFinal(err) || errors.Is(err, ErrStoreFull)) {
		r.left.add(req)
		return err
	}
	r.left.remove(req)
	if err == nil && !res.Superseded {
		r.hub.Wake(req.ID)
	}
	return err
}

// takeBackLeft takes back what was left of a key, which would be found claimed, by nobody; and, once the store answers again, some of what else was
// left. It comes before a claim: a lease that runs cannot wait for others' keys.
func (r *core) takeBackLeft(ctx context.Context, id *RecordID) error {
	for _, req := range r.left.of(id) {
		if err := r.takeBack(ctx, &req); err != nil {
			return err
		}
	}
	if !r.left.here.Load() || !r.left.going.CompareAndSwap(false, true) {
		return nil
	}
	defer r.left.going.Store(false)
	for _, req := range r.left.oldest(leftAtOnce) {
		if r.takeBack(ctx, &req) != nil { // it is left for later
			break
		}
	}
	return nil
}
