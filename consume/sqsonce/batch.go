package sqsonce

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// HandleBatch handles messages that its caller received, hides and deletes, as AWS Lambda does: package lambdaonce
// calls it. It returns the MessageIds of the messages that must come again. A message that is to be retried is hidden
// for its delay. The consumer sends dead letters itself; they do not come again. After the first message of a FIFO
// queue's group that must come again, the rest of the group must too, and is not handled.
//
// If ctx has a deadline, the last tenth of the time, or twice DrainTimeout if that is less, is reserved: no message is
// started then, and handlers end halfway through. The error is the error of [consume.Consumer.Serve]; after an error,
// all messages must come again. HandleBatch may be called concurrently.
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
	// A separate inflight set, because two calls may have the same message.
	one := &Consumer{client: c.client, queue: c.queue, dead: c.dead, envelope: c.envelope, handler: c.handler, opts: c.opts, inflight: newInflight(len(messages), maxReceive)}
	var all, readable []*delivery
	for i := range messages {
		d, unread := one.delivery(&messages[i], received)
		d.kept = true
		if all = append(all, d); unread != nil {
			one.setAsideUnread(ctx, d, unread)
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
