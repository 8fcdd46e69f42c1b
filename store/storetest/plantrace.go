package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/everonce/everonce"
)

// raceBugs are mistakes that show only where two calls meet. Who has looked waits for the other, so that the race is
// always run.
func raceBugs() []bug {
	shared := func(plant func(s everonce.Store, m *meeting) everonce.Store) func(h Harness) Harness {
		return func(h Harness) Harness {
			if h.Peer == nil {
				h.Peer = h.Store
			}
			m := new(meeting)
			h.Store, h.Peer = plant(h.Store, m), plant(h.Peer, m)
			return h
		}
	}
	lookThenWrites := func(h Harness) Harness {
		look := new(meeting)
		return shared(func(s everonce.Store, takeover *meeting) everonce.Store {
			return &lookThenWrite{planted{s}, look, takeover}
		})(h)
	}
	return []bug{
		{
			name: "a lock of one process alone", caught: "Rule01/OneWinnerOfMany",
			plant: shared(func(s everonce.Store, m *meeting) everonce.Store {
				return &lockOfItsOwn{planted: planted{s}, others: m}
			}),
		},
		{
			name: "a token that is looked at before the completion", caught: "Rule03/ALateCompletionMeetsATakeover",
			plant: lookThenWrites,
		},
		{
			name: "a token that is looked at before the step", caught: "Rule03/ALateStepMeetsATakeover",
			plant: lookThenWrites,
		},
		{
			name: "a renewal that writes back what it had read", caught: "Rule03/NoRenewalUndoesACompletion",
			plant: shared(func(s everonce.Store, m *meeting) everonce.Store { return &writeBack{planted{s}, m} }),
		},
	}
}

// meeting is where calls of one key wait for each other, those of both handles.
type meeting struct {
	mu    sync.Mutex
	come  map[everonce.RecordID]chan struct{}
	stale sync.Map // records that were written back, by their ID
}

// place is closed when whom the others wait for has come.
func (m *meeting) place(id everonce.RecordID) chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.come == nil {
		m.come = make(map[everonce.RecordID]chan struct{})
	}
	if m.come[id] == nil {
		m.come[id] = make(chan struct{})
	}
	return m.come[id]
}

// wait waits for tell, or until nobody is likely to come.
func (m *meeting) wait(id everonce.RecordID) {
	select {
	case <-m.place(id):
	case <-time.After(200 * time.Millisecond):
	}
}

func (m *meeting) tell(id everonce.RecordID) {
	place := m.place(id)
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-place:
	default:
		close(place)
	}
}

// lockOfItsOwn looks and then writes, under a lock that the other handle knows nothing of.
type lockOfItsOwn struct {
	planted
	mu     sync.Mutex
	others *meeting
}

func (s *lockOfItsOwn) Claim(ctx context.Context, req everonce.ClaimRequest) (everonce.ClaimResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if got, err := s.Get(ctx, everonce.GetRequest{ID: req.ID}); err != nil || got.Found {
		return s.Store.Claim(ctx, req)
	}
	s.others.wait(req.ID)
	res, err := s.Store.Claim(ctx, req)
	s.others.tell(req.ID)
	if err == nil && res.Decision == everonce.DecideInProgress {
		req.Take = everonce.TakeForced
		return s.Store.Claim(ctx, req)
	}
	return res, err
}

// lookThenWrite looks whether the token still holds, and writes to the record whosever it is by then.
type lookThenWrite struct {
	planted
	look, takeover *meeting
}

func (s *lookThenWrite) Claim(ctx context.Context, req everonce.ClaimRequest) (everonce.ClaimResult, error) {
	if req.Take == everonce.TakeAbandoned {
		s.look.wait(req.ID)
	}
	res, err := s.Store.Claim(ctx, req)
	if err == nil && res.Record.Previous.State == everonce.StateAbandoned {
		s.takeover.tell(req.ID)
	}
	return res, err
}

// held looks, and returns the token and nonce that stand when it is written.
func (s *lookThenWrite) held(ctx context.Context, id everonce.RecordID, token everonce.Token, nonce everonce.Nonce) (everonce.Token, everonce.Nonce) {
	got, err := s.Get(ctx, everonce.GetRequest{ID: id})
	if err != nil || got.Record.Token != token || got.Record.Nonce != nonce || got.Record.StateAt(got.Now) != everonce.StateAbandoned {
		return token, nonce
	}
	s.look.tell(id)
	s.takeover.wait(id)
	if got, err = s.Get(ctx, everonce.GetRequest{ID: id}); err != nil {
		return token, nonce
	}
	return got.Record.Token, got.Record.Nonce
}

func (s *lookThenWrite) Complete(ctx context.Context, req everonce.CompleteRequest) (everonce.CompleteResult, error) {
	req.Token, req.Nonce = s.held(ctx, req.ID, req.Token, req.Nonce)
	return s.Store.Complete(ctx, req)
}

func (s *lookThenWrite) SaveStep(ctx context.Context, req everonce.SaveStepRequest) (everonce.SaveStepResult, error) {
	req.Token, req.Nonce = s.held(ctx, req.ID, req.Token, req.Nonce)
	return s.Store.SaveStep(ctx, req)
}

// writeBack renews by reading a record, and writing all of it.
type writeBack struct {
	planted
	end *meeting
}

func (s *writeBack) Complete(ctx context.Context, req everonce.CompleteRequest) (everonce.CompleteResult, error) {
	defer s.end.tell(req.ID)
	return s.Store.Complete(ctx, req)
}

func (s *writeBack) Renew(ctx context.Context, req everonce.RenewRequest) (everonce.RenewResult, error) {
	got, err := s.Get(ctx, everonce.GetRequest{ID: req.ID})
	if err != nil || got.Record.State != everonce.StateClaimed || got.Record.Token != req.Token || got.Record.Nonce != req.Nonce {
		return s.Store.Renew(ctx, req)
	}
	s.end.wait(req.ID)
	res, err := s.Store.Renew(ctx, req)
	if errors.Is(err, everonce.ErrLeaseLost) {
		s.end.stale.Store(req.ID, got.Record)
		return res, nil
	}
	return res, err
}

func (s *writeBack) Get(ctx context.Context, req everonce.GetRequest) (everonce.GetResult, error) {
	got, err := s.Store.Get(ctx, req)
	if rec, ok := s.end.stale.Load(req.ID); ok && err == nil {
		got.Record = rec.(everonce.Record)
	}
	return got, err
}
