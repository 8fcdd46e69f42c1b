package e2e

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
)

// rabbit is RabbitMQ.
type rabbit struct {
	spec *messageSpec
	conn *brokerConn // the publisher's
	ch   *amqp.Channel
}

func newRabbit(spec *messageSpec) broker { return &rabbit{spec: spec} }

// rabbitQueue is the queue of a way.
func rabbitQueue(s *messageSpec, way string) rabbitonce.Queue {
	return rabbitonce.Queue{Name: s.Queues + "." + way, Delays: []time.Duration{200 * time.Millisecond, time.Second}}
}

func (r *rabbit) consumer(ctx context.Context, way string, h *consume.Consumer, workers consume.Workers) (runner, error) {
	return rabbitonce.Dial(ctx, r.spec.byLine(), rabbitQueue(r.spec, way), h, &rabbitonce.Options{
		Workers: workers, Heartbeat: time.Second, Backoff: consume.Backoff{Min: 50 * time.Millisecond, Max: time.Second},
	})
}

func (r *rabbit) letters(ctx context.Context, way string) (consume.DeadLetters, error) {
	return rabbitonce.DialDeadLetters(ctx, r.spec.Broker, rabbitQueue(r.spec, way), nil)
}

func (r *rabbit) declare(ctx context.Context, ways []string) error {
	nobody, err := consume.NewNatural(consume.NaturalSpec[operation]{
		Consumer: "none", Key: consume.ProducerID(),
		Handle: func(context.Context, *consume.Message, operation) (bool, error) { return false, nil },
	})
	if err != nil {
		return err
	}
	for _, way := range ways {
		c, err := rabbitonce.Dial(ctx, r.spec.Broker, rabbitQueue(r.spec, way), nobody, nil)
		if err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (r *rabbit) remove(_ context.Context, ways []string) error {
	return r.asking(func(ch *amqp.Channel) error {
		for _, q := range r.queues(ways) {
			if _, err := ch.QueueDelete(q, false, false, false); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *rabbit) waiting(ways []string) (counts map[string]int, err error) {
	counts = map[string]int{}
	return counts, r.asking(func(ch *amqp.Channel) error {
		for _, name := range r.queues(ways) {
			q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			if err != nil {
				return err
			}
			if q.Messages > 0 {
				counts[strings.TrimPrefix(name, r.spec.Queues+".")] = q.Messages
			}
		}
		return nil
	})
}

// queues are the names of all queues of ways.
func (r *rabbit) queues(ways []string) (names []string) {
	for _, way := range ways {
		q := rabbitQueue(r.spec, way)
		names = append(names, q.Name, q.Name+".dead")
		for _, d := range q.Delays {
			names = append(names, q.Name+".retry."+d.String())
		}
	}
	return names
}

func (r *rabbit) asking(ask func(*amqp.Channel) error) error {
	conn, err := dialBroker(r.spec.Broker)
	if err != nil {
		return err
	}
	defer conn.cut()
	defer conn.bound()()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return ask(ch)
}

func (r *rabbit) publish(way string, ops []int) (left []int, err error) {
	if r.conn == nil {
		if err := r.connect(); err != nil {
			return ops, err
		}
	}
	defer r.conn.bound()()
	var confirms []*amqp.DeferredConfirmation
	for _, op := range ops {
		id, body := message(op)
		c, err := r.ch.PublishWithDeferredConfirm("", rabbitQueue(r.spec, way).Name, false, false,
			amqp.Publishing{MessageId: id, ContentType: "application/json", DeliveryMode: amqp.Persistent, Body: body})
		if err != nil {
			break // and so will the confirms that are missing
		}
		confirms = append(confirms, c)
	}
	for i, op := range ops {
		if i >= len(confirms) || !confirmed(confirms[i]) {
			left = append(left, op)
		}
	}
	if len(left) > 0 {
		return left, fmt.Errorf("%d messages were not confirmed", len(left))
	}
	return nil, nil
}

// confirmed waits for the broker's word, or the end of the connection: the library says no then.
func confirmed(c *amqp.DeferredConfirmation) bool {
	select {
	case <-c.Done():
		return c.Acked()
	case <-time.After(2 * brokerTimeout): // not known to happen: the connection is ended before
		return false
	}
}

func (r *rabbit) connect() error {
	conn, err := dialBroker(r.spec.Broker)
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
	r.conn, r.ch = conn, ch
	return nil
}

func (r *rabbit) cut() {
	if r.conn != nil {
		r.conn.cut()
		r.conn = nil
	}
}

// brokerConn is a connection that can be ended although the broker does not answer: the client asks without a bound.
type brokerConn struct {
	*amqp.Connection
	raw net.Conn
}

const brokerTimeout = 10 * time.Second

func dialBroker(broker string) (*brokerConn, error) {
	c := &brokerConn{}
	dial := amqp.DefaultDial(brokerTimeout)
	var err error
	c.Connection, err = amqp.DialConfig(broker, amqp.Config{Heartbeat: 2 * time.Second, Dial: func(network, addr string) (net.Conn, error) {
		var err error
		c.raw, err = dial(network, addr)
		return c.raw, err
	}})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// cut ends it without a word, and what waits for an answer fails.
func (c *brokerConn) cut() { _ = c.raw.Close() } //nolint:errcheck // it may be closed already

// bound ends it when what is asked takes too long; answered says that it did not.
func (c *brokerConn) bound() (answered func()) {
	t := time.AfterFunc(brokerTimeout, c.cut)
	return func() { t.Stop() }
}
