package natsonce

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce/consume"
)

// delivery is one message in hand.
type delivery struct {
	c     *Consumer
	from  *established
	msg   jetstream.Msg
	at    *jetstream.MsgMetadata
	count count
	m     *consume.Message
	rest  func() // ends the heartbeat
}

var _ consume.Delivery = (*delivery)(nil)

// Message implements [consume.Delivery].
func (d *delivery) Message() *consume.Message { return d.m }

// Ack implements [consume.Delivery]. The server confirms an acknowledgement also of a message that was acknowledged by another.
func (d *delivery) Ack(ctx context.Context) error {
	return d.answer(ctx, "+ACK")
}

// Retry implements [consume.Delivery]. The message stays where it is, so none is too large.
func (d *delivery) Retry(ctx context.Context, after time.Duration, counts bool) error {
	c := count{d.count.retries, int(d.at.NumDelivered)} //nolint:gosec // it is a count of deliveries
	if counts {
		c.retries++
	}
	if err := d.c.mended(ctx, func() error { return c.write(ctx, d.from.counts, d.at) }); err != nil {
		return err
	}
	d.rest() // a heartbeat after the answer would put the delivery off
	return d.answer(ctx, fmt.Sprintf(`-NAK {"delay": %d}`, max(after, time.Millisecond)))
}

// Bury implements [consume.Delivery]. A copy that is stored again, after a crash in between, is the same letter.
func (d *delivery) Bury(ctx context.Context, letter consume.DeadLetter) error {
	q := &d.c.queue
	err := d.c.mended(ctx, func() error {
		msg := deadLetter(d, &letter, d.c.conn.MaxPayload())
		msg.Subject = q.letters()
		_, err := d.c.conn.js.PublishMsg(ctx, msg, jetstream.WithMsgID(nameOf(d.at)), jetstream.WithExpectStream(q.DeadLetters))
		return err
	})
	if _, ok := errors.AsType[*jetstream.APIError](err); ok || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrMaxPayload) {
		return fmt.Errorf("%w: the stream of dead letters %q: %w", consume.ErrRefused, q.DeadLetters, err)
	}
	if err != nil {
		return err
	}
	return d.Ack(ctx)
}

// answer gives the server its answer, and returns when it has it.
func (d *delivery) answer(ctx context.Context, answer string) error {
	half := ctx
	if deadline, ok := ctx.Deadline(); ok { // the other half is for finding out why there is no word
		var cancel context.CancelFunc
		half, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	_, err := d.c.conn.RequestWithContext(half, d.msg.Reply(), []byte(answer))
	if err != nil && d.gone(ctx) {
		err = fmt.Errorf("%w: the durable consumer was deleted: %w", consume.ErrGone, err)
	}
	if err == nil || errors.Is(err, consume.ErrGone) {
		d.c.hand.leave(d)
		return err
	}
	return err
}

// gone reports whether the consumer of this delivery is no more. To another one of the same name its answer would mean nothing.
func (d *delivery) gone(ctx context.Context) bool {
	info, err := d.from.consumer.Info(ctx)
	if err != nil {
		return errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)
	}
	return !info.Created.Equal(d.from.created)
}

// giveBack has the message delivered again at once. Where that is lost, it is after AckWait.
func (d *delivery) giveBack() {
	d.c.hand.leave(d)
	d.msg.Nak() //nolint:errcheck // see above
}
