package consume

import (
	"context"
	"errors"
	"runtime/debug"
	"time"
)

// collect takes what comes behind a delivery until the batch is full, or has waited long enough for more.
func (s *server) collect(in <-chan Delivery, first Delivery) []Delivery {
	ds := make([]Delivery, 1, s.Batch)
	ds[0] = first
	enough := time.NewTimer(s.BatchWithin)
	defer enough.Stop()
	for len(ds) < s.Batch {
		select {
		case d, ok := <-in:
			if !ok {
				return ds
			}
			ds = append(ds, d)
		case <-enough.C:
			return ds
		case <-s.ending.Done():
			return ds
		}
	}
	return ds
}

// nextBatch returns the next deliveries; nil at the end. One worker at a time collects: several that share a channel
// would wait for halves of the same batch.
func (s *server) nextBatch(in <-chan Delivery) []Delivery {
	if s.Order == nil {
		select {
		case s.collecting <- struct{}{}:
			defer func() { <-s.collecting }()
		case <-s.ending.Done():
			return nil
		}
	}
	first, ok := s.next(in)
	if !ok {
		return nil
	}
	return s.collect(in, first)
}

// handleBatch handles deliveries until the broker has the answer to each, or the end was asked for.
func (s *server) handleBatch(ds []Delivery) {
	returned := false
	defer func() {
		if !returned { // by runtime.Goexit, and nobody knows in which of them
			s.handleApart(ds)
		}
	}()
	for {
		var why Verdict
		ds, why = s.settleAll(ds)
		if len(ds) == 0 || s.ending.Err() != nil {
			break
		}
		pause := s.gate.shut()
		s.Log.WarnContext(s.work, "consume: messages are kept in hand", "consumer", s.c.name, "messages", len(ds), "key", why.KeyHash, "outcome", why.Outcome, "pause", pause, "error", why.Err)
		if !s.gate.pass(s.ending) {
			break
		}
	}
	returned = true
}

// settleAll handles deliveries once, gives the broker its answers, and returns those that are to be kept in hand, and
// the verdict on one of them.
func (s *server) settleAll(ds []Delivery) (kept []Delivery, why Verdict) {
	ms := make([]*Message, len(ds))
	for i, d := range ds {
		ms[i] = d.Message()
	}
	verdicts := s.verdicts(ms)
	for i, v := range verdicts {
		if v.Disposition == Keep {
			kept, why = append(kept, ds[i]), v
		}
	}
	if len(kept) < len(ds) {
		s.gate.opened()
	}
	for i, v := range verdicts {
		if v.Disposition != Keep {
			s.settle(ds[i], v)
		}
	}
	return kept, why
}

// verdicts handles messages. What panics here is not a handler: that was caught.
func (s *server) verdicts(ms []*Message) (verdicts []Verdict) {
	defer func() {
		if p := recover(); p != nil {
			s.Log.ErrorContext(s.work, "consume: a batch panicked", "consumer", s.c.name, "panic", p, "stack", string(debug.Stack()))
			verdicts = make([]Verdict, len(ms))
			for i, m := range ms {
				verdicts[i] = s.c.gaveUp(m, errPanicked)
			}
		}
	}()
	ctx := s.work
	if s.HandleWithin > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.HandleWithin, errTooLong)
		defer cancel()
	}
	verdicts = s.c.HandleBatch(ctx, ms)
	for _, v := range verdicts {
		if p, ok := errors.AsType[*panicError](v.Err); ok {
			s.Log.ErrorContext(s.work, "consume: a handler panicked", "consumer", s.c.name, "key", v.KeyHash, "panic", p.value, "stack", string(p.stack))
		}
	}
	return verdicts
}

// handleApart handles deliveries one after the other, each in a transaction of its own, in goroutines that a handler
// may end.
func (s *server) handleApart(ds []Delivery) {
	s.workers.Go(func() {
		next := 0
		defer func() {
			if next < len(ds) {
				s.handleApart(ds[next:])
			}
		}()
		for next < len(ds) {
			d := ds[next]
			next++
			s.handle(d)
		}
	})
}
