package sqsonce

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/internal/heartbeat"
)

// delivery is one message in hand.
type delivery struct {
	c     *Consumer
	raw   types.Message
	m     *consume.Message
	note  note
	group string // those with the same one are handled in their order; empty without an order
	// kept is set where somebody else has received the message, and deletes it and holds it.
	kept bool
	sent bool // as a dead letter: it is only to be deleted

	mu       sync.Mutex
	handle   string    // of the latest receipt: an older one may delete nothing, and says that it did
	received time.Time // before it was asked for then

	beating func() // stops the heartbeat
	done    sync.Once
	answer  chan bool // whether it was acknowledged or buried; one value
	over    bool      // the same, to be read when all has ended
}

var _ consume.Delivery = (*delivery)(nil)

// Message implements [consume.Delivery].
func (d *delivery) Message() *consume.Message { return d.m }

// receipt returns the latest handle, and how long the message may still be hidden.
func (d *delivery) receipt() (handle string, left time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.handle, maxInHand - margin/2 - time.Since(d.received)
}

// again takes note of a later receipt of the message: it was hidden for too short a time.
func (d *delivery) again(handle string, received time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handle, d.received = handle, received
}

// beat keeps the message hidden. What goes wrong is no reason to stop: it may come again, with another handle.
func (d *delivery) beat(every time.Duration) {
	d.beating = heartbeat.Start(every, func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, every)
		defer cancel()
		if _, err := d.hide(ctx, d.c.opts.Visibility); err != nil && ctx.Err() == nil {
			d.c.opts.Workers.Log.WarnContext(ctx, "sqsonce: the visibility of a message was not extended", "consumer", d.c.handler.Name(), "queue", d.c.queue.name, "error", err)
		}
		return true
	})
}

// hide has the message come again after a time, or when SQS would take it back. It returns the receipt by which it did.
func (d *delivery) hide(ctx context.Context, after time.Duration) (handle string, err error) {
	handle, left := d.receipt()
	seconds := int32(math.Ceil(max(min(after, left), 0).Seconds()))
	_, err = d.c.client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{QueueUrl: &d.c.queue.url, ReceiptHandle: &handle, VisibilityTimeout: seconds})
	if denied(err) { // it comes again all the same, when its visibility ends
		return handle, fmt.Errorf("%w: %w", consume.ErrGone, err)
	}
	return handle, gone(err)
}

// leave has the message come again after a time, and ends it here. Where it has come again already, before this was over, it would be
// hidden by a receipt that nobody works on: then that one is given up too.
func (d *delivery) leave(ctx context.Context, after time.Duration) error {
	d.beating() // it would hide the message for another time
	for {
		handle, err := d.hide(ctx, after)
		if err != nil && !errors.Is(err, consume.ErrGone) {
			return err
		}
		if d.c.hand.dropIf(d, handle) {
			d.end(false)
			return err
		}
	}
}

// Ack implements [consume.Delivery].
func (d *delivery) Ack(ctx context.Context) error {
	if !d.kept {
		handle, _ := d.receipt()
		_, err := d.c.client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &d.c.queue.url, ReceiptHandle: &handle})
		if err = gone(err); err != nil {
			if errors.Is(err, consume.ErrGone) {
				d.end(false)
			}
			return err
		}
	}
	d.end(true)
	return nil
}

// Retry implements [consume.Delivery]. SQS counts every receipt, so counts is of no use.
func (d *delivery) Retry(ctx context.Context, after time.Duration, _ bool) error {
	return d.leave(ctx, after)
}

// SetAside implements [consume.Delivery]. Where the deletion fails, Serve calls it again: the letter is not sent twice for that.
func (d *delivery) SetAside(ctx context.Context, letter consume.Death) error {
	if d.sent {
		return d.Ack(ctx)
	}
	in, err := letterFor(d, &letter)
	if err == nil {
		_, err = d.c.client.SendMessage(ctx, in)
	}
	switch {
	case err == nil:
		d.sent = true
		return d.Ack(ctx)
	case noQueue(err), errors.Is(err, errTooLarge), refusesMessage(err), denied(err): // it comes again later, and holds up nobody
		return fmt.Errorf("%w: %w", consume.ErrRefused, err)
	}
	return fmt.Errorf("sqsonce: sending a dead letter: %w", err)
}

// end is called when the message is answered, or left to others.
func (d *delivery) end(finished bool) {
	d.done.Do(func() {
		d.beating()
		d.c.hand.drop(d)
		d.over = finished
		d.answer <- finished
	})
}

// gone says of an error whether the message can be answered no more: its receipt has expired, or it was deleted.
func gone(err error) error {
	switch {
	case err == nil:
		return nil
	case noQueue(err):
		return fmt.Errorf("%w: %w", consume.ErrGone, err)
	}
	switch c := code(err); {
	case strings.Contains(c, "ReceiptHandleIsInvalid"), strings.Contains(c, "MessageNotInflight"), c == "InvalidParameterValue":
		return fmt.Errorf("%w: %w", consume.ErrGone, err)
	}
	return err
}

// denied reports whether the caller may not use a queue, or the key that encrypts it.
func denied(err error) bool {
	c := strings.ToLower(code(err))
	return strings.HasPrefix(c, "accessdenied") || strings.HasPrefix(c, "kms") && !strings.Contains(c, "throttl")
}

// refusesMessage reports whether SQS would refuse a message whenever it came.
func refusesMessage(err error) bool {
	switch code(err) {
	case "InvalidMessageContents", "InvalidParameterValue", "InvalidAttributeValue":
		return true
	}
	return false
}
