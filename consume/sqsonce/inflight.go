package sqsonce

import (
	"context"
	"sync"

	"github.com/everonce/everonce/consume"
)

// inflight is the set of unanswered messages, by MessageId.
type inflight struct {
	size, most int // most is how many are received at a time

	mu      sync.Mutex
	held    map[string]*delivery
	changed chan struct{} // gets a value when a message is removed
}

func newInflight(size, most int) *inflight {
	return &inflight{size: size, most: most, held: map[string]*delivery{}, changed: make(chan struct{}, 1)}
}

// room waits until there is room for several messages, so that not every message needs its own request, and returns
// for how many, or 0 if ctx ends first.
func (f *inflight) room(ctx context.Context) int {
	for ctx.Err() == nil {
		f.mu.Lock()
		free := f.size - len(f.held)
		f.mu.Unlock()
		if free >= min(f.most, max(f.size/4, 1)) {
			return min(free, f.most)
		}
		select {
		case <-f.changed:
		case <-ctx.Done():
		}
	}
	return 0
}

// add adds a received message, and reports whether it is new. A message that is already in the set gets its new
// receipt.
func (f *inflight) add(d *delivery) bool {
	id := *d.raw.MessageId
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.held[id]; known != nil {
		known.again(d.handle, d.received)
		return false
	}
	f.held[id] = d
	return true
}

func (f *inflight) drop(d *delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(d)
}

// dropIf drops a message unless SQS has delivered it again since that receipt.
func (f *inflight) dropIf(d *delivery, handle string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if latest, _ := d.receipt(); latest != handle {
		return false
	}
	f.remove(d)
	return true
}

func (f *inflight) remove(d *delivery) {
	if id := *d.raw.MessageId; f.held[id] == d {
		delete(f.held, id)
		select {
		case f.changed <- struct{}{}:
		default:
		}
	}
}

// line is a list of messages to be handled one after the other: the messages of one group of a FIFO queue in Lambda's
// event. The lines of a consumer have one message each.
type line []*delivery

// lines groups messages into lines, in their order.
func lines(ds []*delivery) (all []line) {
	of := map[string]int{}
	for _, d := range ds {
		if at, ok := of[d.group]; ok && d.group != "" {
			all[at] = append(all[at], d)
			continue
		}
		of[d.group] = len(all)
		all = append(all, line{d})
	}
	return all
}

// feed hands out the messages of a line, each after the previous one is answered. After a message that is to come
// again, it stops, since that one must come first. It also stops at the end of ctx and when the handler has ended. It
// returns the rest.
func (l line) feed(ctx context.Context, out chan<- consume.Delivery, ended <-chan struct{}) (rest line) {
	for i, d := range l {
		select {
		case <-ctx.Done():
			return l[i:]
		case <-ended:
			return l[i:]
		case out <- d:
		}
		var finished bool
		select {
		case finished = <-d.answer:
		case <-ended:
			select {
			case finished = <-d.answer:
			default:
				return l[i:] // it has no answer
			}
		}
		if !finished {
			return l[i+1:]
		}
	}
	return nil
}

// giveBack makes messages visible to others at once.
func (l line) giveBack() {
	if len(l) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l[0].c.opts.Workers.SettleTimeout)
	defer cancel()
	var giving sync.WaitGroup
	for _, d := range l {
		giving.Go(func() {
			d.beating()
			if !d.kept {
				if err := d.leave(ctx, 0); err != nil {
					d.c.opts.Workers.Log.InfoContext(ctx, "sqsonce: a message was not given back, and comes again after its visibility", "consumer", d.c.handler.Name(), "queue", d.c.queue.name, "error", err)
				}
			}
			d.end(false)
		})
	}
	giving.Wait()
}
