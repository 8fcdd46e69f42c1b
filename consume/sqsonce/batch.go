package sqsonce

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// HandleBatch handles messages that somebody else has received, who holds them and deletes them, as AWS Lambda does: package
// lambdaonce calls it. It returns the MessageIds of those that must come again. One that is to be retried is hidden for its
// delay before. A dead letter is sent by this consumer, and does not come again. After the first message of a FIFO queue's
// group that must come again, the rest of the group must too, and is not handled.
//
// If ctx has a deadline, the last tenth of the time, or twice DrainTimeout if that is less, is kept: no message is begun then,
// and handlers are ended halfway through. With an error, which is that of [consume.Consumer.Serve], all messages must come again.
// HandleBatch may be called concurrently.
func (c *Consumer) HandleBatch(ctx context.Context, messages []types.Message) (again []string, err error) {
	received := time.Now()
	workers := c.opts.Workers
	if deadline, ok := ctx.Deadline(); ok {
		kept := min(2*workers.DrainTimeout, max(time.Until(deadline)/10, 2))
		workers.DrainTimeout = kept / 2
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-kept))
		defer cancel()
	}
	// With a hand of its own: two calls may have the same message.
	one := &Consumer{client: c.client, queue: c.queue, dead: c.dead, envelope: c.envelope, handler: c.handler, opts: c.opts, hand: newHand(len(messages), maxReceive)}
	var all, readable []*delivery
	for i := range messages {
		d, unread := one.delivery(&messages[i], received)
		d.kept = true
		if all = append(all, d); unread != nil {
			one.buryUnread(ctx, d, unread)
			continue
		}
		readable = append(readable, d)
	}
	s := one.serve(ctx, &workers)
	for _, l := range lines(readable) {
		s.feed(ctx, l)
	}
	err = s.wait()
	for _, d := range all {
		if !d.over {
			again = append(again, *d.raw.MessageId)
		}
	}
	return again, err
}
