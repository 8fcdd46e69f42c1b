package kafkaonce

import (
	"context"
	"fmt"
	"time"

	"github.com/everonce/everonce/internal/retry"
)

// lag is how long a broker's metadata may be out of date.
const lag = time.Minute

// topicMissing pauses a topic whose ID a broker does not know, until the topic exists. The client would otherwise ask
// for it again and again without a pause.
func (c *Consumer) topicMissing(ctx context.Context, topic string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.missing[topic] {
		return
	}
	c.missing[topic] = true
	c.client.PauseFetchTopics(topic)
	c.opts.Workers.Log.WarnContext(ctx, "kafkaonce: a topic is missing", "consumer", c.handler.Name(), "topic", topic, "error", err)
	c.watching.Go(func() { c.watch(ctx, topic) })
}

// watch waits until a missing topic exists. The client then resumes, in case the broker's metadata was out of date. If
// the topic is soon missing again, it was deleted and created anew: Run ends, because the client never consumes the
// new topic, and the offsets belong to the old one.
func (c *Consumer) watch(ctx context.Context, topic string) {
	w := &c.opts.Workers
	for try, exists := 1, false; !exists; try++ {
		if retry.Pause(ctx, retry.Within(w.Backoff.Min, w.Backoff.Max, try)) != nil {
			return
		}
		topics, err := metadata(ctx, c.client, []string{topic})
		exists = err == nil && topics.error(topic) == nil
	}
	c.mu.Lock()
	found := c.found[topic]
	c.found[topic] = time.Now()
	c.mu.Unlock()
	if time.Since(found) > lag {
		c.client.ResumeFetchTopics(topic)
		c.mu.Lock()
		delete(c.missing, topic)
		c.mu.Unlock()
		return
	}
	named := map[string][]int32{}
	for _, p := range c.all() {
		if p.topic == topic {
			named[topic] = append(named[topic], p.number)
		}
	}
	c.lost(ctx, c.client, named)
	c.fail(fmt.Errorf("%w: topic %q was deleted and created anew while it was consumed (run a new consumer)", ErrTopology, topic))
}
