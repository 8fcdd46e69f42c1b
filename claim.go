package everonce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/retry"
	"github.com/everonce/everonce/internal/waiting"
)

// claimAs returns the operation's claim with a nonce as a transaction makes it: without a lease.
func (op *operation) claimAs(ctx context.Context, n driver.Nonce) driver.ClaimRequest {
	return driver.ClaimRequest{
		ID: op.id, Scope: op.key.Scope, Name: op.key.ID, Nonce: n, Owner: op.owner(ctx),
		Fingerprint: op.fingerprint, Lifetime: op.call.lifetime,
	}
}

// claimRequest returns the claim of a guarded call.
func (op *operation) claimRequest(ctx context.Context) driver.ClaimRequest {
	req := op.claimAs(ctx, driver.NewNonce())
	req.Lease, req.ExpireUnsettled = op.call.lease, op.call.policy == Reexecute
	if op.takesOver() {
		req.Take = driver.TakeAbandoned
	}
	return req
}

// takesOver reports whether the operation's claims take over abandoned attempts. Claims in a transaction, which has
// no policy, do not.
func (op *operation) takesOver() bool {
	switch op.call.policy {
	case Reexecute, Reconcile:
		return true
	case Refuse:
		return op.call.effectsInSteps
	}
	return false
}

// acquire claims, and waits for a running attempt if the call asks for it. started is the local time before the
// claim was first sent.
func (op *operation) acquire(ctx context.Context, claim *driver.ClaimResult) (started time.Time, err error) {
	req := op.claimRequest(ctx)
	w := op.waiter(req.Nonce)
	defer w.Leave()
	for {
		if started, err = op.claim(ctx, &req, claim); err != nil {
			if !isFinal(err) {
				w.Failed(ctx)
			}
			return started, err
		}
		if claim.Decision != driver.DecideInProgress || op.call.wait == 0 {
			op.waits = false
			w.Share(claim)
			return started, nil
		}
		again, err := op.wait(ctx, &w, claim)
		switch {
		case err != nil:
			if op.resent { // one of its claims may arrive late, and no other call would release it
				op.retract(ctx, &req)
			}
			return started, op.callerGone(ctx, nil)
		case !again:
			return started, nil
		}
	}
}

// waiter returns the operation's waiter, for a claim with the nonce n.
func (op *operation) waiter(n driver.Nonce) waiting.Waiter {
	w := waiting.Waiter{
		Hub: &op.hub, ID: op.id, Nonce: n, Limit: op.call.wait, Watcher: op.watcher, Timeout: op.set.StoreTimeout, Fingerprint: op.fingerprint,
	}
	if op.takesOver() {
		w.Take = driver.TakeAbandoned
	}
	return w
}

// wait is [waiting.Waiter.Wait], observed.
func (op *operation) wait(ctx context.Context, w *waiting.Waiter, claim *driver.ClaimResult) (again bool, err error) {
	op.waits, w.Resent = true, op.resent
	again, err = w.Wait(ctx, claim)
	if op.ev != nil {
		op.ev.Waited = w.Waited()
	}
	return again, err
}

// claimTries is how often a claim is sent, with the same nonce, before its error is returned.
const claimTries = 3

// claim sends one claim, and repeats it if its answer may have been lost. A claim that failed for good but may have
// been written is released by its nonce, so that no other call waits for an attempt that never ran.
func (op *operation) claim(ctx context.Context, req *driver.ClaimRequest, claim *driver.ClaimResult) (time.Time, error) {
	started := monotonicNow()
	if ctx.Err() != nil {
		return started, op.callerGone(ctx, nil)
	}
	if op.left.count.Load() > 0 {
		if err := op.takeBackLeft(ctx, &op.id); err != nil {
			return started, op.storeFailed(ctx, err)
		}
		started = monotonicNow()
	}
	var err error
	for try := 1; ; try++ {
		one, cancel := op.storeContext(ctx)
		*claim, err = op.store.Claim(one, *req)
		cancel()
		if err == nil {
			break
		}
		if isFinal(err) {
			if op.resent { // that holds for the last request only
				op.retract(ctx, req)
			}
			return started, op.fail(StoreFailed, ErrStore, err)
		}
		if try == claimTries || retry.Pause(ctx, retry.Backoff(try)) != nil {
			op.retract(ctx, req)
			return started, op.storeFailed(ctx, err)
		}
		op.repeated()
		op.resent = true
	}
	if op.left.count.Load() > 0 {
		op.left.here.Store(true)
	}
	if claim.Decision == driver.DecideClaimed && !op.prompt && time.Since(started) >= req.Lease {
		op.retract(ctx, req)
		return started, op.fail(StoreFailed, ErrStore, fmt.Errorf("the claim's answer took longer than its lease of %v", req.Lease))
	}
	if claim.Decision == driver.DecideClaimed && ctx.Err() != nil { // the work must not start with an ended context
		op.waits = false
		op.retract(ctx, req)
		return started, op.callerGone(ctx, nil)
	}
	return started, nil
}

// repeated tells the observer that a store call, or a transaction, is made again.
func (op *operation) repeated() {
	if op.ev != nil {
		op.ev.Retries++
	}
}

// storeContext returns the context of a store call. It is the caller's if that suffices: a new one is most of what
// the core costs in a look-up.
func (r *core) storeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if !r.prompt {
		if end, ok := ctx.Deadline(); !ok || time.Until(end) > r.set.StoreTimeout {
			return context.WithTimeout(ctx, r.set.StoreTimeout)
		}
	}
	return ctx, func() {}
}

// retract takes a claim back (see takeBack). Its error is dropped: the caller returns why there was no attempt.
func (op *operation) retract(ctx context.Context, req *driver.ClaimRequest) {
	_ = op.takeBack(ctx, &driver.ReleaseRequest{ //nolint:errcheck // takeBack keeps it for later
		ID: req.ID, Scope: req.Scope, Name: req.Name, Nonce: req.Nonce, State: driver.StateReleased,
		ErrorClass: classClaim, Lifetime: req.Lifetime, ExpireUnsettled: req.ExpireUnsettled,
	})
}

// isFinal reports whether a store's error will be the same if the call is repeated at once, and proves that
// nothing was written.
func isFinal(err error) bool {
	for _, s := range [...]error{
		ErrSchema, driver.ErrNewerRecord, driver.ErrCorruptRecord, ErrStoreFull, driver.ErrTooLarge, ErrIdentity, ErrAttemptEnded,
		ErrInvalidKey, ErrInvalidArgument, ErrInTransaction,
	} {
		if errors.Is(err, s) {
			return true
		}
	}
	return false
}

// refusal returns the error for a claim that did not get the record, for every decision except a replay.
func (op *operation) refusal(claim *driver.ClaimResult) *Error {
	rec := &claim.Record
	switch claim.Decision {
	case driver.DecideInProgress:
		e := op.fail(InProgress, ErrInProgress, nil)
		e.RetryAfter = op.set.RetryAfter
		if left := rec.LeaseUntil.Sub(claim.Now); left > 0 && left < e.RetryAfter {
			e.RetryAfter = left
		}
		return e
	case driver.DecideMismatch:
		return op.fail(Mismatch, ErrMismatch, nil)
	case driver.DecideAbandoned:
		return op.unknown(rec.UnknownStep, rec.UnknownStep, nil)
	case driver.DecideExpired:
		e := op.fail(Expired, ErrExpired, nil)
		e.Summary, e.Kind = bytes.Clone(rec.Result.Summary), rec.Result.Kind
		return e
	}
	return op.fail(StoreFailed, ErrStore, fmt.Errorf("the store returned the unexpected decision %v", claim.Decision))
}

// unknown returns the error for an attempt that was left abandoned, because of a step or not. Unless a step must be
// settled first, the next claim takes over.
func (op *operation) unknown(step, toSettle string, cause error) *Error {
	e := op.fail(Unknown, ErrOutcomeUnknown, cause)
	e.Step = step
	if toSettle == "" && op.takesOver() {
		e.RetryAfter = op.set.RetryAfter
	}
	return e
}

const (
	// maxLeft is how many claims that it could not take back a receiver remembers. Claims in flight when the store
	// failed come first.
	maxLeft = 1000
	// leftAtOnce is how many of them one call takes back for others.
	leftAtOnce = 16
)

// leftClaims are claims that may have been written, for attempts that never ran, and that could not be taken back
// because the store was unreachable. No other process knows about them: their leases would lapse, and the
// operations would be unknown. Each claim is kept until the store has answered.
type leftClaims struct {
	count atomic.Int32
	here  atomic.Bool // the store has answered since
	going atomic.Bool // a call is taking some back for other keys
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

// of returns the claims of a key: several callers may each have left one, and only the store knows which of them it
// has.
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

// takeBack releases a claim by its nonce, past the end of the caller's context. The work was not called, so nothing
// happened. A claim that the store cannot release now is left for later.
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

// takeBackLeft takes back the left claims of a key, which would block it although no attempt runs. Once the store
// answers again it also takes back some of the others. It comes before a claim: a running lease cannot wait for
// other keys.
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
		if r.takeBack(ctx, &req) != nil { // takeBack keeps it for later
			break
		}
	}
	return nil
}
