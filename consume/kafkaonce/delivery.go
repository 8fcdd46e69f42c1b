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

// delivery is one unanswered message. Its answers are local: the partition commits what they finish.
type delivery struct {
	r *kgo.Record
	m *consume.Message
	p *partition

	finished bool             // under the partition's lock, as is
	noted    *kgo.EpochOffset // the offset that its latest transaction wrote into the table
	copied   *produced        // a copy that an earlier call sent without learning the result
}

var _ consume.Delivery = (*delivery)(nil)

// Message implements [consume.Delivery].
func (d *delivery) Message() *consume.Message { return d.m }

// next returns the offset after the message.
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

// SetAside implements [consume.Delivery]. If the topic refuses the dead letter as too large, it sends one without the
// body, and then one without the headers.
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

// move produces a copy to another topic, and finishes the message once the topic has the copy. If an earlier call did
// not learn the result of its copy, move waits for that copy.
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
	if errors.Is(err, kerr.UnknownTopicOrPartition) && c.topic.Topology == Declare { // it was deleted
		if _, _, undeclared := c.topic.establish(ctx, c.client, c.opts.Workers.Log); undeclared != nil {
			return errors.Join(err, undeclared)
		}
	}
	if err != nil {
		return err
	}
	return d.p.finish(d)
}
