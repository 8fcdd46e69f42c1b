package kafkaonce

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// produced is a record on its way.
type produced struct {
	done chan struct{}
	err  error // once done is closed
}

// produce sends a record. What was sent cannot be called back: its fate is that of the client, not of a context.
func produce(client *kgo.Client, r *kgo.Record) *produced {
	p := &produced{done: make(chan struct{})}
	client.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
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
