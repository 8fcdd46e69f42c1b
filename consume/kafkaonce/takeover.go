package kafkaonce

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/retry"
)

// withTable returns the client options with which the consumer begins at the offsets of the handler's table, if it has
// one.
func (c *Consumer) withTable(handler *consume.Consumer) ([]kgo.Opt, error) {
	offsets := handler.Offsets()
	if offsets == nil {
		return nil, nil
	}
	var ok bool
	if c.table, ok = offsets.(offsetsTable); !ok || c.table.isNil() {
		return nil, fmt.Errorf("%w: kafkaonce: TxSpec.Offsets of the handler is nil, or not from this package (make it with NewOffsets)", everonce.ErrInvalidArgument)
	}
	return []kgo.Opt{kgo.AdjustFetchOffsetsFn(c.begins)}, nil
}

// begins takes over partitions in the table of offsets, and returns where to begin: at the table's offset, or else at
// Kafka's. It waits for a database that cannot be reached until ctx ends, with the next rebalance.
func (c *Consumer) begins(ctx context.Context, at map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	for try := 1; ; try++ {
		marks, err := c.takeOver(ctx, at)
		switch {
		case err == nil:
			for _, m := range marks {
				if m.next.Offset >= 0 {
					at[m.topic][m.number] = kgo.NewOffset().At(m.next.Offset).WithEpoch(m.next.Epoch)
				}
			}
			return at, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, everonce.ErrSchema):
			c.fail(fmt.Errorf("kafkaonce: consumer %q cannot start: %w", c.handler.Name(), err))
			return nil, err
		case isOutdated(err): // the client joins again
			return nil, err
		}
		c.opts.Workers.Log.WarnContext(ctx, "kafkaonce: partitions wait for the table of offsets", "consumer", c.handler.Name(), "error", err)
		if err := retry.Pause(ctx, retry.Backoff(try)); err != nil {
			return nil, ctx.Err()
		}
	}
}

// takeOver makes this member the owner of partitions. It reads the owner, asks the group whether this member still has
// the partition, and takes it only if the owner has not changed. So a member that is late does not take a partition
// back from a later one.
func (c *Consumer) takeOver(ctx context.Context, at map[string]map[int32]kgo.Offset) (taken []*mark, err error) {
	if err := c.table.check(ctx); err != nil {
		return nil, err
	}
	topics, err := metadata(ctx, c.client, slices.Collect(maps.Keys(at)))
	if err != nil {
		return nil, err
	}
	me, from := c.member(), map[*mark]owner{}
	for topic, numbers := range at {
		if err := topics.error(topic); err != nil {
			return nil, err
		}
		id := topics[topic].TopicID
		for n := range numbers {
			from[&mark{owner: me, place: place{topic, n}, topicID: hex.EncodeToString(id[:])}] = owner{}
		}
	}
	for len(from) > 0 {
		for m := range from {
			if from[m], err = c.table.ownerOf(ctx, m); err != nil {
				return nil, err
			}
		}
		if err := c.confirm(ctx, me); err != nil {
			return nil, err
		}
		for m, by := range from {
			ok, err := c.table.takeOver(ctx, m, by)
			if err != nil {
				return nil, err
			}
			if ok {
				delete(from, m)
				taken = append(taken, m)
				c.own(m)
			}
		}
	}
	return taken, nil
}

// own records the owner as which this consumer writes the offset of a partition.
func (c *Consumer) own(m *mark) {
	if p := c.at(m.place); p != nil {
		p.mu.Lock()
		p.own = *m
		p.mu.Unlock()
	}
}

// member returns this consumer as a member of its group, as it knows it.
func (c *Consumer) member() owner {
	member, generation := c.client.GroupMetadata()
	return owner{group: c.opts.Group, member: member, generation: generation}
}

// confirm asks the group whether a member is in its current generation.
func (c *Consumer) confirm(ctx context.Context, me owner) error {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = me.group, me.member, me.generation
	if id, ok := c.client.OptValue(kgo.InstanceID).(string); ok && id != "" {
		req.InstanceID = &id
	}
	resp, err := req.RequestWith(ctx, c.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if errors.Is(err, kerr.RebalanceInProgress) { // it is, until the rebalance ends
		return nil
	}
	return err
}

// isOutdated reports whether err is confirm's answer that the member is not in the current generation.
func isOutdated(err error) bool {
	return errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.FencedInstanceID)
}

// markWith returns the mark of the partition once the transaction that handles ms has committed.
func (p *partition) markWith(ms []*consume.Message) (mark, error) {
	in := make(map[*consume.Message]bool, len(ms))
	for _, m := range ms {
		in[m] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return mark{}, errGone
	}
	at := p.own
	at.next = p.next
	for _, d := range p.window {
		if !d.finished && !in[d.m] {
			break
		}
		at.next = d.next()
	}
	for _, d := range p.window {
		if in[d.m] {
			d.noted = &at.next
		}
	}
	return at, nil
}

// heard records that the transaction that handled a message, if any, has committed, so that the table has its offset.
func (p *partition) heard(d *delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d.noted != nil && p.own.least.Less(*d.noted) {
		p.own.least = *d.noted
	}
}

// fence lets go of a partition that belongs to another member according to the table. The group has not revoked it
// yet.
func (p *partition) fence() {
	p.end(ErrFenced)
	p.mu.Lock()
	p.fenced = true
	p.mu.Unlock()
	p.letGo(Lost)
}

// save writes offsets into the table, and deletes from moved the offsets that were not written.
func (c *Consumer) save(ctx context.Context, moved map[*partition]kgo.EpochOffset) {
	ps := slices.SortedFunc(maps.Keys(moved), comparePlaces) // in one order, to avoid deadlocks
	marks := make([]mark, len(ps))
	for i, p := range ps {
		p.mu.Lock()
		marks[i] = p.own
		p.mu.Unlock()
		marks[i].next = moved[p]
	}
	fenced, err := c.table.save(ctx, marks)
	for i, p := range ps {
		if err == nil && !fenced[i] {
			continue
		}
		delete(moved, p)
		if err == nil {
			p.fence()
		} else {
			p.committed(ctx, marks[i].next, err)
		}
	}
}

// checkFenced ends Run if a partition belongs to another member in the table and to this one in the group. Then
// somebody changed the row, or the database lost commits. The next Run begins at the table's offset.
func (c *Consumer) checkFenced(ctx context.Context) {
	for _, p := range c.all() {
		p.mu.Lock()
		fenced := p.fenced
		p.mu.Unlock()
		if fenced && c.confirm(ctx, c.member()) == nil && c.at(p.place) == p {
			c.fail(fmt.Errorf("kafkaonce: topic %q, partition %d: the row in the table of offsets was removed or set back while the consumer ran, by hand (stop all members of the group first) or by a database that has lost commits: %w", p.topic, p.number, ErrFenced))
		}
	}
}
