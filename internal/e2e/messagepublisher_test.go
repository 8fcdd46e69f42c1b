package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// publisher sends the stream: each message, and a second time where the draw says so; and again whatever the broker has not
// confirmed, as a producer must.
type publisher struct {
	spec        messageSpec
	order       []int                  // messages, in the order of their sending
	sent        map[string]map[int]int // how often, by queue
	unconfirmed int
	conn        *brokerConn
	ch          *amqp.Channel
}

// publisherAhead is how many messages may be sent and not received: few, so that it too is at work when the broker is
// killed.
const publisherAhead = 60

func newPublisher(spec messageSpec, rng *rand.Rand, messages int) *publisher {
	p := &publisher{spec: spec, sent: map[string]map[int]int{}}
	for _, way := range messageWays {
		p.sent[spec.queue(way).Name] = map[int]int{}
	}
	// One in ten comes again, up to forty messages later.
	again := map[int][]int{}
	for op := range messages {
		p.order = append(p.order, again[op]...)
		p.order = append(p.order, op)
		if rng.IntN(10) == 0 {
			at := min(op+1+rng.IntN(40), messages)
			again[at] = append(again[at], op)
		}
	}
	p.order = append(p.order, again[messages]...)
	return p
}

// run publishes all, never far ahead of the consumers.
func (p *publisher) run(ctx context.Context, r *referee) error {
	const batch = 20
	for begin := 0; begin < len(p.order); begin += batch {
		ops := p.order[begin:min(begin+batch, len(p.order))]
		if err := r.wait(ctx, func() bool { return ops[0] <= min(r.limit, r.progress()+publisherAhead) }); err != nil {
			return err
		}
		for _, way := range messageWays {
			if err := p.publish(ctx, p.spec.queue(way).Name, ops); err != nil {
				return err
			}
		}
	}
	if p.conn != nil {
		p.conn.cut()
	}
	return nil
}

// publish returns when the broker has confirmed all.
func (p *publisher) publish(ctx context.Context, queue string, ops []int) error {
	for {
		left, err := p.try(queue, ops)
		if err == nil {
			return nil
		}
		ops = left
		if p.conn != nil {
			p.conn.cut()
			p.conn = nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("publishing to %s: %w: %w", queue, context.Cause(ctx), err)
		}
	}
}

// try publishes, and returns what was not confirmed.
func (p *publisher) try(queue string, ops []int) (left []int, err error) {
	if p.conn == nil {
		if err := p.connect(); err != nil {
			return ops, err
		}
	}
	defer p.conn.bound()()
	var confirms []*amqp.DeferredConfirmation
	for _, op := range ops {
		msg := amqp.Publishing{
			MessageId: "op-" + strconv.Itoa(op), ContentType: "application/json", DeliveryMode: amqp.Persistent,
			Body: fmt.Appendf(nil, `{"op":%d}`, op),
		}
		p.sent[queue][op]++
		c, err := p.ch.PublishWithDeferredConfirm("", queue, false, false, msg)
		if err != nil {
			break // and so will the confirms that are missing
		}
		confirms = append(confirms, c)
	}
	for i, op := range ops {
		if i >= len(confirms) || !p.confirmed(confirms[i]) {
			left = append(left, op)
		}
	}
	if len(left) > 0 {
		p.unconfirmed += len(left)
		return left, fmt.Errorf("%d messages were not confirmed", len(left))
	}
	return nil, nil
}

// confirmed waits for the broker's word, or the end of the connection: the library says no then.
func (p *publisher) confirmed(c *amqp.DeferredConfirmation) bool {
	select {
	case <-c.Done():
		return c.Acked()
	case <-time.After(2 * brokerWithin): // not known to happen: the connection is ended before
		return false
	}
}

func (p *publisher) connect() error {
	conn, err := dialBroker(p.spec.Broker)
	if err != nil {
		return err
	}
	defer conn.bound()()
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		conn.cut()
		return err
	}
	p.conn, p.ch = conn, ch
	return nil
}
