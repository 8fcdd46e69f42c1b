package rabbitonce

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/internal/copies"
)

// DeadLetters shows, replays and discards the dead letters of a queue. Its methods must not be called concurrently.
//
// AMQP cannot show a message without delivering it: each method receives dead letters, a few at a time, and returns
// the remaining ones to the queue when it is done. Meanwhile other consumers do not see them; afterwards they are
// flagged as redelivered, and may be in another order. A call does not see dead letters that arrive after its start. A
// call whose context ends closes the connection, which returns the dead letters to the queue. Call [DialDeadLetters]
// again then, and after a call that the broker did not answer within 15 s (it may have just started, or the queue has
// no leader).
//
// A dead letter whose delivery ends the connection cannot be read: the broker cannot write it for AMQP 0.9.1, or the
// client library cannot read its headers. Each method skips the first such dead letter as far as it can. Then its
// error wraps [consume.ErrUnreadable], and says where the dead letter is. If the queue may have a delivery limit, the
// method ends there with that error: further deliveries could delete dead letters.
type DeadLetters struct {
	queue   Queue
	dialing dialing
	conn    *link
	ch      *amqp.Channel
	held    int     // unanswered dead letters
	holding []*link // other connections with unanswered dead letters
	out     *publisher

	alone     int                // number to take one by one, see passBy
	largest   int                // largest body of those that were taken last
	consumers int                // consumers so far on ch
	closed    <-chan *amqp.Error // why the connection was closed
	unwatch   func() bool        // stops closing the connection at the end of a call's context
	over      atomic.Bool        // Close was called
}

var _ consume.DeadLetters = (*DeadLetters)(nil)

// DialDeadLetters connects to a broker and checks that the dead-letter queue exists; it declares nothing. It uses
// queue.Name and queue.DeadLetters. url is as for [Dial], and opts may be nil. The error wraps
// [everonce.ErrInvalidArgument], [ErrUnreachable] or [ErrTopology].
func DialDeadLetters(ctx context.Context, url string, queue Queue, opts *Options) (*DeadLetters, error) {
	q, err := queue.withDefaults()
	if err != nil {
		return nil, err
	}
	o, err := opts.withDefaults("dead letters", q.Name)
	if err != nil {
		return nil, err
	}
	d, err := o.dialing(url)
	if err != nil {
		return nil, err
	}
	conn, err := d.dial(ctx, "inspect")
	if err != nil {
		return nil, err
	}
	l := &DeadLetters{queue: q, dialing: d, conn: conn, out: newPublisher(d), closed: conn.NotifyClose(make(chan *amqp.Error, 1))}
	if err := conn.within(askTimeout, func() error {
		return withChannel(conn, func(ch *amqp.Channel) error { return exists(ch, q.DeadLetters) })
	}); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Close closes the connections.
func (l *DeadLetters) Close() error {
	l.over.Store(true)
	return errors.Join(l.conn.hangUp(), l.out.close())
}

// Consumers returns the current number of other consumers of the dead-letter queue, including other calls that read
// dead letters. No method sees dead letters that they hold. A classic queue does not count calls that only read.
func (l *DeadLetters) Consumers(ctx context.Context) (n int, err error) {
	stop := context.AfterFunc(ctx, l.conn.cut)
	defer stop()
	err = l.conn.within(askTimeout, func() error {
		return withChannel(l.conn, func(ch *amqp.Channel) error {
			q, err := l.count(ch)
			n = q.Consumers
			return err
		})
	})
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return n, err
}

// All returns an iterator over the selected dead letters, and removes none. It ends with the first error.
func (l *DeadLetters) All(ctx context.Context, filter consume.Filter) iter.Seq2[consume.DeadLetter, error] {
	return func(yield func(consume.DeadLetter, error) bool) {
		err := l.each(ctx, filter, func(letter *consume.DeadLetter, _ *amqp.Delivery) error {
			if !yield(*letter, nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(consume.DeadLetter{}, err)
		}
	}
}

var errEnough = errors.New("rabbitonce: enough")

// List returns the selected dead letters, and removes none.
func (l *DeadLetters) List(ctx context.Context, filter consume.Filter) ([]consume.DeadLetter, error) {
	var found []consume.DeadLetter
	for letter, err := range l.All(ctx, filter) {
		if err != nil {
			return found, err
		}
		found = append(found, letter)
	}
	return found, nil
}

// Replay publishes copies of the selected dead letters to their queues, with the original key and headers, zero
// retries, and the number of replays ([consume.DeadLetter.Replays]). It removes each dead letter once the broker has
// confirmed its copy. If the message was already handled, the copy is a duplicate. Replay returns the number of
// replayed dead letters. The error also names dead letters that were not replayed because their queue does not exist.
// An interrupted replay may leave a dead letter beside its copy.
func (l *DeadLetters) Replay(ctx context.Context, filter consume.Filter) (replayed int, err error) {
	var gone error
	err = l.each(ctx, filter, func(letter *consume.DeadLetter, d *amqp.Delivery) error {
		err := l.publish(ctx, letter.Queue, replayCopy(d))
		if errors.Is(err, errUnroutable) || errors.Is(err, errTooLarge) {
			gone = errors.Join(gone, fmt.Errorf("rabbitonce: dead letter %s was not replayed: %w", letter.ID, err))
			return nil
		}
		if err == nil {
			err = l.remove(d)
		}
		if err == nil {
			replayed++
		}
		return err
	})
	return replayed, errors.Join(err, gone)
}

// slowLine is the least speed of a line, in bytes per second.
const slowLine = 128 << 10

// publish waits as long as the dead letter takes on a slow line, and then for the broker's answer as long as any
// request.
func (l *DeadLetters) publish(ctx context.Context, queue string, msg amqp.Publishing) error {
	ctx, cancel := context.WithTimeoutCause(ctx, askTimeout+time.Duration(len(msg.Body)/slowLine)*time.Second, errUnanswered)
	defer cancel()
	return l.out.publish(ctx, queue, msg)
}

// Discard deletes the selected dead letters and returns their number.
func (l *DeadLetters) Discard(ctx context.Context, filter consume.Filter) (discarded int, err error) {
	err = l.each(ctx, filter, func(_ *consume.DeadLetter, d *amqp.Delivery) error {
		if err := l.remove(d); err != nil {
			return err
		}
		discarded++
		return nil
	})
	return discarded, err
}

func (l *DeadLetters) remove(d *amqp.Delivery) error {
	if err := d.Ack(false); err != nil {
		return err
	}
	l.held--
	return nil
}

// each receives dead letters, calls fn for the selected ones, and gives back those that were not acknowledged.
func (l *DeadLetters) each(ctx context.Context, filter consume.Filter, fn func(*consume.DeadLetter, *amqp.Delivery) error) error {
	if err := filter.Validate(); err != nil {
		return err
	}
	l.unwatch = context.AfterFunc(ctx, l.conn.cut)
	defer func() { l.unwatch() }()
	err := l.scan(ctx, filter, fn)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && l.conn.IsClosed():
		err = errors.Join(err, lostError(<-l.closed))
	}
	return err
}

// scan calls fn for the dead letters that exist when it begins.
func (l *DeadLetters) scan(ctx context.Context, filter consume.Filter, fn func(*consume.DeadLetter, *amqp.Delivery) error) (err error) {
	if l.ch == nil || l.ch.IsClosed() {
		if l.ch, err = l.conn.Channel(); err != nil {
			return fmt.Errorf("rabbitonce: opening a channel: %w", err)
		}
	}
	l.held, l.alone = 0, 0
	defer func() {
		if back := l.giveBack(); err == nil || errors.Is(err, consume.ErrUnreadable) {
			err = errors.Join(err, back)
		}
	}()
	var unreadable error
	meant, losses, k := 0, 0, kept{ids: map[string]int{}}
	for there := math.MaxInt; there > 0 && unreadable == nil; {
		ds, left, err := l.takeInTime(there)
		if l.lost(ctx, err) {
			if losses++; losses > maxLosses {
				return err
			}
			if left = there; l.alone > 0 {
				cause := lostError(<-l.closed)
				ds, unreadable, err = l.passBy(ctx, &k, there)
				if unreadable != nil {
					unreadable = fmt.Errorf("%w: %w", unreadable, cause)
				}
			} else {
				ds, err = l.reclaim(ctx, &k, there)
				l.alone = window
			}
		} else if len(ds) == 0 {
			return err
		}
		if err != nil {
			return err
		}
		// Later ones than those that are left now may be replayed ones that failed again.
		there = min(there-len(ds), left)
		for i := range ds {
			letter, held := deadLetterOf(&ds[i], l.queue.Name), l.held
			if filter.Matches(&letter) {
				if err := fn(&letter, &ds[i]); err != nil {
					return err
				}
				if meant++; meant == filter.Limit {
					return unreadable
				}
			}
			if l.held == held {
				k.add(letter.ID)
			}
		}
	}
	return unreadable
}

func (l *DeadLetters) takeInTime(most int) (ds []amqp.Delivery, left int, err error) {
	err = l.conn.within(askTimeout, func() (err error) { ds, left, err = l.take(most); return err })
	return ds, left, err
}

// window is how many dead letters are taken together, as many as a consumer has by default: each single one is a write
// to the broker's disk. All of them are in memory: fewer are taken if they would be larger than room, in bytes, at the
// size of the previous ones.
const (
	window = 16
	room   = 16 << 20
)

// take receives up to most dead letters, and returns how many were left after the first one. It gets the first one
// with basic.get, whose answer says whether there is one: a queue without messages does not answer a consumer.
func (l *DeadLetters) take(most int) (ds []amqp.Delivery, left int, err error) {
	first, ok, err := l.ch.Get(l.queue.DeadLetters, false)
	if err != nil {
		return nil, 0, topologyError(l.queue.DeadLetters, "cannot be read", err)
	}
	if !ok {
		return nil, 0, nil
	}
	l.held++
	ds, left = append(ds, first), int(first.MessageCount)
	l.largest = max(l.largest, len(first.Body), 1)
	more := min(most-1, left, window-1, room/l.largest-1)
	if l.alone > 0 {
		l.alone--
		more = 0
	}
	l.largest = len(first.Body)
	if more > 0 {
		consumed, err := l.consume(more)
		ds = append(ds, consumed...)
		if err != nil {
			return nil, 0, topologyError(l.queue.DeadLetters, "cannot be consumed", err)
		}
		for i := range consumed {
			l.largest = max(l.largest, len(consumed[i].Body))
		}
	}
	return ds, left - (len(ds) - 1), nil
}

// consume receives up to n dead letters through a consumer, which it cancels. It returns fewer if other consumers have
// them.
func (l *DeadLetters) consume(n int) (ds []amqp.Delivery, err error) {
	if err := l.ch.Qos(n, 0, false); err != nil {
		return nil, err
	}
	return l.collect(n)
}

// collect is consume with the current prefetch of the channel.
func (l *DeadLetters) collect(n int) (ds []amqp.Delivery, err error) {
	const autoAck, exclusive, noLocal, noWait = false, false, false, false
	l.consumers++
	tag := fmt.Sprint("letters-", l.consumers) // a new one: the unacknowledged messages of an old one count towards its prefetch
	in, err := l.ch.Consume(l.queue.DeadLetters, tag, autoAck, exclusive, noLocal, noWait, nil)
	if err != nil {
		return nil, err
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for open := true; open && len(ds) < n; {
		select {
		case d, ok := <-in:
			if open = ok; ok {
				ds = append(ds, d)
			}
		case <-late.C:
			open = false
		}
	}
	if err := l.ch.Cancel(tag, noWait); err != nil {
		return nil, err
	}
	for d := range in { // deliveries that were on their way
		ds = append(ds, d)
	}
	l.held += len(ds)
	return ds, nil
}

// patience is how long the broker may be silent while it delivers dead letters, and how long the count of a queue may
// stand still while it takes them back.
const patience = 2 * time.Second

// giveBack returns dead letters to the queue, and waits until they can be received again: the broker takes many back
// one after the other, and the next call would miss the rest. If other consumers receive them at once, the count does
// not show it, so giveBack waits only while more come back.
func (l *DeadLetters) giveBack() error {
	const all, multiple, requeue = 0, true, true
	for _, other := range l.holding {
		if other != l.conn {
			other.hangUp() //nolint:errcheck // the broker takes them back in any case
		}
	}
	l.holding = nil
	if err := l.ch.Nack(all, multiple, requeue); err != nil {
		return fmt.Errorf("rabbitonce: giving back the dead letters: %w", err)
	}
	_, err := l.await(l.held)
	return err
}

// await waits until the queue has want dead letters, or no more of them come back, and returns their number.
func (l *DeadLetters) await(want int) (there int, err error) {
	there = -1
	for still := time.Now(); there < want && time.Since(still) < patience; {
		q, err := l.count(l.ch)
		if err != nil {
			return 0, err
		}
		if q.Messages > there {
			there, still = q.Messages, time.Now()
		}
	}
	return there, nil
}

// count returns the number of dead letters and of consumers.
func (l *DeadLetters) count(ch *amqp.Channel) (amqp.Queue, error) {
	q, err := ch.QueueDeclarePassive(l.queue.DeadLetters, true, false, false, false, nil)
	if err != nil {
		return q, topologyError(l.queue.DeadLetters, "cannot be counted", err)
	}
	return q, nil
}

// deadLetterOf reads a dead letter, which this package published or the broker moved.
func deadLetterOf(d *amqp.Delivery, queue string) consume.DeadLetter {
	m := messageOf(d, queue)
	l := consume.DeadLetter{Message: m, Queue: queue, Replays: countOf(d.Headers, copies.Replays), Death: consume.Death{
		Reason: consume.Reason(stringOf(d.Headers, copies.Reason)), Detail: stringOf(d.Headers, copies.Detail),
		Consumer: stringOf(d.Headers, copies.Consumer), Source: m.Source, KeyHash: stringOf(d.Headers, copies.KeyHash),
		Attempts: countOf(d.Headers, copies.Attempts), First: m.First, Last: timeOf(d.Headers, copies.Last),
	}}
	moved := deaths(d.Headers)
	if len(moved) > 0 { // the broker has moved the original, so that headers with the package's names come from the producer
		l.Queue = moved[0].queue
	} else if q := stringOf(d.Headers, copies.Queue); q != "" {
		l.Queue = q
	}
	if l.Reason == "" && len(moved) > 0 {
		last := moved[0]
		l.Reason, l.Attempts, l.Last = consume.Reason("broker_"+last.reason), m.Retries+1, last.at
		l.Detail = fmt.Sprintf("the broker has moved it out of the queue %q: %s", last.queue, last.reason) // part of the ID: never change it
	}
	l.ID = deadLetterID(&l, d)
	return l
}

// replayCopy returns the message as it was sent, for its queue.
func replayCopy(d *amqp.Delivery) amqp.Publishing {
	msg := original(d)
	delete(msg.Headers, copies.Retries)
	msg.Headers[copies.Replays] = int64(min(countOf(d.Headers, copies.Replays), math.MaxInt32-1) + 1)
	return msg
}
