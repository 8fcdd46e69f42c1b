package natsonce

import (
	"context"
	"sync"
	"time"

	"github.com/everonce/everonce/consume/internal/heartbeat"
)

// hand has the deliveries that are not answered yet, and keeps them from being delivered again.
type hand struct {
	mu sync.Mutex
	in map[*delivery]struct{}
}

func (h *hand) take(d *delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.in == nil {
		h.in = map[*delivery]struct{}{}
	}
	h.in[d] = struct{}{}
	d.rest = heartbeat.Start(max(d.from.config.AckWait/3, time.Millisecond), func(context.Context) bool {
		d.msg.InProgress() //nolint:errcheck // the next one may get through
		return true
	})
}

func (h *hand) leave(d *delivery) {
	d.rest()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.in, d)
}

// left returns what is in hand.
func (h *hand) left() []*delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	ds := make([]*delivery, 0, len(h.in))
	for d := range h.in {
		ds = append(ds, d)
	}
	return ds
}
