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

// delivery is one unanswered message.
type delivery struct {
	c     *Consumer
	raw   types.Message
	m     *consume.Message
	note  note
	group string // messages of one group are handled in order; empty without an order
	// kept is set if the caller of HandleBatch received the message, and hides and deletes it.
	kept bool
	sent bool // sent as a dead letter, and only to be deleted

	mu       sync.Mutex
	handle   string    // of the latest receipt: SQS may accept an older one and delete nothing
	received time.Time // before the request for that receipt

	beating func() // stops the heartbeat
	done    sync.Once
	answer  chan bool // whether it was acknowledged or set aside; one value
	over    bool      // the same, valid after the end
}

var _ consume.Delivery = (*delivery)(nil)

// Message implements [consume.Delivery].
func (d *delivery) Message() *consume.Message { return d.m }

// receipt returns the latest handle, and how long SQS still lets the consumer hide the message.
func (d *delivery) receipt() (handle string, left time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.handle, maxInHand - margin/2 - time.Since(d.received)
}

// again records a later receipt of the message, which was hidden for too short a time.
func (d *delivery) again(handle string, received time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handle, d.received = handle, received
}

// beat keeps the message hidden. It continues after errors, because the message may get another receipt handle.
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

// hide makes the message visible after a time, or when SQS would take it back. It returns the receipt handle that it
// used.
func (d *delivery) hide(ctx context.Context, after time.Duration) (handle string, err error) {
	handle, left := d.receipt()
	seconds := int32(math.Ceil(max(min(after, left), 0).Seconds()))
	_, err = d.c.client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{QueueUrl: &d.c.queue.url, ReceiptHandle: &handle, VisibilityTimeout: seconds})
	if denied(err) { // the message comes again when its visibility ends
		return handle, fmt.Errorf("%w: %w", consume.ErrGone, err)
	}
	return handle, goneError(err)
}

// leave makes the message visible after a time, and ends it here. If SQS has delivered it again before this was done,
// it is hidden by a receipt that no worker has; then leave gives up that receipt too.
func (d *delivery) leave(ctx context.Context, after time.Duration) error {
	d.beating() // a heartbeat would hide the message again
	for {
		handle, err := d.hide(ctx, after)
		if err != nil && !errors.Is(err, consume.ErrGone) {
			return err
		}
		if d.c.inflight.dropIf(d, handle) {
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
		if err = goneError(err); err != nil {
			if errors.Is(err, consume.ErrGone) {
				d.end(false)
			}
			return err
		}
	}
	d.end(true)
	return nil
}

// Retry implements [consume.Delivery]. It ignores counts, because SQS counts every receipt.
func (d *delivery) Retry(ctx context.Context, after time.Duration, _ bool) error {
	return d.leave(ctx, after)
}

// SetAside implements [consume.Delivery]. If the deletion fails, Serve calls it again: it does not send the dead
// letter twice then.
func (d *delivery) SetAside(ctx context.Context, letter consume.Death) error {
	if d.sent {
		return d.Ack(ctx)
	}
	in, err := deadLetterFor(d, &letter)
	if err == nil {
		_, err = d.c.client.SendMessage(ctx, in)
	}
	switch {
	case err == nil:
		d.sent = true
		return d.Ack(ctx)
	case noQueue(err), errors.Is(err, errTooLarge), refusesMessage(err), denied(err): // it comes again later, without blocking others
		return fmt.Errorf("%w: %w", consume.ErrRefused, err)
	}
	return fmt.Errorf("sqsonce: sending a dead letter: %w", err)
}

// end is called when the message is answered, or left to others.
func (d *delivery) end(finished bool) {
	d.done.Do(func() {
		d.beating()
		d.c.inflight.drop(d)
		d.over = finished
		d.answer <- finished
	})
}

// goneError wraps err with [consume.ErrGone] if the message can no longer be answered, because its receipt has expired
// or it was deleted.
func goneError(err error) error {
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

// refusesMessage reports whether SQS would always refuse the message.
func refusesMessage(err error) bool {
	switch code(err) {
	case "InvalidMessageContents", "InvalidParameterValue", "InvalidAttributeValue":
		return true
	}
	return false
}
