package enginetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// trouble is what is wrong with a store from one time of a run to another.
type trouble struct {
	From, To time.Duration
	Kind     troubleKind
	By       time.Duration // of what is slow, or comes late
}

type troubleKind uint8

const (
	refuses     troubleKind = iota // nothing is done
	losesAnswer                    // it is done
	isSlow                         // it is done after a time, and answered then
	answersLate                    // it is done at once, and answered after a time
	comesLate                      // the call fails, and is done long after
	hangs                          // nothing is answered, nor done
	troubleKinds
)

// wordKind is how a store of the model sends word.
type wordKind uint8

const (
	noWord wordKind = iota
	goodWord
	lostWord   // none comes
	falseWord  // it comes at once, and again
	deniedWord // it cannot be had
	hungWords  // asking for it does not end
	slowStop   // ending it takes its time
	wordKinds
)

// modelStore is the store of a run: a mapStore with troubles, and with word. It notes who asked what, and when.
type modelStore struct {
	*mapStore
	m *crowdModel
}

// troubled makes one call of a store.
func troubled[Req, Res any](ctx context.Context, s *modelStore, req Req, call func(context.Context, Req) (Res, error)) (res Res, err error) {
	var none Res
	for _, t := range s.m.plan.Troubles {
		if at := time.Since(s.m.start); at < t.From || at >= t.To {
			continue
		}
		switch t.Kind {
		case refuses:
			return none, errNet
		case losesAnswer:
			_, _ = call(ctx, req)
			return none, errNet
		case isSlow:
			if err := s.pass(ctx, t.By); err != nil {
				return none, err
			}
		case answersLate:
			if res, err = call(ctx, req); s.pass(ctx, t.By) != nil {
				return none, cutShort(ctx)
			}
			return res, err
		case comesLate:
			s.m.strays.Go(func() {
				time.Sleep(t.By)
				_, _ = call(context.WithoutCancel(ctx), req)
			})
			return none, errNet
		case hangs:
			<-ctx.Done()
			return none, cutShort(ctx)
		}
	}
	return call(ctx, req)
}

func (s *modelStore) pass(ctx context.Context, d time.Duration) error {
	if pauseIn(ctx, d) {
		return nil
	}
	return cutShort(ctx)
}

// pauseIn reports whether d passed before the context ended.
func pauseIn(ctx context.Context, d time.Duration) bool {
	if d == 0 { // to receive from a timer that is due already can end the process in the runtime, with -race in a bubble: once in 300 000 plans
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *modelStore) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	if err := s.m.asked(ctx, req.Nonce); err != nil {
		return driver.ClaimResult{}, err
	}
	return troubled(ctx, s, req, func(ctx context.Context, req driver.ClaimRequest) (res driver.ClaimResult, err error) {
		if res, err = s.mapStore.Claim(ctx, req); res.Decision == driver.DecideClaimed {
			s.m.granted(ctx, req.ID)
		}
		return res, err
	})
}

// granted notes a claim that got the record.
func (m *crowdModel) granted(ctx context.Context, id everonce.RecordID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	receiver := noReceiver
	if i, ok := ctx.Value(callNumber{}).(int); ok {
		receiver = m.plan.Calls[i].Receiver
	}
	now := time.Now()
	for k := range crowdKeys {
		if crowdKey(k).RecordID() == id {
			m.grants[k] = append(m.grants[k], span{now, now, receiver})
		}
	}
}

func (s *modelStore) Complete(ctx context.Context, req driver.CompleteRequest) (driver.CompleteResult, error) {
	defer s.m.tell(req.ID)
	return troubled(ctx, s, req, s.mapStore.Complete)
}

func (s *modelStore) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseResult, error) {
	defer s.m.tell(req.ID)
	return troubled(ctx, s, req, s.mapStore.Release)
}

func (s *modelStore) Renew(ctx context.Context, req driver.RenewRequest) (driver.RenewResult, error) {
	return troubled(ctx, s, req, s.mapStore.Renew)
}

func (s *modelStore) Get(ctx context.Context, req driver.GetRequest) (driver.GetResult, error) {
	if s.m.plan.Transactions {
		if err := s.m.asked(ctx, driver.Nonce{}); err != nil {
			return driver.GetResult{}, err
		}
	}
	return troubled(ctx, s, req, s.mapStore.Get)
}

func (s *modelStore) Begin(ctx context.Context, req driver.BeginRequest) (driver.TxHandle[*mapTx], driver.ClaimResult, error) {
	if req.Claim != nil {
		if err := s.m.asked(ctx, req.Claim.Nonce); err != nil {
			return nil, driver.ClaimResult{}, err
		}
	}
	for _, t := range s.m.plan.Troubles {
		if at := time.Since(s.m.start); at >= t.From && at < t.To && t.Kind != isSlow { // the tests of Begin cover a lost begin
			return nil, driver.ClaimResult{}, errNet
		}
	}
	h, res, err := s.mapStore.Begin(ctx, req)
	if res.Decision == driver.DecideClaimed {
		s.m.granted(ctx, req.Claim.ID)
	}
	return h, res, err
}

// wordy is a modelStore that sends word.
type wordy struct {
	*modelStore
	mu    sync.Mutex
	asked map[everonce.RecordID][]chan struct{}
	open  int
}

func (s *wordy) Watch(ctx context.Context, req driver.WatchRequest) (driver.WatchResult, error) {
	kind := s.m.plan.Word
	switch kind {
	case deniedWord:
		return driver.WatchResult{}, errNet
	case hungWords:
		<-ctx.Done()
		return driver.WatchResult{}, cutShort(ctx)
	}
	s.mapStore.mu.Lock()
	rec := s.records[req.ID]
	if s.m.plan.Transactions && s.locks[req.ID] != nil { // of the end of a transaction there is no word
		rec.State = driver.StateClaimed
	}
	s.mapStore.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := make(chan struct{})
	if kind != falseWord && rec.State == driver.StateClaimed {
		s.asked[req.ID] = append(s.asked[req.ID], ended)
	} else {
		close(ended)
	}
	s.open++
	return driver.WatchResult{Ended: ended, Stop: sync.OnceFunc(func() {
		if kind == slowStop {
			time.Sleep(300 * time.Millisecond)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
	})}, nil
}

func (s *wordy) tell(id everonce.RecordID) {
	s.mapStore.mu.Lock()
	runs := s.records[id].State == driver.StateClaimed
	s.mapStore.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if runs || s.m.plan.Word == lostWord {
		return
	}
	for _, ended := range s.asked[id] {
		close(ended)
	}
	delete(s.asked, id)
}

func (k troubleKind) String() string {
	return [troubleKinds]string{"refuses", "loses answers", "is slow", "answers late", "does it late", "hangs"}[k]
}

func (k wordKind) String() string {
	return [wordKinds]string{"none", "good", "lost", "false", "denied", "hung", "slow to stop"}[k]
}

func (t trouble) String() string { return fmt.Sprintf("%v-%v %v (%v)", t.From, t.To, t.Kind, t.By) }
