package enginetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// wordStore is a store that sends word of the ends of attempts, as one of another process does.
type wordStore struct {
	*faultStore
	mu     sync.Mutex
	asked  map[everonce.RecordID][]chan struct{}
	open   int // watches that were not stopped
	silent bool
	err    error
}

func newWordStore() *wordStore {
	return &wordStore{faultStore: newFaultStore(), asked: make(map[everonce.RecordID][]chan struct{})}
}

func (s *wordStore) Watch(ctx context.Context, req driver.WatchRequest) (driver.WatchResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return driver.WatchResult{}, s.err
	}
	if _, bounded := ctx.Deadline(); !bounded {
		return driver.WatchResult{}, errors.New("a watch without a bound")
	}
	ended := make(chan struct{})
	got, err := s.Get(ctx, driver.GetRequest{ID: req.ID})
	if err != nil {
		return driver.WatchResult{}, err
	}
	if got.Record.State == driver.StateClaimed {
		s.asked[req.ID] = append(s.asked[req.ID], ended)
	} else {
		close(ended)
	}
	s.open++
	return driver.WatchResult{Ended: ended, Stop: sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
	})}, nil
}

func (s *wordStore) tell(id everonce.RecordID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent {
		return
	}
	for _, ended := range s.asked[id] {
		close(ended)
	}
	delete(s.asked, id)
}

func (s *wordStore) Complete(ctx context.Context, req driver.CompleteRequest) (driver.CompleteResult, error) {
	res, err := s.faultStore.Complete(ctx, req)
	s.tell(req.ID)
	return res, err
}

func (s *wordStore) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseResult, error) {
	res, err := s.faultStore.Release(ctx, req)
	s.tell(req.ID)
	return res, err
}

// Word from the store wakes a waiter of another process at once, and until then it hardly asks.
func TestWaitIsWokenByWordFromTheStore(t *testing.T) {
	for name, c := range map[string]struct {
		err        error
		there, out everonce.Outcome
	}{
		"completed": {nil, everonce.Executed, everonce.Replayed},
		"released":  {everonce.NotDone(errWork), everonce.Failed, everonce.Executed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newWordStore()
				here, there := newReceiver(t, s, everonce.Refuse, nil), newReceiver(t, s, everonce.Refuse, nil)
				release := make(chan struct{})
				var wg sync.WaitGroup
				wg.Go(func() {
					res, _ := everonce.Do(context.Background(), there, keyOf("x"), func(context.Context, *everonce.Attempt) (string, error) {
						<-release
						return "v", c.err
					})
					checkEqual(t, "the first attempt's outcome", res.Outcome, c.there)
				})
				synctest.Wait()
				time.AfterFunc(20*time.Second+time.Microsecond, func() { close(release) })
				start := time.Now()
				res, err := do(t, here, keyOf("x"), returns("v", nil), c.out, nil, everonce.WithWait(time.Hour))
				checkErr(t, err, nil)
				checkEqual(t, "value", res.Value, "v")
				checkEqual(t, "it waited for", time.Since(start), 20*time.Second+time.Microsecond)
				wg.Wait()
				if n := s.count("Claim"); n > 40 {
					t.Errorf("it asked %d times in 20 s", n)
				}
				synctest.Wait()
				checkEqual(t, "watches left", s.open, 0)
			})
		})
	}
}

// Word that is lost, or that cannot be had, delays a waiter and does not hold it up.
func TestWaitDoesNotDependOnWord(t *testing.T) {
	for name, set := range map[string]func(*wordStore){
		"lost":      func(s *wordStore) { s.silent = true },
		"cannot be": func(s *wordStore) { s.err = errNet },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newWordStore()
				set(s)
				here, there := newReceiver(t, s, everonce.Refuse, nil), newReceiver(t, s, everonce.Refuse, nil)
				release, wg := running(t, there)
				time.AfterFunc(20*time.Second, func() { close(release) })
				start := time.Now()
				do(t, here, keyOf("x"), never(t), everonce.Replayed, nil, everonce.WithWait(time.Hour))
				if d := time.Since(start) - 20*time.Second; d < 0 || d > 2*time.Second {
					t.Errorf("it was found %v after the completion", d)
				}
				wg.Wait()
				synctest.Wait()
				checkEqual(t, "watches left", s.open, 0)
			})
		})
	}
}
