package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// errNet is what a store says whose server did not answer.
var errNet = errors.New("connection reset by peer")

// behaviour is what a store makes of one call. call does what was asked.
type behaviour func(ctx context.Context, call func() error) error

// refuse fails the call; nothing was done.
func refuse(err error) behaviour {
	return func(context.Context, func() error) error { return err }
}

// lose does what was asked, and loses the answer.
func lose(err error) behaviour {
	return func(_ context.Context, call func() error) error {
		_ = call()
		return err
	}
}

// hang answers nothing until the context ends, and does nothing.
func hang(ctx context.Context, _ func() error) error {
	<-ctx.Done()
	return cutShort(ctx)
}

// cutShort is what the SQL stores say of a call whose context has ended.
func cutShort(ctx context.Context) error {
	return fmt.Errorf("%w: a call: %w", everonce.ErrStore, ctx.Err())
}

// deaf answers nothing for a time, whatever the context says, and then does what was asked.
func deaf(d time.Duration) behaviour {
	return func(_ context.Context, call func() error) error {
		time.Sleep(d) // in a synctest bubble
		return call()
	}
}

// faults is a list of what shall happen to the calls of a store, and a protocol of them.
type faults struct {
	mu    sync.Mutex
	rules []rule
	calls []storeCall
}

type rule struct {
	method string
	nth    int // 0: every call
	do     behaviour
}

type storeCall struct {
	method string
	at     time.Time
	req    any
}

// on makes the nth call of a method behave; n of 0 is every call. The latest rule that fits counts.
func (f *faults) on(method string, nth int, do behaviour) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, rule{method, nth, do})
}

// heal forgets the rules.
func (f *faults) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

func (f *faults) run(ctx context.Context, method string, req any, call func() error) error {
	f.mu.Lock()
	f.calls = append(f.calls, storeCall{method, time.Now(), req})
	n := 0
	for _, c := range f.calls {
		if c.method == method {
			n++
		}
	}
	var do behaviour
	for _, r := range f.rules {
		if r.method == method && (r.nth == 0 || r.nth == n) {
			do = r.do
		}
	}
	f.mu.Unlock()
	if do == nil {
		return call()
	}
	return do(ctx, call)
}

// requests returns what a method was asked, in order.
func requests[Req any](f *faults, method string) []Req {
	f.mu.Lock()
	defer f.mu.Unlock()
	var reqs []Req
	for _, c := range f.calls {
		if req, ok := c.req.(Req); ok && c.method == method {
			reqs = append(reqs, req)
		}
	}
	return reqs
}

// times returns when a method was called.
func (f *faults) times(method string) []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	var at []time.Time
	for _, c := range f.calls {
		if c.method == method {
			at = append(at, c.at)
		}
	}
	return at
}

func (f *faults) count(method string) int { return len(f.times(method)) }

// faultStore is a store whose calls a test disturbs and counts. It hides the powers of the store under
// it, so that the engine takes every call the long way: with timeouts.
type faultStore struct {
	faults
	under everonce.Store
}

func newFaultStore() *faultStore { return &faultStore{under: memstore.New(nil)} }

// record returns what the store holds of a key, past all faults.
func (s *faultStore) record(t *testing.T, key everonce.Key) driver.Record {
	t.Helper()
	return recordIn(t, s.under, key)
}

func recordIn(t *testing.T, s everonce.Store, key everonce.Key) driver.Record {
	t.Helper()
	got, err := s.Get(context.Background(), driver.GetRequest{ID: key.RecordID()})
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
	if !got.Found {
		return driver.Record{}
	}
	rec := got.Record
	rec.State = rec.StateAt(got.Now)
	return rec
}

func (s *faultStore) Claim(ctx context.Context, req driver.ClaimRequest) (res driver.ClaimResult, err error) {
	if err := s.run(ctx, "Claim", req, func() (err error) { res, err = s.under.Claim(ctx, req); return err }); err != nil {
		return driver.ClaimResult{}, err
	}
	return res, nil
}

func (s *faultStore) Complete(ctx context.Context, req driver.CompleteRequest) (res driver.CompleteResult, err error) {
	return res, s.run(ctx, "Complete", req, func() (err error) { res, err = s.under.Complete(ctx, req); return err })
}

func (s *faultStore) Release(ctx context.Context, req driver.ReleaseRequest) (res driver.ReleaseResult, err error) {
	if err := s.run(ctx, "Release", req, func() (err error) { res, err = s.under.Release(ctx, req); return err }); err != nil {
		return driver.ReleaseResult{}, err
	}
	return res, nil
}

func (s *faultStore) Renew(ctx context.Context, req driver.RenewRequest) (res driver.RenewResult, err error) {
	return res, s.run(ctx, "Renew", req, func() (err error) { res, err = s.under.Renew(ctx, req); return err })
}

func (s *faultStore) SaveStep(ctx context.Context, req driver.SaveStepRequest) (res driver.SaveStepResult, err error) {
	return res, s.run(ctx, "SaveStep", req, func() (err error) { res, err = s.under.SaveStep(ctx, req); return err })
}

func (s *faultStore) Get(ctx context.Context, req driver.GetRequest) (res driver.GetResult, err error) {
	if err := s.run(ctx, "Get", req, func() (err error) { res, err = s.under.Get(ctx, req); return err }); err != nil {
		return driver.GetResult{}, err
	}
	return res, nil
}

func (s *faultStore) Purge(ctx context.Context, req driver.PurgeRequest) (res driver.PurgeResult, err error) {
	if err := s.run(ctx, "Purge", req, func() (err error) { res, err = s.under.Purge(ctx, req); return err }); err != nil {
		return driver.PurgeResult{}, err
	}
	return res, nil
}
