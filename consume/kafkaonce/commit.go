package kafkaonce

import (
	"cmp"
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// commitAtIntervals commits until ctx ends.
func (c *Consumer) commitAtIntervals(ctx context.Context) {
	ticker := time.NewTicker(c.opts.CommitEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.committing.Lock()
			c.commit(context.WithoutCancel(ctx), c.all())
			c.committing.Unlock()
			if c.table != nil {
				c.checkFenced(ctx)
			}
		case <-ctx.Done():
			return
		}
	}
}

// commit commits the finished offsets of partitions. The caller must hold c.committing, as must the revocation of
// partitions: otherwise a commit on its way could arrive in a generation in which another member owns the partition.
func (c *Consumer) commit(ctx context.Context, ps []*partition) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Workers.SettleTimeout)
	defer cancel()
	moved := map[*partition]kgo.EpochOffset{}
	for _, p := range ps {
		p.mu.Lock()
		if p.moved && !p.gone {
			moved[p] = p.next
		}
		p.mu.Unlock()
	}
	if c.table != nil && len(moved) > 0 {
		c.save(ctx, moved)
	}
	if len(moved) == 0 {
		return
	}
	offsets := map[string]map[int32]kgo.EpochOffset{}
	for p, next := range moved {
		if offsets[p.topic] == nil {
			offsets[p.topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[p.topic][p.number] = next
	}
	c.client.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		failed := map[place]error{}
		if resp != nil {
			for _, t := range resp.Topics {
				for _, p := range t.Partitions {
					failed[place{t.Topic, p.Partition}] = kerr.ErrorForCode(p.ErrorCode)
				}
			}
		}
		for p, next := range moved {
			p.committed(ctx, next, cmp.Or(err, failed[p.place]))
		}
	})
}

// committed records the result of a commit.
func (p *partition) committed(ctx context.Context, next kgo.EpochOffset, err error) {
	if err != nil {
		p.c.opts.Workers.Log.WarnContext(ctx, "kafkaonce: an offset was not committed", "consumer", p.c.handler.Name(), "topic", p.topic, "partition", p.number, "error", err)
		p.notify(Event{Kind: CommitFailed, Err: err})
		return
	}
	p.mu.Lock()
	p.moved = p.next != next
	lag := max(p.high-next.Offset, 0)
	p.mu.Unlock()
	p.notify(Event{Kind: Committed, Offset: next.Offset, Lag: lag})
}
