package kafkaonce

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// produced is a record on its way.
type produced struct {
	done chan struct{}
	err  error // once done is closed
}

// deliverWithin is how long a record waits for a broker: what waited for longer would come beside the copies that were made since. The
// client's own limit begins with the record's timestamp, which may be the event's.
const deliverWithin = 10 * time.Second

// produce sends a record. What was sent cannot be called back: its fate is that of the client, not of the caller's context.
func produce(client *kgo.Client, r *kgo.Record) *produced {
	p := &produced{done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), deliverWithin)
	r.Context = ctx // that of an earlier try has ended
	client.TryProduce(ctx, r, func(_ *kgo.Record, err error) {
		cancel()
		p.err = err
		close(p.done)
	})
	return p
}

// wait returns what became of the record, or the cause of ctx, if it ends before.
func (p *produced) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
