package consume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// Workers are the options of [Consumer.Serve]. The zero value of each field is its default; negative values are errors.
type Workers struct {
	// Concurrency is the number of messages, or batches, that are handled at a time. Default 8.
	Concurrency int
	// Order, if set, returns the ordering key of a message: this consumer handles messages with equal ordering keys one
	// after the other, as they arrived. Another process on the same queue keeps its own order. A retried
	// message follows those that arrived in the meantime. Ordering keys share Concurrency lanes, each of which buffers up
	// to 16 messages, or a batch if that is more. If Order panics or calls [runtime.Goexit], the ordering key is empty.
	// Default: no order.
	Order func(*Message) string
	// Batch is the largest number of messages in one transaction, and BatchDelay is how long the first of them waits for
	// more. Batches fill only if the broker delivers Concurrency × Batch messages ahead. Messages are answered with their
	// batch. Default 1; at most [driver.MaxBatch]; more than 1 only for consumers made by [NewTx]. BatchDelay: default
	// 10 ms.
	Batch      int
	BatchDelay time.Duration
	// Backoff bounds two pauses: of the whole consumer after a write to the store failed, and of one message after the
	// broker did not accept its answer. Default 1 s and 1 minute.
	Backoff Backoff
	// HandleTimeout is the deadline for one message or one batch. The messages of a batch that takes longer are handled
	// one by one, each with the same deadline. Default: none; an adapter sets one if its broker does.
	HandleTimeout time.Duration
	// DrainTimeout is how long handlers may run after the context of Serve has ended; then their contexts end too. Serve
	// waits for handlers that ignore that, because an attempt ends only when its work has returned. Default 30 s.
	DrainTimeout time.Duration
	// SettleTimeout is the deadline for one answer to the broker, and, after the contexts of the handlers have ended, for
	// all the answers of a batch. Default 10 s.
	SettleTimeout time.Duration
	// Log gets panics as errors; dead letters, pauses and answers that the broker did not accept as warnings; retries and
	// dropped messages as information. It has the hash of the key, never the key or the body. Default [slog.Default].
	Log *slog.Logger
}

// CheckWorkers returns the error that [Consumer.Serve] would return for w, which may be nil. It wraps
// [everonce.ErrInvalidArgument].
func (c *Consumer) CheckWorkers(w *Workers) error {
	_, err := c.workers(w)
	return err
}

func (c *Consumer) workers(w *Workers) (Workers, error) {
	valid, err := w.validated()
	if err == nil && valid.Batch > 1 && c.gather == nil {
		err = fmt.Errorf("%w: consume: Workers.Batch needs a transactional consumer (see NewTx)", everonce.ErrInvalidArgument)
	}
	return valid, err
}

func (w *Workers) validated() (Workers, error) {
	var c Workers
	if w != nil {
		c = *w
	}
	if c.Concurrency < 0 || c.Backoff.Min < 0 || c.Backoff.Max < 0 || c.HandleTimeout < 0 || c.DrainTimeout < 0 || c.SettleTimeout < 0 || c.Batch < 0 || c.BatchDelay < 0 {
		return c, fmt.Errorf("%w: consume: no field of Workers may be negative", everonce.ErrInvalidArgument)
	}
	if c.Batch > driver.MaxBatch {
		return c, fmt.Errorf("%w: consume: Workers.Batch is %d, and must be at most %d", everonce.ErrInvalidArgument, c.Batch, driver.MaxBatch)
	}
	return c.WithDefaults(), nil
}

// WithDefaults returns w with its defaults in place of zeros. It is for adapters.
func (w Workers) WithDefaults() Workers {
	w.Concurrency = cmp.Or(w.Concurrency, 8)
	w.Batch = cmp.Or(w.Batch, 1)
	w.BatchDelay = cmp.Or(w.BatchDelay, 10*time.Millisecond)
	w.Backoff = w.Backoff.WithDefaults(time.Second, time.Minute)
	w.DrainTimeout = cmp.Or(w.DrainTimeout, 30*time.Second)
	w.SettleTimeout = cmp.Or(w.SettleTimeout, 10*time.Second)
	if w.Log == nil {
		w.Log = slog.Default()
	}
	return w
}

// Serve handles the deliveries from in until ctx ends or in is closed. Then it drains: it takes no more deliveries,
// and returns when those that it started are handled and answered. When ctx ends, Serve leaves the messages that wait
// for the store unanswered; the adapter closes its channel, and the broker redelivers them. If ctx ends with a cause
// that wraps [ErrGone], the deliveries belong to another consumer: the contexts of the handlers end at once, with that
// cause.
//
// Serve waits for a store that cannot be reached. If the store needs an operator, it returns an error that wraps
// [everonce.ErrSchema] or [everonce.ErrIdentity] before it takes a delivery. Any other error wraps
// [everonce.ErrInvalidArgument].
func (c *Consumer) Serve(ctx context.Context, in <-chan Delivery, workers *Workers) error {
	w, err := c.workers(workers)
	if err != nil {
		return err
	}
	if err := c.usable(ctx); err != nil {
		return err
	}
	s := &server{Workers: w, c: c, ending: ctx, gate: newGate(w.Backoff), collecting: make(chan struct{}, 1)}
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	s.work = work
	forget := context.AfterFunc(ctx, func() {
		if gone := context.Cause(ctx); errors.Is(gone, ErrGone) {
			stop(gone)
			return
		}
		t := time.AfterFunc(w.DrainTimeout, func() { stop(errDrained) })
		context.AfterFunc(work, func() { t.Stop() })
	})
	defer forget()
	s.serve(in)
	return nil
}

// usable returns an error if the store needs an operator: its tables are missing, or it is bound to another identity
// secret. Waiting would not help, and each message would wait for ever.
func (c *Consumer) usable(ctx context.Context) error {
	if c.ready == nil {
		return nil
	}
	if err := c.ready(ctx); errors.Is(err, everonce.ErrSchema) || errors.Is(err, everonce.ErrIdentity) {
		return fmt.Errorf("consume: consumer %q cannot start: %w", c.name, err)
	}
	return nil
}

var (
	errDrained = errors.New("consume: the handler ran longer than DrainTimeout after the consumer was stopped")
	errTooLong = errors.New("consume: the handler ran longer than HandleTimeout")
)

// server is one run of Serve.
type server struct {
	Workers
	c      *Consumer
	ending context.Context // no message is started after its end
	work   context.Context // for handlers
	gate   *gate

	collecting chan struct{} // held by the worker that collects a batch
	workers    sync.WaitGroup
}

func (s *server) serve(in <-chan Delivery) {
	defer s.workers.Wait()
	if s.Order != nil {
		s.serveLanes(in)
		return
	}
	for range s.Concurrency {
		s.begin(&worker{server: s, in: in})
	}
}

// next returns the next delivery; false at the end.
func (s *server) next(in <-chan Delivery) (Delivery, bool) {
	if s.ending.Err() != nil {
		return nil, false
	}
	select {
	case d, ok := <-in:
		return d, ok
	case <-s.ending.Done():
		return nil, false
	}
}

// handle handles a delivery until the broker has accepted the answer, or Serve ends.
func (s *server) handle(d Delivery) {
	returned := false
	defer func() {
		if !returned { // by runtime.Goexit
			v := s.c.exitDecision(s.work, d.Message())
			s.c.callObserve(s.work, s.Log, d.Message(), v)
			s.settle(context.WithoutCancel(s.work), d, v)
		}
	}()
	s.untilSettled(d)
	returned = true
}

func (s *server) untilSettled(d Delivery) {
	for s.gate.pass(s.ending) { // another worker may have shut it since
		v := s.decision(d.Message())
		if v.Disposition != Hold {
			s.reached(v)
			s.settle(context.WithoutCancel(s.work), d, v)
			return
		}
		if s.ending.Err() != nil {
			return
		}
		pause := s.gate.shut()
		s.Log.WarnContext(s.work, "consume: a message waits for the store", "consumer", s.c.name, "key", v.KeyHash, "outcome", v.Outcome, "pause", pause, "error", v.Err)
	}
}

// reached reports to the gate that the store can be reached. A message that failed before the store was called shows
// nothing.
func (s *server) reached(v Decision) {
	if v.Outcome != 0 {
		s.gate.opened()
	}
}

// decision handles a message and calls Observe.
func (s *server) decision(m *Message) Decision {
	ctx, cancel := s.handling()
	defer cancel()
	ctx = s.c.within(ctx, s.Log, m)
	v := s.c.handleSafely(ctx, m)
	s.logPanic(v)
	s.c.callObserve(ctx, s.Log, m, v)
	return v
}

// logPanic logs a decision that a handler's panic led to.
func (s *server) logPanic(v Decision) {
	if p, ok := errors.AsType[*panicError](v.Err); ok {
		s.Log.ErrorContext(s.work, "consume: a handler panicked", "consumer", s.c.name, "key", v.KeyHash, "panic", p.value, "stack", string(p.stack))
	}
}

// handling returns the context for handling one message or batch.
func (s *server) handling() (context.Context, context.CancelFunc) {
	if s.HandleTimeout > 0 {
		return context.WithTimeoutCause(s.work, s.HandleTimeout, errTooLong)
	}
	return s.work, func() {}
}

// settle sends the broker the answer, and repeats it until the broker accepts it; the message is not handled again. A
// refused dead letter is deferred, and a message that cannot be copied for a retry is set aside. Otherwise waiting
// messages would soon fill the prefetch window.
func (s *server) settle(ctx context.Context, d Delivery, v Decision) {
	gate, copied := newGate(s.Backoff), true
	for {
		err := s.answer(ctx, d, v)
		switch {
		case err == nil:
			s.logAnswer(d.Message(), v)
			return
		case errors.Is(err, ErrGone):
			s.Log.InfoContext(s.work, "consume: the broker will redeliver the message", "consumer", s.c.name, "key", v.KeyHash, "was_to", v.Disposition, "error", err)
			return
		case v.Disposition == SetAside && copied && errors.Is(err, ErrRefused):
			v.Disposition, v.After = Defer, s.c.retry.Max
			s.Log.WarnContext(s.work, "consume: the dead-letter queue refuses a message, which will be retried", "consumer", s.c.name, "key", v.KeyHash,
				"reason", v.Death.Reason, "after", v.After, "error", err)
			continue
		case v.Disposition != SetAside && errors.Is(err, ErrNoCopy):
			copied = false
			v = s.c.setAside(d.Message(), v.KeyHash, v.Outcome, TooLarge, fmt.Errorf("consume: the message cannot be retried: %w: %w", err, v.Err))
			s.c.callObserve(s.c.within(s.work, s.Log, d.Message()), s.Log, d.Message(), v)
			continue
		}
		pause := gate.shut()
		s.Log.WarnContext(s.work, "consume: the broker did not accept an answer", "consumer", s.c.name, "key", v.KeyHash, "was_to", v.Disposition, "pause", pause, "error", err)
		if !gate.pass(s.ending) {
			return
		}
	}
}

// logAnswer logs an answer that the broker has accepted. Nothing else logs that a message failed or became a dead
// letter.
func (s *server) logAnswer(m *Message, v Decision) {
	switch v.Disposition {
	case SetAside:
		s.Log.WarnContext(s.work, "consume: message dead-lettered", "consumer", s.c.name, "key", v.KeyHash, "reason", v.Death.Reason,
			"attempts", v.Death.Attempts, "source", v.Death.Source, "error", v.Err)
	case Retry:
		s.Log.InfoContext(s.work, "consume: message failed and will be retried", "consumer", s.c.name, "key", v.KeyHash,
			"attempts", m.Retries+1, "after", v.After, "error", v.Err)
	case Defer:
		s.Log.DebugContext(s.work, "consume: message deferred", "consumer", s.c.name, "key", v.KeyHash, "after", v.After, "error", v.Err)
	case Ack:
		if v.Err != nil {
			s.Log.InfoContext(s.work, "consume: message rejected and dropped", "consumer", s.c.name, "key", v.KeyHash, "error", v.Err)
		}
	case Hold:
	}
}

func (s *server) answer(ctx context.Context, d Delivery, v Decision) error {
	ctx, cancel := context.WithTimeout(ctx, s.SettleTimeout)
	defer cancel()
	switch v.Disposition {
	case Ack:
		return d.Ack(ctx)
	case Retry, Defer:
		return d.Retry(ctx, v.After, v.Disposition == Retry)
	case SetAside:
		return d.SetAside(ctx, v.Death)
	case Hold:
	}
	return nil
}
