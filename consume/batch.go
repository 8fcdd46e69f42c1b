package consume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// Received is one message of a batch, decoded.
type Received[T any] struct {
	Message *Message
	Payload T
}

// HandleBatch handles many deliveries and returns a decision for each, in order. A consumer made by [NewTx] handles
// them in one transaction, as [everonce.TransactBatch] does: a message that fails does not fail its neighbours, and a
// message that occurs twice is handled once. A message that has no key, is too large, or cannot be decoded is not part
// of the transaction. A guarded consumer handles the messages one after the other.
//
// HandleBatch recovers a panic of the handler: the policy decides about its message.
func (c *Consumer) HandleBatch(ctx context.Context, ms []*Message) []Decision {
	each := c.withinEach(ctx, slog.Default(), ms)
	decisions := c.handleBatch(ctx, each, ms)
	for i, m := range ms {
		c.callObserve(each[i], slog.Default(), m, decisions[i])
	}
	return decisions
}

func (c *Consumer) handleBatch(ctx context.Context, each []context.Context, ms []*Message) []Decision {
	decisions := make([]Decision, len(ms))
	for from := 0; from < len(ms); from += driver.MaxBatch {
		to := min(from+driver.MaxBatch, len(ms))
		c.handleTogether(ctx, each[from:to], ms[from:to], decisions[from:to])
	}
	return decisions
}

// gathered is a batch of messages whose payloads are decoded.
type gathered interface {
	add(ctx context.Context, m *Message, key everonce.Key, sum everonce.Fingerprint) error
	run(ctx context.Context) []ended
}

// ended is the result of one message of a batch.
type ended struct {
	outcome everonce.Outcome
	attempt int
	err     error
}

func (c *Consumer) handleTogether(ctx context.Context, each []context.Context, ms []*Message, decisions []Decision) {
	if c.gather == nil {
		for i, m := range ms {
			decisions[i] = c.handleSafely(each[i], m)
		}
		return
	}
	batch := c.gather(len(ms))
	hashes, places := make([]string, 0, len(ms)), make([]int, 0, len(ms))
	for i, m := range ms {
		key, sum, hash, rejected := c.admit(m)
		if rejected != nil {
			decisions[i] = *rejected
			continue
		}
		if err := batch.add(each[i], m, key, sum); err != nil {
			decisions[i] = c.setAside(m, hash, 0, Undecodable, err)
			continue
		}
		hashes, places = append(hashes, hash), append(places, i)
	}
	for k, e := range batch.run(ctx) {
		i := places[k]
		decisions[i] = c.dispose(ctx, ms[i], hashes[k], e.outcome, e.attempt, e.err)
	}
}

// handleSafely is handle for one of several messages that are handled in a row: it recovers a panic of the handler, so
// that the next message is handled.
func (c *Consumer) handleSafely(ctx context.Context, m *Message) (v Decision) {
	defer func() {
		if p := recover(); p != nil {
			v = c.unfinishedDecision(ctx, m, &panicError{p, debug.Stack()})
		}
	}()
	return c.handle(ctx, m)
}

// admit returns the key, the fingerprint and the key hash of a message, or the decision on a message that cannot be
// handled.
func (c *Consumer) admit(m *Message) (key everonce.Key, sum everonce.Fingerprint, hash string, rejected *Decision) {
	if len(m.Body) > c.maxBody {
		v := c.setAside(m, "", 0, TooLarge, fmt.Errorf("consume: the body has %d bytes, more than MaxBody (%d)", len(m.Body), c.maxBody))
		return key, sum, "", &v
	}
	key, err := c.KeyOf(m)
	if err != nil {
		v := c.setAside(m, "", 0, NoKey, err)
		return key, sum, "", &v
	}
	hash = c.id(key).Short()
	if sum, err = c.compare.of(m); err != nil {
		v := c.setAside(m, hash, 0, Undecodable, err)
		return key, sum, hash, &v
	}
	return key, sum, hash, nil
}

// panicError is the error of a message whose handler panicked.
type panicError struct {
	value any
	stack []byte
}

func (*panicError) Error() string { return errPanicked.Error() }

// batchOf is a batch of messages of one consumer.
type batchOf[T, Tx any] struct {
	recv      *everonce.TxReceiver[Tx]
	decode    func(*Message) (T, error)
	handle    func(ctx context.Context, tx Tx, m *Message, v T) error
	handleAll func(ctx context.Context, tx Tx, batch []Received[T]) error
	note      func(ctx context.Context, tx Tx, ms []*Message) error
	call      everonce.CallOption

	items    []everonce.BatchItem
	received []Received[T]
}

func (b *batchOf[T, Tx]) add(ctx context.Context, m *Message, key everonce.Key, sum everonce.Fingerprint) error {
	v, err := safely(b.decode, m)
	if err == nil {
		b.items = append(b.items, everonce.BatchItem{Key: key, Fingerprint: sum, Context: ctx})
		b.received = append(b.received, Received[T]{m, v})
	}
	return err
}

func (b *batchOf[T, Tx]) run(ctx context.Context) []ended {
	all := make([]ended, len(b.items))
	results, err := everonce.TransactBatch(ctx, b.recv, b.items, b.work(), b.call)
	for i := range all {
		if err == nil {
			all[i] = ended{results[i].Outcome, results[i].Attempt, results[i].Err}
			continue
		}
		all[i] = ended{outcome: everonce.StoreFailed, err: err}
		if e, ok := errors.AsType[*everonce.Error](err); ok {
			all[i].outcome = e.Outcome
		}
	}
	return all
}

// work handles the messages of a transaction, and then notes their offsets.
func (b *batchOf[T, Tx]) work() everonce.BatchWork[struct{}, Tx] {
	handle := b.handling()
	return func(ctx context.Context, tx Tx, todo []int) (_ []struct{}, err error) {
		done, err := handle(ctx, tx, todo)
		if err != nil {
			return nil, err
		}
		defer caught(&err)
		ms := make([]*Message, len(todo))
		for k, i := range todo {
			ms[k] = b.received[i].Message
		}
		return done, b.note(ctx, tx, ms)
	}
}

// handling calls HandleAll for the messages, or Handle for each.
func (b *batchOf[T, Tx]) handling() everonce.BatchWork[struct{}, Tx] {
	if b.handleAll == nil {
		return everonce.EachItem(func(ctx context.Context, tx Tx, i int) (_ struct{}, err error) {
			defer caught(&err)
			return struct{}{}, b.handle(ctx, tx, b.received[i].Message, b.received[i].Payload)
		})
	}
	return func(ctx context.Context, tx Tx, todo []int) (_ []struct{}, err error) {
		defer caught(&err)
		batch := make([]Received[T], len(todo))
		for k, i := range todo {
			batch[k] = b.received[i]
		}
		return make([]struct{}, len(todo)), b.handleAll(ctx, tx, batch)
	}
}

// caught turns a panic into an error, so that the transaction rolls back.
func caught(err *error) {
	if p := recover(); p != nil {
		*err = &panicError{p, debug.Stack()}
	}
}
