package sqsonce

import (
	"context"
	"sync"

	"github.com/everonce/everonce/consume"
)

// hand has the messages in hand, by their MessageId.
type hand struct {
	size, most int // most is how many are received at a time

	mu      sync.Mutex
	held    map[string]*delivery
	changed chan struct{} // has a value after a message has left
}

func newHand(size, most int) *hand {
	return &hand{size: size, most: most, held: map[string]*delivery{}, changed: make(chan struct{}, 1)}
}

// room waits until there is room for some messages, and returns for how many; 0 where ctx ends before. To ask for one at
// a time would cost a request for each.
func (h *hand) room(ctx context.Context) int {
	for ctx.Err() == nil {
		h.mu.Lock()
		free := h.size - len(h.held)
		h.mu.Unlock()
		if free >= min(h.most, max(h.size/4, 1)) {
			return min(free, h.most)
		}
		select {
		case <-h.changed:
		case <-ctx.Done():
		}
	}
	return 0
}

// take adds a message that was received, and reports whether it is new: one that is in hand already has a new receipt.
func (h *hand) take(d *delivery) bool {
	id := *d.raw.MessageId
	h.mu.Lock()
	defer h.mu.Unlock()
	if known := h.held[id]; known != nil {
		known.again(d.handle, d.received)
		return false
	}
	h.held[id] = d
	return true
}

func (h *hand) drop(d *delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(d)
}

// dropIf drops a message unless it has come again since that receipt.
func (h *hand) dropIf(d *delivery, handle string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if latest, _ := d.receipt(); latest != handle {
		return false
	}
	h.remove(d)
	return true
}

func (h *hand) remove(d *delivery) {
	if id := *d.raw.MessageId; h.held[id] == d {
		delete(h.held, id)
		select {
		case h.changed <- struct{}{}:
		default:
		}
	}
}

// line is messages that are handled one after the other: those of one group of a FIFO queue in Lambda's event. A consumer's own
// lines have one message each.
type line []*delivery

// lines puts messages into lines, in their order.
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

// feed hands a line out, each message when the one before it is done. After one that is to come again, those behind it
// are left, for it comes first. So they are at the end of ctx, and where nobody works any more. It returns the rest.
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
				return l[i:] // nobody has answered it
			}
		}
		if !finished {
			return l[i+1:]
		}
	}
	return nil
}

// giveBack lets others have messages at once.
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
					d.c.opts.Workers.Log.InfoContext(ctx, "sqsonce: a message was not given back, and comes again later", "consumer", d.c.handler.Name(), "queue", d.c.queue.name, "error", err)
				}
			}
			d.end(false)
		})
	}
	giving.Wait()
}
