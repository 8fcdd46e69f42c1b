package kafkaonce

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

// at returns a partition of this consumer, or nil.
func (c *Consumer) at(at place) *partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.partitions[at]
}

// all returns the partitions of this consumer.
func (c *Consumer) all() []*partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.partitions))
}

// these returns the partitions of this consumer that a callback names.
func (c *Consumer) these(named map[string][]int32) []*partition {
	var ps []*partition
	for topic, numbers := range named {
		for _, n := range numbers {
			if p := c.at(place{topic, n}); p != nil {
				ps = append(ps, p)
			}
		}
	}
	return ps
}

func (c *Consumer) assigned(_ context.Context, _ *kgo.Client, named map[string][]int32) {
	for topic, numbers := range named {
		for _, n := range numbers {
			p := c.begin(place{topic, n})
			c.mu.Lock()
			c.partitions[p.place] = p
			c.mu.Unlock()
			p.notify(Event{Kind: Assigned})
		}
	}
}

func (c *Consumer) revoked(ctx context.Context, _ *kgo.Client, named map[string][]int32) {
	c.release(ctx, c.these(named))
}

// release lets handlers finish, commits, and lets go of partitions. Handlers that run longer cannot finish their
// messages.
func (c *Consumer) release(ctx context.Context, ps []*partition) {
	w := &c.opts.Workers
	ctx, cancel := context.WithTimeout(ctx, w.DrainTimeout+w.SettleTimeout)
	defer cancel()
	drained, cancel := context.WithTimeout(ctx, w.DrainTimeout+w.SettleTimeout/2) // leaves time to commit
	defer cancel()
	for _, p := range ps {
		p.end(nil)
	}
	for _, p := range ps {
		select {
		case <-p.served:
		case <-drained.Done():
		}
	}
	c.committing.Lock()
	defer c.committing.Unlock()
	c.commit(ctx, ps)
	c.letGo(ps, Revoked)
}

// lost stops handlers at once and commits nothing, because other members already have the partitions.
func (c *Consumer) lost(_ context.Context, _ *kgo.Client, named map[string][]int32) {
	ps := c.these(named)
	for _, p := range ps {
		p.end(errGone)
	}
	c.committing.Lock()
	defer c.committing.Unlock()
	c.letGo(ps, Lost)
}

func (c *Consumer) letGo(ps []*partition, kind EventKind) {
	for _, p := range ps {
		p.letGo(kind)
		c.mu.Lock()
		if c.partitions[p.place] == p {
			delete(c.partitions, p.place)
		}
		c.mu.Unlock()
	}
}
