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

// delivery is one unanswered message. It must be acknowledged on the channel that delivered it: on another channel,
// its delivery tag identifies another message.
type delivery struct {
	d     amqp.Delivery
	m     *consume.Message
	queue *Queue
	out   *publisher
}

var _ consume.Delivery = (*delivery)(nil)

// Message implements [consume.Delivery].
func (d *delivery) Message() *consume.Message { return d.m }

// Ack implements [consume.Delivery]. AMQP does not confirm acknowledgements: if one is lost, the broker redelivers.
func (d *delivery) Ack(context.Context) error {
	return answered(d.d.Ack(false))
}

// answered converts the error of an answer on the message's channel.
func answered(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", consume.ErrGone, err)
	}
	return nil
}

// Retry implements [consume.Delivery]. A message that is too large for a copy remains unanswered.
func (d *delivery) Retry(ctx context.Context, after time.Duration, counts bool) error {
	retries := d.m.Retries
	if counts {
		retries++
	}
	delay := copies.DelayFor(d.queue.Delays, after)
	err := d.move(ctx, d.queue.retryQueue(delay), func() amqp.Publishing { return retryCopy(&d.d, d.m, d.queue.Name, retries, time.Now()) })
	if d.rejects(err) {
		return fmt.Errorf("%w: %w", consume.ErrNoCopy, err)
	}
	return err
}

// SetAside implements [consume.Delivery].
func (d *delivery) SetAside(ctx context.Context, letter consume.Death) error {
	err := d.move(ctx, d.queue.DeadLetters, func() amqp.Publishing { return deadLetter(&d.d, d.m, d.queue.Name, &letter) })
	if d.rejects(err) {
		err = answered(d.d.Reject(false))
	}
	return err
}

// rejects reports whether the broker accepts no copy of the message, but moves a rejected message to the dead-letter
// queue. A queue that was not declared here may have no dead-letter exchange: the message would be lost.
func (d *delivery) rejects(err error) bool {
	return errors.Is(err, errTooLarge) && d.queue.Topology == Declare
}

// move publishes a copy to another queue, and acknowledges the message once the copy is confirmed.
func (d *delivery) move(ctx context.Context, queue string, copied func() amqp.Publishing) error {
	err := d.out.publish(ctx, queue, copied())
	if errors.Is(err, errUnroutable) && d.queue.Topology != Check { // it was deleted
		switch undeclared := d.out.declare(ctx, d.queue); {
		case undeclared == nil:
			err = d.out.publish(ctx, queue, copied())
		case errors.Is(undeclared, ErrTopology):
			err = errors.Join(err, undeclared) // the queue still refuses it
		default:
			err = undeclared
		}
	}
	if err != nil {
		return err
	}
	return d.Ack(ctx) // if that fails, the channel is closed, and move is not called again
}
