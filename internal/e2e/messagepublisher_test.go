package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// publisher sends the stream: each message, and a second time where the draw says so; and again whatever the broker has
// not confirmed, as a producer must.
type publisher struct {
	broker      broker
	ways        []string
	order       []int                  // messages, in the order of their sending
	sent        map[string]map[int]int // how often, by way
	unconfirmed int
}

// publisherAhead is how many messages may be sent and not received: few, so that it too is at work when the broker is
// killed.
const publisherAhead = 60

func newPublisher(spec *messageSpec, ways []string, rng *rand.Rand, messages int) *publisher {
	p := &publisher{broker: spec.broker(), ways: ways, sent: map[string]map[int]int{}}
	for _, way := range ways {
		p.sent[way] = map[int]int{}
	}
	// One in ten comes again, up to forty messages later.
	again := map[int][]int{}
	for op := range messages {
		p.order = append(p.order, again[op]...)
		p.order = append(p.order, op)
		if rng.IntN(10) == 0 {
			at := min(op+1+rng.IntN(40), messages)
			again[at] = append(again[at], op)
		}
	}
	p.order = append(p.order, again[messages]...)
	return p
}

// run publishes all, never far ahead of the consumers.
func (p *publisher) run(ctx context.Context, r *referee) error {
	const batch = 20
	for begin := 0; begin < len(p.order); begin += batch {
		ops := p.order[begin:min(begin+batch, len(p.order))]
		if err := r.wait(ctx, func() bool { return ops[0] <= min(r.limit, r.progress()+publisherAhead) }); err != nil {
			return err
		}
		for _, way := range p.ways {
			if err := p.publish(ctx, way, ops); err != nil {
				return err
			}
		}
	}
	p.broker.cut()
	return nil
}

// publish returns when the broker has confirmed all.
func (p *publisher) publish(ctx context.Context, way string, ops []int) error {
	for {
		for _, op := range ops {
			p.sent[way][op]++
		}
		left, err := p.broker.publish(way, ops)
		if err == nil {
			return nil
		}
		p.unconfirmed += len(left)
		ops = left
		p.broker.cut()
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("publishing to %s: %w: %w", way, context.Cause(ctx), err)
		}
	}
}
