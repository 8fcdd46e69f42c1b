package kafkaonce

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/retry"
)

// place is a partition of a topic.
type place struct {
	topic  string
	number int32
}

func comparePlaces(a, b *partition) int {
	return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.number, b.number))
}

// partition is a partition that this consumer has, from its assignment until it is revoked or lost.
type partition struct {
	place
	c      *Consumer
	delay  time.Duration // of a retry topic
	ctx    context.Context
	end    context.CancelCauseFunc
	served chan struct{} // closed when no handler runs
	more   chan struct{} // something was added to waiting

	mu      sync.Mutex
	waiting []*delivery // not handed out
	window  []*delivery // from the first unfinished one on
	bytes   int         // of their values
	next    kgo.EpochOffset
	moved   bool  // next is not committed
	high    int64 // the end of the partition, as of the last fetch
	paused  bool
	gone    bool
	own     mark // the owner that writes to the table of offsets, if any
	fenced  bool // according to that table
}

// inPartition is the key of the partition in a handler's context, for [Offsets.Note].
type inPartition struct{}

// begin serves a partition.
func (c *Consumer) begin(at place) *partition {
	p := &partition{place: at, c: c, delay: c.delays[at.topic], served: make(chan struct{}), more: make(chan struct{}, 1)}
	p.next = kgo.EpochOffset{Epoch: -1, Offset: -1}
	p.ctx, p.end = context.WithCancelCause(context.WithValue(context.Background(), inPartition{}, p))
	in := make(chan consume.Delivery)
	c.serving.Go(func() { p.feed(in) })
	c.serving.Go(func() {
		defer close(p.served)
		if err := c.handler.Serve(p.ctx, in, &c.opts.Workers); err != nil {
			c.fail(err)
		}
	})
	return p
}

// add adds fetched records, and pauses the partition if it has enough.
func (p *partition) add(fetched kgo.FetchPartition) {
	p.mu.Lock()
	if p.gone { // fenced: the group has not revoked it yet
		p.mu.Unlock()
		return
	}
	p.high = fetched.HighWatermark
	for _, r := range fetched.Records {
		d := &delivery{r: r, m: messageOf(r, p.c.topic.Name), p: p}
		p.window, p.bytes = append(p.window, d), p.bytes+len(r.Value)
		if d.finished = p.delay > 0 && otherGroups(r, p.c.opts.Group); !d.finished {
			p.waiting = append(p.waiting, d)
		}
	}
	p.advanceLocked()
	full := !p.paused && (len(p.window) >= p.c.opts.Buffer || p.bytes >= bufferBytes)
	if full {
		p.paused = true
		p.c.client.PauseFetchPartitions(map[string][]int32{p.topic: {p.number}})
	}
	p.mu.Unlock()
	select {
	case p.more <- struct{}{}:
	default:
	}
	if full {
		p.notify(Event{Kind: Paused})
	}
}

// resumeLocked resumes a paused partition if it has room, and reports whether it did.
func (p *partition) resumeLocked() bool {
	was := p.paused
	if p.paused = false; was {
		p.c.client.ResumeFetchPartitions(map[string][]int32{p.topic: {p.number}})
	}
	return was
}

// feed hands out messages in order, and messages of a retry topic when they are due.
func (p *partition) feed(in chan<- consume.Delivery) {
	for {
		d := p.first()
		if d == nil {
			select {
			case <-p.more:
				continue
			case <-p.ctx.Done():
				return
			}
		}
		if p.delay > 0 && retry.Pause(p.ctx, due(d.r, p.delay, time.Now())) != nil {
			return
		}
		select {
		case in <- d:
		case <-p.ctx.Done():
			return
		}
	}
}

func (p *partition) first() *delivery {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 {
		return nil
	}
	d := p.waiting[0]
	p.waiting = p.waiting[1:]
	return d
}

var errGone = fmt.Errorf("%w: kafkaonce: the partition was given to another consumer", consume.ErrGone)

// here returns an error if this consumer no longer has the partition.
func (p *partition) here() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return errGone
	}
	return nil
}

// finish marks a message as finished. Its offset is committed once all earlier messages are finished.
func (p *partition) finish(d *delivery) error {
	resumed, err := p.finished(d)
	if resumed {
		p.notify(Event{Kind: Resumed})
	}
	return err
}

func (p *partition) finished(d *delivery) (resumed bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return false, errGone
	}
	d.finished = true
	p.advanceLocked()
	return len(p.window) <= p.c.opts.Buffer/2 && p.bytes <= bufferBytes/2 && p.resumeLocked(), nil
}

// advanceLocked advances the offset to commit to the first unfinished message.
func (p *partition) advanceLocked() {
	for len(p.window) > 0 && p.window[0].finished {
		d := p.window[0]
		p.next, p.moved = d.next(), true
		p.window, p.bytes = p.window[1:], p.bytes-len(d.r.Value)
	}
}

// letGo ends the use of a partition. It resumes a paused partition, because the client would keep the pause.
func (p *partition) letGo(kind EventKind) {
	p.mu.Lock()
	was := p.gone
	p.gone = true
	p.resumeLocked()
	p.mu.Unlock()
	if !was { // at the end of Run, a rebalance may have done it
		p.notify(Event{Kind: kind})
	}
}

func (p *partition) notify(e Event) {
	e.Topic, e.Partition = p.topic, p.number
	p.c.notify(e)
}
