package everonce

import (
	"context"
	"sync"
	"sync/atomic"
)

// maxLeft is how many claims a receiver remembers that it could not take back. Those that were under way when the store went are the first.
const maxLeft = 1000

// leftClaims are claims that may have been written, of attempts that never were, and that the store was not there to take back. Nobody
// else would know: their leases would lapse, and they would be unknown.
type leftClaims struct {
	count atomic.Int32
	going atomic.Bool // they are being taken back
	mu    sync.Mutex
	byID  map[RecordID]ReleaseRequest
}

func (l *leftClaims) add(req *ReleaseRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID == nil {
		l.byID = make(map[RecordID]ReleaseRequest)
	}
	if len(l.byID) < maxLeft {
		l.byID[req.ID] = *req
	}
	l.count.Store(int32(len(l.byID))) //nolint:gosec // bounded
}

// take takes the claim of one key, if there is one.
func (l *leftClaims) take(id RecordID) (req ReleaseRequest, ok bool) {
	if l.count.Load() == 0 {
		return req, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if req, ok = l.byID[id]; ok {
		delete(l.byID, id)
		l.count.Store(int32(len(l.byID))) //nolint:gosec // bounded
	}
	return req, ok
}

// takeAny takes one, whichever it is.
func (l *leftClaims) takeAny() (req ReleaseRequest, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, req := range l.byID {
		delete(l.byID, id)
		l.count.Store(int32(len(l.byID))) //nolint:gosec // bounded
		return req, true
	}
	return req, false
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

// takeBackAll takes back what was left while the store was away, now that it answers.
func (r *core) takeBackAll() {
	defer r.left.going.Store(false)
	for {
		req, ok := r.left.takeAny()
		if !ok || r.takeBack(context.Background(), &req) != nil {
			return
		}
	}
}
