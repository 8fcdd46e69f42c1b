package drivertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/everonce/everonce/driver"
)

// raceBugs are mistakes that show only when two calls collide. The one that has looked waits for the other, so that
// the race always happens.
func raceBugs() []bug {
	shared := func(plant func(s driver.Store, m *rendezvous) driver.Store) func(h Harness) Harness {
		return func(h Harness) Harness {
			m := new(rendezvous)
			return both(func(s driver.Store) driver.Store { return plant(s, m) })(h)
		}
	}
	lookThenWrites := func(h Harness) Harness {
		look := new(rendezvous)
		return shared(func(s driver.Store, takeover *rendezvous) driver.Store {
			return &lookThenWrite{planted{s}, look, takeover}
		})(h)
	}
	writesBack := func(h Harness) Harness {
		look := new(rendezvous)
		return shared(func(s driver.Store, end *rendezvous) driver.Store { return &writeBack{planted{s}, look, end} })(h)
	}
	return []bug{
		{
			name: "check-then-act", caught: "Rule01/OneWinnerOfMany",
			plant: shared(func(s driver.Store, m *rendezvous) driver.Store { return &checkThenAct{planted{s}, m} }),
		},
		{
			name: "no fence, in a history", caught: "History/OfDoIsLinearizable", tries: 5, // an owner must be overtaken, depending on the seed
			plant: shared(func(s driver.Store, m *rendezvous) driver.Store { return &lateCompletion{noFence{planted{s}}, m} }),
		},
		{
			name: "a lock of one process alone", caught: "Rule01/OneWinnerOfMany",
			plant: shared(func(s driver.Store, m *rendezvous) driver.Store {
				return &lockPerHandle{planted: planted{s}, others: m}
			}),
		},
		{
			name: "a token that is looked at before the completion", caught: "Rule03/ALateCompletionRacesATakeover",
			plant: lookThenWrites,
		},
		{
			name: "a token that is looked at before the step", caught: "Rule03/ALateStepRacesATakeover",
			plant: lookThenWrites,
		},
		{
			name: "a renewal that writes back what it had read", caught: "Rule03/NoRenewalUndoesACompletion",
			plant: writesBack,
		},
	}
}

// rendezvous is where calls of one key wait for each other, across both handles.
type rendezvous struct {
	mu    sync.Mutex
	come  map[driver.RecordID]chan struct{}
	first sync.Map // the first call, by the record's ID
	stale sync.Map // records that were written back, by their ID
}

// place returns the channel that is closed when the awaited call has come.
func (m *rendezvous) place(id driver.RecordID) chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.come == nil {
		m.come = make(map[driver.RecordID]chan struct{})
	}
	if m.come[id] == nil {
		m.come[id] = make(chan struct{})
	}
	return m.come[id]
}

// wait waits for arrived. The awaited call comes in every run of the check; only in runs that do not make the
// mistake does the wait time out.
func (m *rendezvous) wait(id driver.RecordID) {
	select {
	case <-m.place(id):
	case <-time.After(patience):
	}
}

// both waits until two calls have come: the first waits, and the second releases it.
func (m *rendezvous) both(id driver.RecordID) {
	if _, waits := m.first.LoadOrStore(id, true); waits {
		m.arrived(id)
		return
	}
	m.wait(id)
}

func (m *rendezvous) arrived(id driver.RecordID) {
	place := m.place(id)
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-place:
	default:
		close(place)
	}
}

// checkThenAct looks whether there is a record, and if not, overwrites whatever came in between.
type checkThenAct struct {
	planted
	others *rendezvous
}

func (s *checkThenAct) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	if got, err := s.Get(ctx, driver.GetRequest{ID: req.ID}); err != nil || got.Found {
		return s.Store.Claim(ctx, req)
	}
	s.others.both(req.ID)
	return s.claimOver(ctx, req)
}

// claimOver claims even if another attempt has the record.
func (s planted) claimOver(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	res, err := s.Store.Claim(ctx, req)
	if err == nil && res.Decision == driver.DecideInProgress {
		req.Take = driver.TakeForced
		return s.Store.Claim(ctx, req)
	}
	return res, err
}

// lateCompletion keeps the first completion of each key back, until another attempt completes the key too.
type lateCompletion struct {
	noFence
	others *rendezvous
}

func (s *lateCompletion) Complete(ctx context.Context, req driver.CompleteRequest) (driver.CompleteResult, error) {
	anyKey := driver.RecordID{}
	first, known := s.others.first.LoadOrStore(req.ID, req.Nonce)
	if !known {
		s.others.wait(anyKey)
	} else if first != req.Nonce {
		defer s.others.arrived(anyKey)
	}
	return s.noFence.Complete(ctx, req)
}

// lockPerHandle looks and then writes, under a lock that the other handle does not use.
type lockPerHandle struct {
	planted
	mu     sync.Mutex
	others *rendezvous
}

func (s *lockPerHandle) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if got, err := s.Get(ctx, driver.GetRequest{ID: req.ID}); err != nil || got.Found {
		return s.Store.Claim(ctx, req)
	}
	s.others.both(req.ID)
	return s.claimOver(ctx, req)
}

// lookThenWrite looks whether the token still holds, and then writes to the record, even if another attempt has it
// by then.
type lookThenWrite struct {
	planted
	look, takeover *rendezvous
}

func (s *lookThenWrite) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	if req.Take == driver.TakeAbandoned {
		s.look.wait(req.ID)
	}
	res, err := s.Store.Claim(ctx, req)
	if err == nil && res.Record.Previous.State == driver.StateAbandoned {
		s.takeover.arrived(req.ID)
	}
	return res, err
}

// held looks, and returns the token and nonce that stand when it is written.
func (s *lookThenWrite) held(ctx context.Context, id driver.RecordID, token driver.Token, nonce driver.Nonce) (driver.Token, driver.Nonce) {
	got, err := s.Get(ctx, driver.GetRequest{ID: id})
	if err != nil || got.Record.Token != token || got.Record.Nonce != nonce || got.Record.StateAt(got.Now) != driver.StateAbandoned {
		return token, nonce
	}
	s.look.arrived(id)
	s.takeover.wait(id)
	if got, err = s.Get(ctx, driver.GetRequest{ID: id}); err != nil {
		return token, nonce
	}
	return got.Record.Token, got.Record.Nonce
}

func (s *lookThenWrite) Complete(ctx context.Context, req driver.CompleteRequest) (driver.CompleteResult, error) {
	req.Token, req.Nonce = s.held(ctx, req.ID, req.Token, req.Nonce)
	return s.Store.Complete(ctx, req)
}

func (s *lookThenWrite) SaveStep(ctx context.Context, req driver.SaveStepRequest) (driver.SaveStepResult, error) {
	req.Token, req.Nonce = s.held(ctx, req.ID, req.Token, req.Nonce)
	return s.Store.SaveStep(ctx, req)
}

// writeBack renews by reading a record, and writing all of it.
type writeBack struct {
	planted
	look, end *rendezvous
}

func (s *writeBack) Complete(ctx context.Context, req driver.CompleteRequest) (driver.CompleteResult, error) {
	s.look.wait(req.ID)
	defer s.end.arrived(req.ID)
	return s.Store.Complete(ctx, req)
}

func (s *writeBack) Renew(ctx context.Context, req driver.RenewRequest) (driver.RenewResult, error) {
	got, err := s.Get(ctx, driver.GetRequest{ID: req.ID})
	if err != nil || got.Record.State != driver.StateClaimed || got.Record.Token != req.Token || got.Record.Nonce != req.Nonce {
		return s.Store.Renew(ctx, req)
	}
	s.look.arrived(req.ID)
	s.end.wait(req.ID)
	res, err := s.Store.Renew(ctx, req)
	if errors.Is(err, driver.ErrLeaseLost) {
		s.end.stale.Store(req.ID, got.Record)
		return res, nil
	}
	return res, err
}

func (s *writeBack) Get(ctx context.Context, req driver.GetRequest) (driver.GetResult, error) {
	got, err := s.Store.Get(ctx, req)
	if rec, ok := s.end.stale.Load(req.ID); ok && err == nil {
		got.Record = rec.(driver.Record)
	}
	return got, err
}
