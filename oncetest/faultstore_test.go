package oncetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

var testKey = everonce.Key{Scope: "test", ID: "k"}

func claimOf(key everonce.Key) driver.ClaimRequest {
	return driver.ClaimRequest{
		ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Minute,
		Lifetime: everonce.ForWeb(),
	}
}

func TestFaultStoreFails(t *testing.T) {
	for _, tc := range []struct {
		fault  Fault
		done   bool
		fails  bool
		hangs  bool
		proves bool
	}{
		{fault: Pass, done: true},
		{fault: FailBefore, fails: true},
		{fault: FailAfter, fails: true, done: true},
		{fault: HangBefore, fails: true, hangs: true},
		{fault: HangAfter, fails: true, hangs: true, done: true},
		{fault: Unreached, fails: true},
	} {
		t.Run(tc.fault.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := memstore.New(nil)
				s := FaultStore(inner, At(OpClaim, 2, tc.fault))
				if _, err := s.Claim(t.Context(), claimOf(everonce.Key{Scope: "test", ID: "first"})); err != nil {
					t.Fatalf("the first claim: %v", err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := s.Claim(ctx, claimOf(testKey))
				if (err != nil) != tc.fails || tc.fails != errors.Is(err, ErrInjected) {
					t.Errorf("the error is %v", err)
				}
				if hung := ctx.Err() != nil; hung != tc.hangs || hung != errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("it hung: %v; the error is %v", hung, err)
				}
				got, err := inner.Get(t.Context(), driver.GetRequest{ID: testKey.RecordID()})
				if err != nil || got.Found != tc.done {
					t.Errorf("the record exists: %v (%v), want %v", got.Found, err, tc.done)
				}
			})
		})
	}
}

// TestFaultsLookAlike: an error must not tell its reader whether the call was done.
func TestFaultsLookAlike(t *testing.T) {
	c := Call{Op: OpComplete, N: 3}
	before, after := &InjectedError{Call: c, Fault: FailBefore}, &InjectedError{Call: c, Fault: FailAfter}
	if before.Error() != after.Error() {
		t.Errorf("%q and %q tell them apart", before, after)
	}
}

// called is a store with every optional power, which keeps nothing but the names of its calls.
type called struct{ calls []string }

func (c *called) saw(name string) error { c.calls = append(c.calls, name); return nil }

func (c *called) Claim(context.Context, driver.ClaimRequest) (r driver.ClaimResult, err error) {
	return r, c.saw("claim")
}

func (c *called) Complete(context.Context, driver.CompleteRequest) (r driver.CompleteResult, err error) {
	return r, c.saw("complete")
}

func (c *called) Release(context.Context, driver.ReleaseRequest) (r driver.ReleaseResult, err error) {
	return r, c.saw("release")
}

func (c *called) Renew(context.Context, driver.RenewRequest) (r driver.RenewResult, err error) {
	return r, c.saw("renew")
}

func (c *called) SaveStep(context.Context, driver.SaveStepRequest) (r driver.SaveStepResult, err error) {
	return r, c.saw("save step")
}

func (c *called) Get(context.Context, driver.GetRequest) (r driver.GetResult, err error) {
	return r, c.saw("get")
}

func (c *called) Purge(context.Context, driver.PurgeRequest) (r driver.PurgeResult, err error) {
	return r, c.saw("purge")
}

func (c *called) List(context.Context, driver.ListRequest) (r driver.ListResult, err error) {
	return r, c.saw("list")
}

func (c *called) DeleteScope(context.Context, driver.DeleteScopeRequest) (r driver.DeleteScopeResult, err error) {
	return r, c.saw("delete scope")
}

func (c *called) Health(context.Context, driver.HealthRequest) (r driver.HealthResult, err error) {
	return r, c.saw("health")
}

func (c *called) ReadIdentity(context.Context, driver.ReadIdentityRequest) (r driver.ReadIdentityResult, err error) {
	return r, c.saw("read identity")
}

func (c *called) Recall(context.Context, driver.RecallRequest) (r driver.RecallResult, err error) {
	return r, c.saw("recall")
}

func (c *called) Watch(context.Context, driver.WatchRequest) (r driver.WatchResult, err error) {
	return r, c.saw("watch")
}

func (c *called) Prompt() driver.Store { return c }

func (c *called) CheckWrite(context.Context, driver.CheckWriteRequest) (r driver.CheckWriteResult, err error) {
	return r, c.saw("check write")
}

func (c *called) KeepIdentity(context.Context, driver.KeepIdentityRequest) (r driver.KeepIdentityResult, err error) {
	return r, c.saw("keep identity")
}

// TestFaultStoreForwards calls every method, and lets every one of them fail by its own Op.
func TestFaultStoreForwards(t *testing.T) {
	ctx := t.Context()
	for op, call := range map[Op]func(everonce.Store) error{
		OpClaim:    func(s everonce.Store) error { _, err := s.Claim(ctx, driver.ClaimRequest{}); return err },
		OpComplete: func(s everonce.Store) error { _, err := s.Complete(ctx, driver.CompleteRequest{}); return err },
		OpRelease:  func(s everonce.Store) error { _, err := s.Release(ctx, driver.ReleaseRequest{}); return err },
		OpRenew:    func(s everonce.Store) error { _, err := s.Renew(ctx, driver.RenewRequest{}); return err },
		OpSaveStep: func(s everonce.Store) error { _, err := s.SaveStep(ctx, driver.SaveStepRequest{}); return err },
		OpGet:      func(s everonce.Store) error { _, err := s.Get(ctx, driver.GetRequest{}); return err },
		OpPurge:    func(s everonce.Store) error { _, err := s.Purge(ctx, driver.PurgeRequest{}); return err },
		OpList: func(s everonce.Store) error {
			_, err := s.(driver.Lister).List(ctx, driver.ListRequest{})
			return err
		},
		OpDeleteScope: func(s everonce.Store) error {
			_, err := s.(driver.ScopeDeleter).DeleteScope(ctx, driver.DeleteScopeRequest{})
			return err
		},
		OpHealth: func(s everonce.Store) error {
			return errOf(s.(driver.HealthChecker).Health(ctx, driver.HealthRequest{}))
		},
		OpCheckWrite: func(s everonce.Store) error {
			return errOf(s.(driver.WriteChecker).CheckWrite(ctx, driver.CheckWriteRequest{}))
		},
		OpIdentity: func(s everonce.Store) error {
			return errOf(s.(driver.IdentityKeeper).KeepIdentity(ctx, driver.KeepIdentityRequest{}))
		},
	} {
		inner := &called{}
		if err := call(FaultStore(inner, nil)); err != nil || len(inner.calls) != 1 || inner.calls[0] != op.String() {
			t.Errorf("%v: %v, and the store saw %v", op, err, inner.calls)
		}
		inner = &called{}
		if err := call(FaultStore(inner, At(op, 1, FailBefore))); !errors.Is(err, ErrInjected) || len(inner.calls) != 0 {
			t.Errorf("%v, failing: %v, and the store saw %v", op, err, inner.calls)
		}
		inner = &called{}
		if err := call(FaultTxStore[int](calledTx{called: inner}, At(op, 1, FailAfter))); !errors.Is(err, ErrInjected) || len(inner.calls) != 1 {
			t.Errorf("%v, failing after, with transactions: %v, and the store saw %v", op, err, inner.calls)
		}
	}
}

type calledTx struct {
	*called
	transactions
}

// transactions are what makes a store a TxStore: none can be begun.
type transactions struct{}

func (transactions) Begin(context.Context, driver.BeginRequest) (driver.TxHandle[int], driver.ClaimResult, error) {
	return nil, driver.ClaimResult{}, nil
}

func (transactions) Join(context.Context, int) (driver.TxHandle[int], error) {
	return nil, errors.New("not joined")
}
func (transactions) ClassifyTx(error) driver.TxErrorClass { return driver.TxErrorRetry }

// TestPowersAreThoseOfTheStore: a wrapped store has the powers that it has, with its transactions and without, and
// its calls of others are refused.
func TestPowersAreThoseOfTheStore(t *testing.T) {
	type has struct{ lister, deleter, health, writes, keeper bool }
	powers := func(s everonce.Store) (h has) {
		_, h.lister = driver.PowerOf[driver.Lister](s)
		_, h.deleter = driver.PowerOf[driver.ScopeDeleter](s)
		_, h.health = driver.PowerOf[driver.HealthChecker](s)
		_, h.writes = driver.PowerOf[driver.WriteChecker](s)
		_, h.keeper = driver.PowerOf[driver.IdentityKeeper](s)
		return h
	}
	type plain struct {
		everonce.Store
		transactions
	}
	type listing struct {
		plain
		driver.Lister
	}
	type checked struct {
		plain
		driver.HealthChecker
		driver.IdentityKeeper
	}
	all := calledTx{called: &called{}}
	none := plain{Store: all}
	for name, tc := range map[string]struct {
		store driver.TxStore[int]
		want  has
	}{
		"all":    {all, has{true, true, true, true, true}},
		"none":   {none, has{}},
		"one":    {listing{none, all}, has{lister: true}},
		"two":    {checked{none, all, all}, has{health: true, keeper: true}},
		"nested": {FaultTxStore(listing{none, all}, nil), has{lister: true}},
	} {
		for how, wrapped := range map[string]everonce.Store{"alone": FaultStore(tc.store, nil), "with its transactions": FaultTxStore(tc.store, nil)} {
			if got := powers(wrapped); got != tc.want {
				t.Errorf("%s: wrapped %s, it has the powers %+v, want %+v", name, how, got, tc.want)
			}
			if tc.want.lister {
				continue
			}
			_, listed := wrapped.(driver.Lister).List(t.Context(), driver.ListRequest{})
			_, deleted := wrapped.(driver.ScopeDeleter).DeleteScope(t.Context(), driver.DeleteScopeRequest{})
			if !errors.Is(listed, errors.ErrUnsupported) || !errors.Is(deleted, errors.ErrUnsupported) {
				t.Errorf("%s, wrapped %s: calls of missing powers: %v, %v", name, how, listed, deleted)
			}
		}
	}
}

func TestNoRecallPastThePlan(t *testing.T) {
	if _, ok := driver.PowerOf[driver.Recaller](FaultStore(memstore.New(nil), nil)); ok {
		t.Error("a wrapped store recalls: duplicates would be answered past the plan")
	}
}

func TestPlans(t *testing.T) {
	fail := FirstOf(At(OpClaim, 1, FailAfter), AtCall(1, FailBefore), AtCall(3, HangAfter))
	for _, tc := range []struct {
		c    Call
		want Fault
	}{
		{Call{Op: OpClaim, N: 1, Seq: 1}, FailAfter},
		{Call{Op: OpGet, N: 1, Seq: 1}, FailBefore},
		{Call{Op: OpClaim, N: 2, Seq: 2}, Pass},
		{Call{Op: OpClaim, N: 2, Seq: 3}, HangAfter},
	} {
		if got := fail(tc.c); got != tc.want {
			t.Errorf("%+v: %v, want %v", tc.c, got, tc.want)
		}
	}
}

func TestSeededPlan(t *testing.T) {
	const n = 10_000
	count := map[Fault]int{}
	plan, same, other := Seeded(1, 0.3), Seeded(1, 0.3), Seeded(2, 0.3)
	differs := false
	for i := range n {
		c := Call{Op: OpClaim, N: i + 1}
		f := plan(c)
		count[f]++
		if same(c) != f {
			t.Fatalf("the same seed decides call %d twice, and differently", i)
		}
		differs = differs || other(c) != f
	}
	if !differs {
		t.Error("another seed decides the same")
	}
	for f, want := range map[Fault]int{Pass: 7000, FailBefore: 1500, FailAfter: 1500} {
		if d := count[f] - want; d < -300 || d > 300 {
			t.Errorf("%v: %d of %d, want about %d", f, count[f], n, want)
		}
	}
	if f := Seeded(1, 1, Unreached)(Call{Op: OpEffect, N: 1}); f != Unreached {
		t.Errorf("a plan of one fault, at any chance, has %v", f)
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for op := OpClaim; op < opEnd; op++ {
		seen[op.String()] = true
	}
	if len(seen) != int(opEnd)-1 || seen[""] {
		t.Errorf("the calls have the names %v", seen)
	}
	if fmt.Sprint(Op(0), Op(200), Fault(200), Mode(0)) != "op(0) op(200) fault(200) none" {
		t.Error(Op(0), Op(200), Fault(200), Mode(0))
	}
}
