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
	if err := d.mended(ctx, func() error { return c.write(ctx, d.from.counts, d.at) }); err != nil {
		return err
	}
	d.rest() // a heartbeat after the answer would put the delivery off
	return d.answer(ctx, fmt.Sprintf(`-NAK {"delay": %d}`, max(after, time.Millisecond)))
}

// SetAside implements [consume.Delivery]. A copy that is stored again, after a crash in between, is the same letter.
func (d *delivery) SetAside(ctx context.Context, letter consume.Death) error {
	q := &d.c.queue
	err := d.mended(ctx, func() error {
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

// answeredWithin is how long an answer waits to be confirmed.
const answeredWithin = 5 * time.Second

// answer gives the server its answer, and returns when it has it. A server says nothing to an answer that it does not understand: after a crash,
// its consumer may be behind what it has delivered, and a consumer that was made anew knows of no delivery. Then the message comes again: to keep
// it in hand, and with it a worker, would keep the consumer from getting there.
func (d *delivery) answer(ctx context.Context, answer string) error {
	ctx, cancel := context.WithTimeout(ctx, answeredWithin)
	defer cancel()
	_, err := d.c.conn.RequestWithContext(ctx, d.msg.Reply(), []byte(answer))
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders) {
		err = fmt.Errorf("%w: the server does not confirm the answer: %w", consume.ErrGone, err)
	}
	if err == nil || errors.Is(err, consume.ErrGone) {
		d.c.hand.leave(d)
	}
	return err
}

// giveBack has the message delivered again at once. Where that is lost, it is after AckWait.
func (d *delivery) giveBack() {
	d.c.hand.leave(d)
	d.msg.Nak() //nolint:errcheck // see above
}
