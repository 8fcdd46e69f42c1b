package kafkaonce

import (
	"context"
	"fmt"
	"time"

	"github.com/everonce/everonce/internal/retry"
)

// lag is how far brokers may be behind with what topics there are.
const lag = time.Minute

// unknown looks after a topic whose ID a broker does not know, and which the client would ask for again and again, at once: it is not asked for
// until it is there.
func (c *Consumer) unknown(ctx context.Context, topic string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away[topic] {
		return
	}
	c.away[topic] = true
	c.client.PauseFetchTopics(topic)
	c.opts.Workers.Log.WarnContext(ctx, "kafkaonce: a topic is away", "consumer", c.handler.Name(), "topic", topic, "error", err)
	c.watching.Go(func() { c.watch(ctx, topic) })
}

// watch waits until a topic is there. If the broker was behind, the client goes on. If it goes on in vain, there is another topic of that name:
// then Run ends, because the client never consumes that one, and the offsets are of the old one.
func (c *Consumer) watch(ctx context.Context, topic string) {
	w := &c.opts.Workers
	for try, there := 1, false; !there; try++ {
		if retry.Pause(ctx, retry.Within(w.Backoff.Min, w.Backoff.Max, try)) != nil {
			return
		}
		topics, err := metadata(ctx, c.client, []string{topic})
		there = err == nil && topics.error(topic) == nil
	}
	c.mu.Lock()
	back := c.back[topic]
	c.back[topic] = time.Now()
	c.mu.Unlock()
	if time.Since(back) > lag {
		c.client.ResumeFetchTopics(topic)
		c.mu.Lock()
		delete(c.away, topic)
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
