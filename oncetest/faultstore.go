package oncetest

import (
	"context"
	"sync"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// FaultStore returns store with calls that fail as the plan says: before they are made; or after, so that only
// their answer is lost; or by hanging until their context ends. It has the optional powers of store
// ([driver.PowerOf]), and lets them fail too, except four. [driver.Recaller] cannot fail, and would answer a
// duplicate past the plan. Without [driver.ChangeWaiter] and [driver.IdentityReader] waiters ask again and again,
// and DoTx and Lookup do not compare the identity secret. It is not a [driver.Prompter], because calls may hang. It
// is safe for concurrent use.
func FaultStore(store everonce.Store, plan Plan) everonce.Store {
	return &faultStore{store, &numbered{plan: plan}}
}

// numbered numbers calls and asks the plan about them.
type numbered struct {
	plan Plan
	mu   sync.Mutex
	n    [opEnd]int
	seq  int
}

func (n *numbered) next(op Op, key string) (Call, Fault) {
	n.mu.Lock()
	n.seq++
	n.n[op]++
	c := Call{Op: op, N: n.n[op], Seq: n.seq, Key: key}
	n.mu.Unlock()
	if n.plan == nil {
		return c, Pass
	}
	return c, n.plan(c)
}

// faulty makes one numbered call.
func faulty[Req, Res any](ctx context.Context, n *numbered, op Op, call func(context.Context, Req) (Res, error), req Req) (Res, error) {
	c, f := n.next(op, "")
	return suffer(ctx, c, f, func() (Res, error) { return call(ctx, req) })
}

type faultStore struct {
	store everonce.Store
	n     *numbered
}

func (s *faultStore) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	return faulty(ctx, s.n, OpClaim, s.store.Claim, req)
}

func (s *faultStore) Complete(ctx context.Context, req driver.CompleteRequest) (driver.CompleteResult, error) {
	return faulty(ctx, s.n, OpComplete, s.store.Complete, req)
}

func (s *faultStore) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseResult, error) {
	return faulty(ctx, s.n, OpRelease, s.store.Release, req)
}

func (s *faultStore) Renew(ctx context.Context, req driver.RenewRequest) (driver.RenewResult, error) {
	return faulty(ctx, s.n, OpRenew, s.store.Renew, req)
}

func (s *faultStore) SaveStep(ctx context.Context, req driver.SaveStepRequest) (driver.SaveStepResult, error) {
	return faulty(ctx, s.n, OpSaveStep, s.store.SaveStep, req)
}

func (s *faultStore) Get(ctx context.Context, req driver.GetRequest) (driver.GetResult, error) {
	return faulty(ctx, s.n, OpGet, s.store.Get, req)
}

func (s *faultStore) Purge(ctx context.Context, req driver.PurgeRequest) (driver.PurgeResult, error) {
	return faulty(ctx, s.n, OpPurge, s.store.Purge, req)
}
