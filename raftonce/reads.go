package raftonce

import (
	"context"
	"sync"
	"time"
)

// reads collects readers, so that many of them share one entry of the log.
type reads struct {
	mu   sync.Mutex
	next *reading // takes more readers, or nil
	last *reading // the last that was begun, or will be
}

type reading struct {
	done chan struct{} // closed when err is known
	err  error
}

// wait calls barrier once for all callers that wait, each no longer than its limit (0: for ever). A caller that arrives
// while barrier runs waits for the next one: the running one may have begun too early.
func (r *reads) wait(limit time.Duration, barrier func() error) error {
	r.mu.Lock()
	mine, before := r.next, r.last
	first := mine == nil
	if first {
		mine = &reading{done: make(chan struct{})}
		r.next, r.last = mine, mine
	}
	r.mu.Unlock()
	if first {
		go func() {
			if before != nil {
				<-before.done
			}
			r.mu.Lock()
			r.next = nil
			r.mu.Unlock()
			mine.err = barrier()
			close(mine.done)
		}()
	}
	var late <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-mine.done:
		return mine.err
	case <-late:
		return context.DeadlineExceeded
	}
}
