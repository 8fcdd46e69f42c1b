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

// A dead letter whose delivery ends the connection is found by taking dead letters one by one after a first loss. AMQP
// cannot skip it: the broker puts it back at the head of the queue. But while it is on its way on another connection,
// which it ends, later ones can be taken. Each try is a delivery of all dead letters that were taken with it. So
// nothing is tried in a queue that may have a delivery limit, which would delete readable dead letters.

// kept are the IDs of dead letters that were seen and remain: after a loss they are at the head of the queue again.
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

// maxLosses is how many connections one call may lose.
const maxLosses = 8

// lost reports whether the connection was lost over the next dead letter.
func (l *DeadLetters) lost(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !l.over.Load() && l.conn.IsClosed() && !errors.Is(err, errUnanswered) && !errors.Is(err, ErrTopology)
}

// reconnect replaces a lost connection.
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

// reclaim receives the dead letters in k again, on a new connection. It returns others that came instead, because the
// broker may not have taken back all of k yet. unseen is the number of others.
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
		l.held = k.n // for giveBack, which waits for them
		return nil, fmt.Errorf("%w: most likely one in the queue %q ends the connection when it is delivered, and the queue may have a delivery limit, which deletes dead letters that are delivered too often "+
			"(remove that dead letter with the broker's own tools, or move all to a queue without a limit): %w", consume.ErrUnreadable, l.queue.DeadLetters, lostError(<-closed))
	}
	if _, err := l.awaitAll(k.n, unseen); err != nil {
		return nil, err
	}
	for rest := k.clone(); rest.n > 0; {
		var ds []amqp.Delivery
		if err := l.conn.within(askTimeout, func() (err error) { ds, err = l.consume(min(rest.n, window)); return err }); err != nil {
			return nil, err
		}
		if len(ds) == 0 { // other consumers have the others
			break
		}
		fresh = append(fresh, l.others(rest, ds)...)
	}
	return fresh, nil
}

// limited reports whether the dead-letter queue may have a delivery limit. The broker does not show it, but refuses a
// declaration with different arguments. A limit that a policy sets is not seen.
func (l *DeadLetters) limited() (limited bool, err error) {
	err = l.conn.within(askTimeout, func() (err error) {
		for _, arguments := range []amqp.Table{unlimited(l.conn), {"x-queue-type": "classic"}} {
			if err = withChannel(l.conn, func(ch *amqp.Channel) error {
				if err := exists(ch, l.queue.DeadLetters); err != nil { // otherwise it would be declared here
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

// awaitAll waits until the broker has taken back the dead letters that were seen, and has those that were not, if
// their number is known.
func (l *DeadLetters) awaitAll(kept, unseen int) (there int, err error) {
	want := math.MaxInt
	if unseen < math.MaxInt-kept {
		want = kept + unseen
	}
	err = l.conn.within(askTimeout, func() (err error) { there, err = l.await(want); return err })
	return there, err
}

// others returns the dead letters that are not in rest, and removes the others from rest.
func (l *DeadLetters) others(rest *kept, ds []amqp.Delivery) (fresh []amqp.Delivery) {
	for i := range ds {
		if id := deadLetterOf(&ds[i], l.queue.Name).ID; rest.ids[id] > 0 {
			rest.ids[id]--
			rest.n--
		} else {
			fresh = append(fresh, ds[i])
		}
	}
	return fresh
}

// maxTries is the number of tries to get past a dead letter.
const maxTries = 8

// passBy takes the dead letters after the one that ends each connection. unreadable says where that is. The broker
// puts it back before later ones, but not always after earlier ones: then it takes several rounds, each of which
// leaves fewer around it.
func (l *DeadLetters) passBy(ctx context.Context, k *kept, unseen int) (ds []amqp.Delivery, unreadable, err error) {
	where := "at its head"
	if k.last != "" {
		where = "behind the dead letter " + k.last
	}
	most := max(room/max(l.largest, 1), 1) // in memory
	rest := k.clone()
	l.held = 0
	ahead := false // whether to take those before it, and not those after it
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

// takeBehind takes n dead letters after the first ones while those end another connection. It asks for no more, so
// that it gets none of the first ones when the broker has them back.
func (l *DeadLetters) takeBehind(ctx context.Context, first, n int, later time.Duration) (ds []amqp.Delivery, err error) {
	decoy, err := l.dialing.dial(ctx, "inspect")
	if err != nil {
		return nil, err
	}
	defer decoy.hangUp() //nolint:errcheck // lost, or to be lost
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
		time.Sleep(later) // so that the broker gets the other request first
		ds, err = l.collect(n)
		return err
	})
	return ds, err
}
