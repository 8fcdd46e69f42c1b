package webhook

import (
	"context"
	"sync"
)

// slots bounds the requests in progress: to each destination, and in all.
type slots struct {
	each int
	all  chan struct{}

	mu    sync.Mutex
	lines map[string]*line
}

// line is the state of a destination with requests in progress or waiting.
type line struct {
	users int
	slots chan struct{}
}

func newSlots(each, all int) *slots {
	return &slots{each: each, all: make(chan struct{}, all), lines: make(map[string]*line)}
}

// acquire waits for a slot until ctx ends. The caller must call release once, unless there is an error. A request that
// waits for its destination does not take a slot from other destinations.
func (s *slots) acquire(ctx context.Context, destination string) (release func(), err error) {
	s.mu.Lock()
	l := s.lines[destination]
	if l == nil {
		l = &line{slots: make(chan struct{}, s.each)}
		s.lines[destination] = l
	}
	l.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(s.lines, destination)
		}
	}
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
	select {
	case s.all <- struct{}{}:
	case <-ctx.Done():
		<-l.slots
		leave()
		return nil, context.Cause(ctx)
	}
	return func() {
		<-s.all
		<-l.slots
		leave()
	}, nil
}
