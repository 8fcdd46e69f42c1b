package redisstore

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce"
)

// watch is the subscription to one record's word, which all who wait for it in this process share. The record is marked,
// so that the end of its attempt sends word only where somebody waits.
type watch struct {
	ready   chan struct{} // closed when the server has confirmed, or never will
	ended   chan struct{} // closed when word came, or cannot come any more
	err     error         // why it never will; read after ready
	cancel  context.CancelFunc
	waiters int
	over    bool // nobody joins it any more; under the lock, as waiters
}

// Watch implements [everonce.ChangeWaiter]. It needs no connection of its own.
func (s *Store) Watch(ctx context.Context, req everonce.WatchRequest) (res everonce.WatchResult, err error) {
	w := s.join(&req.ID)
	stop := sync.OnceFunc(func() { s.leave(w) })
	select {
	case <-w.ready:
		err = w.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	runs := int64(0)
	if err == nil {
		msg, sent := s.run(ctx, &call{script: watchScript, keys: s.keys(&req.ID)})
		if err = sent; err == nil {
			runs, err = msg.ToInt64()
		}
	}
	if err != nil {
		stop()
		return res, failed("watch", err)
	}
	res = everonce.WatchResult{Ended: w.ended, Stop: stop}
	if runs == 0 {
		over := make(chan struct{})
		close(over)
		res.Ended = over
	}
	return res, nil
}

func (s *Store) join(id *everonce.RecordID) *watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watches[*id]
	if w == nil || w.over {
		before := w
		ctx, cancel := context.WithCancel(context.Background())
		w = &watch{ready: make(chan struct{}), ended: make(chan struct{}), cancel: cancel}
		s.watches[*id] = w
		go s.listen(ctx, *id, w, before)
	}
	w.waiters++
	return w
}

func (s *Store) leave(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.waiters--; w.waiters == 0 {
		w.drop()
	}
}

// drop ends the subscription. The lock is held.
func (w *watch) drop() {
	w.over = true
	w.cancel()
}

// listen waits for the first word. The subscription before it must have ended: its end is one of the channel, whoever
// has subscribed to it.
func (s *Store) listen(ctx context.Context, id everonce.RecordID, w, before *watch) {
	if before != nil {
		<-before.ended
	}
	channel := s.keys(&id).record
	var once sync.Once
	ready := func(err error) {
		once.Do(func() {
			w.err = err
			close(w.ready)
		})
	}
	told := sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		w.drop()
	})
	var subscribed atomic.Bool
	heard := rueidis.WithOnSubscriptionHook(ctx, func(e rueidis.PubSubSubscription) {
		if e.Kind != "subscribe" {
			return
		}
		if subscribed.Swap(true) { // again, on another connection: what was said in between is lost
			told()
		}
		ready(nil)
	})
	heard = rueidis.WithOnReceiveReturnHook(heard, func(err error, c rueidis.CommandClient) error {
		// The connection is shared, and would go on with the subscription.
		c.Do(context.WithoutCancel(ctx), c.B().Unsubscribe().Channel(channel).Build()) // fails where there is none to end
		return err
	})
	err := s.client.Receive(heard, s.client.B().Subscribe().Channel(channel).Build(), func(rueidis.PubSubMessage) { told() })
	told()
	if err == nil {
		err = context.Canceled
	}
	ready(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches[id] == w {
		delete(s.watches, id)
	}
	close(w.ended)
}
