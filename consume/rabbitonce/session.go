package rabbitonce

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/internal/copies"
)

// session is one connection with its deliveries, until it is lost.
type session struct {
	conn       *link
	ch         *amqp.Channel
	tag        string
	alone      int       // messages still to be taken one by one, see undeliverable
	again      bool      // the previous session was lost over a delivery
	since      time.Time // when it started to consume
	delivered  time.Time // when the last message came or was due; zero if none was
	deliveries <-chan amqp.Delivery
	cancelled  <-chan string
	closed     <-chan *amqp.Error
}

var (
	errCancelled = errors.New("rabbitonce: the broker cancelled the consumer (its queue was deleted or moved)")
	errLost      = errors.New("rabbitonce: connection lost")
)

// connect opens a session.
func (c *Consumer) connect(ctx context.Context) (*session, error) {
	conn, err := c.dialing.dial(ctx, "consume")
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, conn.cut)
	var s *session
	err = conn.within(askTimeout, func() (err error) { s, err = c.begin(conn); return err })
	if !stop() { // this caused any other failure
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, conn.hangUp())
	}
	return s, nil
}

// maxTag is the length of AMQP's longest consumer tag, in bytes.
const maxTag = 255

// begin declares the queues and opens a channel.
func (c *Consumer) begin(conn *link) (*session, error) {
	if err := c.queue.establish(conn); err != nil {
		return nil, err
	}
	ch, err := conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("rabbitonce: opening a channel: %w", err)
	}
	s := &session{
		conn: conn, ch: ch, tag: copies.Cut(c.opts.Name, maxTag), alone: c.alone,
		cancelled: ch.NotifyCancel(make(chan string, 1)),
		closed:    ch.NotifyClose(make(chan *amqp.Error, 1)),
	}
	return s, nil
}

// look records whether messages wait for this session.
func (s *session) look(queue string) error {
	q, err := s.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		return topologyError(queue, "cannot be looked at", err)
	}
	if q.Messages > 0 {
		s.delivered = s.since
	}
	return nil
}

// consume starts to consume, with a prefetch of ahead.
func (s *session) consume(queue string, ahead int) (err error) {
	if err := s.ch.Qos(ahead, 0, false); err != nil {
		return fmt.Errorf("rabbitonce: setting the prefetch: %w", err)
	}
	const autoAck, exclusive, noLocal, noWait = false, false, false, false
	if s.deliveries, err = s.ch.Consume(queue, s.tag, autoAck, exclusive, noLocal, noWait, nil); err != nil {
		return topologyError(queue, "cannot be consumed", err)
	}
	return nil
}

// feed hands over messages until ctx ends, which is no error, or the session is lost. It reports whether the broker
// accepted the consumer.
func (s *session) feed(ctx context.Context, c *Consumer, out chan<- consume.Delivery) (agreed bool, err error) {
	ahead := c.opts.Prefetch
	if s.alone > 0 {
		ahead = 1
	}
	s.since = time.Now()
	if err := s.conn.within(askTimeout, func() error {
		if err := s.look(c.queue.Name); err != nil {
			return err
		}
		return s.consume(c.queue.Name, ahead)
	}); err != nil {
		return false, err
	}
	for {
		select {
		case <-ctx.Done():
			return true, nil
		case d, ok := <-s.deliveries:
			if !ok {
				return true, s.lost()
			}
			s.delivered = time.Now()
			if s.alone > 0 {
				if s.alone--; s.alone == 0 {
					if err := s.conn.within(askTimeout, func() error { return s.widen(c) }); err != nil {
						return true, err
					}
				}
			}
			in := &delivery{d: d, m: messageOf(&d, c.queue.Name), queue: &c.queue, out: c.out}
			select {
			case out <- in:
			case err := <-s.closed: // hand out no message that can no longer be acknowledged
				return true, lostError(err)
			case <-ctx.Done():
				s.giveBack(&d)
				return true, nil
			}
		}
	}
}

// widen raises the prefetch with a new consumer: the old one keeps its prefetch and its unacknowledged message.
func (s *session) widen(c *Consumer) error {
	if err := s.ch.Cancel(s.tag, false); err != nil {
		return err
	}
	for d := range s.deliveries {
		s.giveBack(&d)
	}
	s.tag = copies.Cut("ahead "+s.tag, maxTag)
	return s.consume(c.queue.Name, c.opts.Prefetch)
}

// lost returns why the session ended.
func (s *session) lost() error {
	select {
	case _, ok := <-s.cancelled:
		if ok {
			return errCancelled
		}
	default:
	}
	select {
	case err := <-s.closed:
		return lostError(err)
	default:
		return errLost
	}
}

// lostError returns an error that wraps errLost.
func lostError(err *amqp.Error) error {
	if err == nil {
		return errLost
	}
	return fmt.Errorf("%w: %w", errLost, err)
}

// leave cancels the consumer and gives back prefetched messages, so that they need not wait for running handlers.
func (s *session) leave() {
	if err := s.conn.within(askTimeout, func() error { return s.ch.Cancel(s.tag, false) }); err != nil {
		return // the broker then redelivers them
	}
	for d := range s.deliveries {
		s.giveBack(&d)
	}
}

func (s *session) giveBack(d *amqp.Delivery) {
	d.Nack(false, true) //nolint:errcheck // if that fails, the channel is closed, which gives the message back
}
