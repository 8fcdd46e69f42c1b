package redisstore

import (
	"context"
	"sync"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce/driver"
)

// watches are the waiting callers of this process. One subscription receives the messages of all keys, and remains
// until the client is closed: rueidis cannot always end one over a connection that others use (a server that is busy,
// or that refuses a PING, ends the process).
type watches struct {
	prefix string
	mu     sync.Mutex
	byKey  map[string]*watch
	ear    *ear
}

// watch is shared by all callers in this process that wait for one record.
type watch struct {
	ended   chan struct{} // closed when word came, or may have been lost
	waiters int
}

// ear is the subscription.
type ear struct {
	open chan struct{} // closed when the server has confirmed, or never will
	err  error         // why it never will; read after open
}

// Watch implements [driver.ChangeWaiter]. It needs no separate connection. The record is marked, so that the end of its
// attempt publishes a message only where a caller waits.
func (s *Store) Watch(ctx context.Context, req driver.WatchRequest) (res driver.WatchResult, err error) {
	keys := s.keys(&req.ID)
	w, ear := s.watches.join(s.client, keys.record)
	stop := sync.OnceFunc(func() { s.watches.leave(keys.record, w) })
	select {
	case <-ear.open:
		err = ear.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	runs := int64(0)
	if err == nil {
		msg, sent := s.run(ctx, &call{script: watchScript, keys: keys})
		if err = sent; err == nil {
			runs, err = msg.ToInt64()
		}
	}
	if err != nil {
		stop()
		return res, wrapError("watch", err)
	}
	res = driver.WatchResult{Ended: w.ended, Stop: stop}
	if runs == 0 {
		over := make(chan struct{})
		close(over)
		res.Ended = over
	}
	return res, nil
}

func (all *watches) join(client rueidis.Client, key string) (*watch, *ear) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.ear == nil {
		all.ear = &ear{open: make(chan struct{})}
		go all.listen(client, all.ear)
	}
	w := all.byKey[key]
	if w == nil {
		w = &watch{ended: make(chan struct{})}
		all.byKey[key] = w
	}
	w.waiters++
	return w, all.ear
}

func (all *watches) leave(key string, w *watch) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if w.waiters--; w.waiters == 0 && all.byKey[key] == w {
		delete(all.byKey, key)
	}
}

func (all *watches) notify(key string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if w := all.byKey[key]; w != nil {
		delete(all.byKey, key)
		close(w.ended)
	}
}

// notifyAll lets go of all who wait: what was said in between is lost. The lock is held.
func (all *watches) notifyAll() {
	for _, w := range all.byKey {
		close(w.ended)
	}
	clear(all.byKey)
}

// listen hears until the client is closed, or the server refuses the subscription. The pattern is, to the letter, what
// a user with few rights is allowed.
func (all *watches) listen(client rueidis.Client, e *ear) {
	open := sync.OnceFunc(func() { close(e.open) })
	heard := false
	ctx := rueidis.WithOnSubscriptionHook(context.Background(), func(sub rueidis.PubSubSubscription) {
		if sub.Kind != "psubscribe" {
			return
		}
		all.mu.Lock()
		defer all.mu.Unlock()
		if heard { // it is another connection
			all.notifyAll()
		}
		heard = true
		open()
	})
	err := client.Receive(ctx, client.B().Psubscribe().Pattern(all.prefix+"*").Build(), func(m rueidis.PubSubMessage) { all.notify(m.Channel) })
	all.mu.Lock()
	defer all.mu.Unlock()
	all.ear = nil
	all.notifyAll()
	if err == nil {
		err = context.Canceled
	}
	if !heard {
		e.err = err
	}
	open()
}
