package drivertest

import (
	"context"
	"sync"
	"testing"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// The checks of a store that sends word pass on one that does, and find one that sends it at the wrong time. Of the
// stores only Redis's is one, and needs a server.
func TestWordIsChecked(t *testing.T) {
	factory := func(testing.TB) Harness { return Harness{Store: &wordStore{Store: memstore.New(nil)}} }
	runPart(t, "ChangeWaiter/", factory, Capabilities{ChangeWaiter: true, MaxResult: 1 << 10})
}

// wordStore sends word of each end.
type wordStore struct {
	driver.Store
	mu      sync.Mutex
	waiters map[driver.RecordID][]chan struct{}
}

func (s *wordStore) Watch(ctx context.Context, req driver.WatchRequest) (driver.WatchResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	got, err := s.Get(ctx, driver.GetRequest{ID: req.ID})
	if err != nil {
		return driver.WatchResult{}, err
	}
	ended := make(chan struct{})
	if !got.Found || got.Record.State != driver.StateClaimed {
		close(ended)
		return driver.WatchResult{Ended: ended, Stop: func() {}}, nil
	}
	if s.waiters == nil {
		s.waiters = make(map[driver.RecordID][]chan struct{})
	}
	s.waiters[req.ID] = append(s.waiters[req.ID], ended)
	return driver.WatchResult{Ended: ended, Stop: func() {}}, nil
}

func (s *wordStore) arrived(id driver.RecordID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.waiters[id] {
		close(w)
	}
	delete(s.waiters, id)
}

func (s *wordStore) Complete(ctx context.Context, req driver.CompleteRequest) (driver.CompleteResult, error) {
	defer s.arrived(req.ID)
	return s.Store.Complete(ctx, req)
}

func (s *wordStore) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseResult, error) {
	defer s.arrived(req.ID)
	return s.Store.Release(ctx, req)
}
