package rabbitonce

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/consume"
)

// A letter whose delivery ends the connection is found by taking letters one by one after a first loss. AMQP has no way to skip it: the
// broker puts it back to the head of the queue. But while it is on its way by another connection, which it ends, those behind it can be
// taken. Each try is a delivery of all letters that were taken with it, so nothing is tried in a queue that may have a delivery limit: it would
// delete readable letters.

// kept are the letters that were looked at and stay, by their IDs: after a loss they are at the head of the queue again.
type kept struct {
	ids  map[string]int
	n    int
	last string
}

func (k *kept) add(id string) {
	k.ids[id]++
	k.n++
	k.last = id
}

func (k *kept) clone() *kept { return &kept{maps.Clone(k.ids), k.n, k.last} }

// maxLosses is how many connections one look may lose.
const maxLosses = 8

// lost reports whether the connection was lost over what was to be taken.
func (l *DeadLetters) lost(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !l.over.Load() && l.conn.IsClosed() && !errors.Is(err, errUnanswered) && !errors.Is(err, ErrTopology)
}

// reconnect makes a new connection in place of one that was lost.
func (l *DeadLetters) reconnect(ctx context.Context) error {
	conn, err := l.dialing.dial(ctx, "inspect")
	if err != nil {
		return err
	}
	l.unwatch()
	l.conn = conn
	l.closed = conn.NotifyClose(make(chan *amqp.Error, 1))
	l.unwatch = context.AfterFunc(ctx, conn.cut)
	if l.over.Load() {
		return errors.Join(amqp.ErrClosed, conn.hangUp())
	}
	return conn.within(askTimeout, func() (err error) {
		if l.ch, err = conn.Channel(); err != nil {
			return fmt.Errorf("rabbitonce: opening a channel: %w", err)
		}
		return nil
	})
}

// reclaim takes in hand again what was kept, by a new connection. It returns other letters that came instead: the broker may not have back
// all of them yet. unseen is how many others there are.
func (l *DeadLetters) reclaim(ctx context.Context, k *kept, unseen int) (fresh []amqp.Delivery, err error) {
	closed := l.closed
	if err := l.reconnect(ctx); err != nil {
		return nil, err
	}
	l.held = 0
	switch limited, err := l.limited(); {
	case err != nil:
		return nil, err
	case limited:
		l.held = k.n // which giveBack waits for
		return nil, fmt.Errorf("%w: most likely one in the queue %q ends the connection when it is delivered, and the queue may have a delivery limit, which deletes letters that are delivered too often "+
			"(remove that letter with the broker's own tools, or move all to a queue without a limit): %w", consume.ErrUnreadable, l.queue.DeadLetters, gone(<-closed))
	}
	if _, err := l.awaitAll(k.n, unseen); err != nil {
		return nil, err
	}
	for rest := k.clone(); rest.n > 0; {
		var ds []amqp.Delivery
		if err := l.conn.within(askTimeout, func() (err error) { ds, err = l.consume(min(rest.n, window)); return err }); err != nil {
			return nil, err
		}
		if len(ds) == 0 { // somebody else has the others
			break
		}
		fresh = append(fresh, l.others(rest, ds)...)
	}
	return fresh, nil
}

// limited reports whether the dead-letter queue may have a delivery limit. The broker does not show it, but refuses to declare a queue anew that
// has other arguments. A policy stays unseen.
func (l *DeadLetters) limited() (limited bool, err error) {
	err = l.conn.within(askTimeout, func() (err error) {
		for _, arguments := range []amqp.Table{unlimited(l.conn), {"x-queue-type": "classic"}} {
			if err = withChannel(l.conn, func(ch *amqp.Channel) error {
				if err := exists(ch, l.queue.DeadLetters); err != nil { // or it would be made here
					return err
				}
				return declared(ch, l.queue.DeadLetters, arguments)
			}); !errors.Is(err, ErrTopology) {
				return err
			}
		}
		return err
	})
	if errors.Is(err, ErrTopology) {
		return true, nil
	}
	return false, err
}

// awaitAll waits until the broker has back the letters that were kept, and those that were not seen yet, if their number is known.
func (l *DeadLetters) awaitAll(kept, unseen int) (there int, err error) {
	want := math.MaxInt
	if unseen < math.MaxInt-kept {
		want = kept + unseen
	}
	err = l.conn.within(askTimeout, func() (err error) { there, err = l.await(want); return err })
	return there, err
}

// others returns the letters that are not among those that were kept, and takes the others out of rest.
func (l *DeadLetters) others(rest *kept, ds []amqp.Delivery) (fresh []amqp.Delivery) {
	for i := range ds {
		if id := letterOf(&ds[i], l.queue.Name).ID; rest.ids[id] > 0 {
			rest.ids[id]--
			rest.n--
		} else {
			fresh = append(fresh, ds[i])
		}
	}
	return fresh
}

// maxTries is how often it is tried to get past a letter.
const maxTries = 8

// passBy takes the letters behind the one that ends each connection. unreadable says where that is. The broker puts it back before those
// behind it, but not always behind those that were before it: then it takes several rounds, each of which leaves fewer letters beside it.
func (l *DeadLetters) passBy(ctx context.Context, k *kept, unseen int) (ds []amqp.Delivery, unreadable, err error) {
	where := "at its head"
	if k.last != "" {
		where = "behind the letter " + k.last
	}
	most := max(room/max(l.largest, 1), 1) // in memory
	rest := k.clone()
	l.held = 0
	ahead := false // whether those at the head are taken, and not those behind
	for try := range maxTries {
		if err := l.reconnect(ctx); err != nil {
			return nil, nil, err
		}
		there, err := l.awaitAll(rest.n, unseen)
		if err != nil {
			return nil, nil, err
		}
		before := rest.n
		if unseen = there - rest.n; unseen <= 1 {
			break
		}
		if try > 0 {
			before = min(there/2, there-2)
		}
		var more []amqp.Delivery
		if ahead {
			err = l.conn.within(askTimeout, func() (err error) { more, err = l.consume(min(there-before-1, most)); return err })
		} else {
			more, err = l.takeBehind(ctx, before+1, min(there-before-1, most), time.Duration(try)*500*time.Microsecond)
		}
		if l.lost(ctx, err) {
			ahead = !ahead
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		l.holding = append(l.holding, l.conn)
		fresh := l.others(rest, more)
		ds, unseen = append(ds, fresh...), unseen-len(fresh)
	}
	if l.conn.IsClosed() {
		if err := l.reconnect(ctx); err != nil {
			return nil, nil, err
		}
	}
	return ds, fmt.Errorf("%w: one in the queue %q, %s, ends the connection when it is delivered, and %d others were not seen (remove it with the broker's own tools)",
		consume.ErrUnreadable, l.queue.DeadLetters, where, max(unseen-1, 0)), nil
}

// takeBehind takes n letters behind the first ones while those end another connection. With as many as it asks for in hand, it gets none of
// those when the broker has them back.
func (l *DeadLetters) takeBehind(ctx context.Context, first, n int, later time.Duration) (ds []amqp.Delivery, err error) {
	decoy, err := l.dialing.dial(ctx, "inspect")
	if err != nil {
		return nil, err
	}
	defer decoy.hangUp() //nolint:errcheck // it is lost, or to be
	err = l.conn.within(askTimeout, func() error {
		ch, err := decoy.Channel()
		if err != nil {
			return err
		}
		if err := errors.Join(ch.Qos(first, 0, false), l.ch.Qos(n, 0, false)); err != nil {
			return err
		}
		const autoAck, exclusive, noLocal, noWait = false, false, false, true
		if _, err := ch.Consume(l.queue.DeadLetters, "before", autoAck, exclusive, noLocal, noWait, nil); err != nil {
			return err
		}
		time.Sleep(later) // the broker is to hear that first
		ds, err = l.collect(n)
		return err
	})
	return ds, err
}
