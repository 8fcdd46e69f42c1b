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

// delivery is one unanswered message.
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

// Ack implements [consume.Delivery]. The server confirms an acknowledgement even if another consumer has acknowledged
// the message.
func (d *delivery) Ack(ctx context.Context) error {
	return d.answer(ctx, "+ACK")
}

// Retry implements [consume.Delivery]. The message remains in the stream, so it is never too large for a retry.
func (d *delivery) Retry(ctx context.Context, after time.Duration, counts bool) error {
	c := count{d.count.retries, int(d.at.NumDelivered)} //nolint:gosec // it is a count of deliveries
	if counts {
		c.retries++
	}
	if err := d.mended(ctx, func() error { return c.write(ctx, d.from.counts, d.at) }); err != nil {
		return err
	}
	d.rest() // a heartbeat after the answer would delay the next delivery
	return d.answer(ctx, fmt.Sprintf(`-NAK {"delay": %d}`, max(after, time.Millisecond)))
}

// SetAside implements [consume.Delivery]. A copy that is stored twice, after a crash in between, is one dead letter.
func (d *delivery) SetAside(ctx context.Context, letter consume.Death) error {
	q := &d.c.queue
	err := d.mended(ctx, func() error {
		msg := deadLetter(d, &letter, d.c.conn.MaxPayload())
		msg.Subject = q.deadLetterSubject()
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

// answeredWithin is how long an answer waits for its confirmation.
const answeredWithin = 5 * time.Second

// answer sends an answer and waits for its confirmation. The server confirms no answer to a delivery that it does not
// know: after a crash its consumer may be behind what it has delivered, and a consumer that was created anew knows no
// delivery. The message is then redelivered. To retry the answer would block a worker, and the consumer might not get
// to the redelivery.
func (d *delivery) answer(ctx context.Context, answer string) error {
	ctx, cancel := context.WithTimeout(ctx, answeredWithin)
	defer cancel()
	_, err := d.c.conn.RequestWithContext(ctx, d.msg.Reply(), []byte(answer))
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders) {
		err = fmt.Errorf("%w: the server does not confirm the answer: %w", consume.ErrGone, err)
	}
	if err == nil || errors.Is(err, consume.ErrGone) {
		d.c.unanswered.remove(d)
	}
	return err
}

// giveBack asks the server to redeliver the message at once. If the request is lost, it redelivers after AckWait.
func (d *delivery) giveBack() {
	d.c.unanswered.remove(d)
	d.msg.Nak() //nolint:errcheck // see above
}
