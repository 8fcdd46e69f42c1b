package kafkaonce

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/internal/copies"
)

// delivery is one message in hand. Its answers are local: what they finish, the partition commits.
type delivery struct {
	r *kgo.Record
	m *consume.Message
	p *partition

	finished bool             // under the partition's lock, as is
	noted    *kgo.EpochOffset // what its latest transaction wrote into the table of offsets
	copied   *produced        // the copy that an earlier call has sent, and whose fate it did not learn
}

var _ consume.Delivery = (*delivery)(nil)

// Message implements [consume.Delivery].
func (d *delivery) Message() *consume.Message { return d.m }

// next is the offset behind it.
func (d *delivery) next() kgo.EpochOffset {
	return kgo.EpochOffset{Epoch: d.r.LeaderEpoch, Offset: d.r.Offset + 1}
}

// Ack implements [consume.Delivery].
func (d *delivery) Ack(context.Context) error {
	d.p.heard(d)
	return d.p.finish(d)
}

// Retry implements [consume.Delivery].
func (d *delivery) Retry(ctx context.Context, after time.Duration, counts bool) error {
	retries := d.m.Retries
	if counts {
		retries++
	}
	topic := &d.p.c.topic
	err := d.move(ctx, retryCopy(d.r, d.m, topic.retryTopic(copies.DelayFor(topic.Delays, after)), d.p.c.opts.Group, retries))
	if tooLarge(err) {
		return fmt.Errorf("%w: %w", consume.ErrNoCopy, err)
	}
	return err
}

// SetAside implements [consume.Delivery]. What is too large for a dead letter leaves one without a body, and then without headers.
func (d *delivery) SetAside(ctx context.Context, letter consume.Death) error {
	topic := &d.p.c.topic
	r := deadLetter(d.r, d.m, topic.DeadLetters, topic.Name, &letter)
	err := d.move(ctx, r)
	for _, cut := range []func(*kgo.Record){withoutValue, withoutHeaders} {
		if tooLarge(err) {
			cut(r)
			err = d.move(ctx, r)
		}
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.TopicAuthorizationFailed) {
		return fmt.Errorf("%w: %w", consume.ErrRefused, err)
	}
	return err
}

// move puts a copy into another topic, and finishes the message once the copy is there. A call that did not learn what became of its copy
// is called again: that one waits for the same copy.
func (d *delivery) move(ctx context.Context, r *kgo.Record) error {
	if err := d.p.here(); err != nil {
		return err
	}
	c := d.p.c
	if d.copied == nil {
		d.copied = c.forgotten.produce(c.client, c.alone, r)
	}
	err := d.copied.wait(ctx)
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return err
	}
	d.copied = nil
	if errors.Is(err, kerr.UnknownTopicOrPartition) && c.topic.Topology == Declare { // somebody has deleted it
		if _, _, undeclared := c.topic.establish(ctx, c.client, c.opts.Workers.Log); undeclared != nil {
			return errors.Join(err, undeclared)
		}
	}
	if err != nil {
		return err
	}
	return d.p.finish(d)
}
