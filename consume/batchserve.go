package consume

import (
	"context"
	"runtime/debug"
	"time"
)

// collect adds deliveries to first until the batch is full or BatchDelay has passed.
func (s *server) collect(in <-chan Delivery, first Delivery) []Delivery {
	ds := make([]Delivery, 1, s.Batch)
	ds[0] = first
	enough := time.NewTimer(s.BatchDelay)
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

// nextBatch returns the next deliveries, or nil at the end. Only one worker collects at a time: several that share a
// channel would each wait with part of a batch.
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

// handleBatch handles deliveries until the broker has the answer to each, or Serve ends. It leaves a batch in apart,
// to be handled one by one, if a handler ended its goroutine, since the handler's message is not known, or if the
// batch took too long, since one message may have used all of the time.
func (w *worker) handleBatch(ds []Delivery) {
	for len(ds) > 0 && w.gate.pass(w.ending) {
		w.apart = ds
		kept, why, late := w.settleAll(ds)
		w.apart = nil
		if late {
			w.apart = kept
		}
		if ds = kept; late || len(ds) == 0 || w.ending.Err() != nil {
			return
		}
		pause := w.gate.shut()
		w.Log.WarnContext(w.work, "consume: messages wait for the store", "consumer", w.c.name, "messages", len(ds), "key", why.KeyHash, "outcome", why.Outcome, "pause", pause, "error", why.Err)
	}
}

// settleAll handles deliveries once and answers them. It returns the deliveries to hold, the decision on one of them,
// and whether HandleTimeout passed. It acknowledges first, so that other answers do not delay acknowledgements.
func (s *server) settleAll(ds []Delivery) (kept []Delivery, why Decision, late bool) {
	ms := make([]*Message, len(ds))
	for i, d := range ds {
		ms[i] = d.Message()
	}
	decisions, late := s.decisions(ms)
	answers, cancel := s.answering()
	defer cancel()
	for i, v := range decisions {
		if v.Disposition == Hold {
			kept, why = append(kept, ds[i]), v
			continue
		}
		s.reached(v)
		if v.Disposition == Ack && answers.Err() == nil {
			s.settle(answers, ds[i], v)
		}
	}
	for i, v := range decisions {
		if v.Disposition != Hold && v.Disposition != Ack && answers.Err() == nil {
			s.settle(answers, ds[i], v)
		}
	}
	return kept, why, late
}

// answering returns the context for the answers of a batch. Once the contexts of the handlers have ended, all answers
// together have SettleTimeout. Otherwise a broker that does not answer would delay the end by that time for each
// message. The broker redelivers messages that are not answered.
func (s *server) answering() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.work))
	forget := context.AfterFunc(s.work, func() {
		t := time.AfterFunc(s.SettleTimeout, cancel)
		context.AfterFunc(ctx, func() { t.Stop() })
	})
	return ctx, func() { forget(); cancel() }
}

// decisions handles messages and calls Observe for each.
func (s *server) decisions(ms []*Message) (decisions []Decision, late bool) {
	ctx, cancel := s.handling()
	defer cancel()
	each := s.c.withinEach(ctx, s.Log, ms)
	decisions = s.handledTogether(ctx, each, ms)
	late = context.Cause(ctx) == errTooLong //nolint:errorlint // Cause returns errTooLong unwrapped
	for i, m := range ms {
		s.c.callObserve(each[i], s.Log, m, decisions[i])
	}
	return decisions, late
}

// handledTogether handles messages and recovers a panic outside the handlers, whose own panics are recovered earlier.
func (s *server) handledTogether(ctx context.Context, each []context.Context, ms []*Message) (decisions []Decision) {
	defer func() {
		if p := recover(); p != nil {
			s.Log.ErrorContext(s.work, "consume: a batch panicked", "consumer", s.c.name, "panic", p, "stack", string(debug.Stack()))
			decisions = make([]Decision, len(ms))
			for i, m := range ms {
				decisions[i] = s.c.unfinishedDecision(ctx, m, errPanicked)
			}
		}
	}()
	decisions = s.c.handleBatch(ctx, each, ms)
	for _, v := range decisions {
		s.logPanic(v)
	}
	return decisions
}
