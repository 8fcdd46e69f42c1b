package everonce

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// maxLeft is how many claims a receiver remembers that it could not take back. Those that were under way when the store went are the first.
const maxLeft = 1000

// leftClaims are claims that may have been written, of attempts that never were, and that the store was not there to take back. Nobody
// else would know: their leases would lapse, and they would be unknown.
type leftClaims struct {
	count atomic.Int32
	mu    sync.Mutex
	all   []ReleaseRequest // the oldest first
}

func (l *leftClaims) add(req *ReleaseRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) < maxLeft {
		l.all = append(l.all, *req)
		l.count.Add(1)
	}
}

// take takes out the oldest, or the oldest of one key.
func (l *leftClaims) take(of *RecordID) (req ReleaseRequest, ok bool) {
	if l.count.Load() == 0 {
		return req, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.all, func(r ReleaseRequest) bool { return of == nil || r.ID == *of })
	if i < 0 {
		return req, false
	}
	req = l.all[i]
	l.all = slices.Delete(l.all, i, i+1)
	l.count.Add(-1)
	return req, true
}

// takeBack releases a claim by its nonce, past the end of the caller's context. The work was not called, so nothing took hold. A claim that
// the store cannot release now is left for later.
func (r *core) takeBack(ctx context.Context, req *ReleaseRequest) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.set.StoreTimeout)
	defer cancel()
	res, err := r.store.Release(ctx, *req)
	switch {
	case err == nil && !res.Superseded:
		r.hub.wake(req.ID)
	case err != nil && !isFinal(err):
		r.left.add(req)
	}
	return err
}

// takeBackOwn takes back what was left of a key, which would be found claimed, by nobody.
func (r *core) takeBackOwn(ctx context.Context, id *RecordID) (some bool, err error) {
	for {
		req, ok := r.left.take(id)
		if !ok {
			return some, nil
		}
		if err := r.takeBack(ctx, &req); err != nil {
			return true, err
		}
		some = true
	}
}

// takeBackOne takes back one of those that were left, now that the store answers. Each claim that it answers does so for one, whoever's that is: no
// more of them are left than calls were under way.
func (r *core) takeBackOne(ctx context.Context) {
	if req, ok := r.left.take(nil); ok {
		_ = r.takeBack(ctx, &req) //nolint:errcheck // it is left for later
	}
}
