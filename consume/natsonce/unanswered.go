package natsonce

import (
	"context"
	"sync"
	"time"

	"github.com/everonce/everonce/consume/internal/heartbeat"
)

// unanswered is the set of unanswered deliveries. It sends their heartbeats, so that they are not redelivered.
type unanswered struct {
	mu sync.Mutex
	in map[*delivery]struct{}
}

func (u *unanswered) add(d *delivery) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.in == nil {
		u.in = map[*delivery]struct{}{}
	}
	u.in[d] = struct{}{}
	d.rest = heartbeat.Start(max(d.from.config.AckWait/3, time.Millisecond), func(context.Context) bool {
		d.msg.InProgress() //nolint:errcheck // the next one may get through
		return true
	})
}

func (u *unanswered) remove(d *delivery) {
	d.rest()
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.in, d)
}

// all returns the unanswered deliveries.
func (u *unanswered) all() []*delivery {
	u.mu.Lock()
	defer u.mu.Unlock()
	ds := make([]*delivery, 0, len(u.in))
	for d := range u.in {
		ds = append(ds, d)
	}
	return ds
}
