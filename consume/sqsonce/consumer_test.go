package sqsonce_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/sqsonce"
)

// A producer sends each message twice, and each takes effect once.
func TestConsumesOnce(t *testing.T) {
	t.Parallel()
	for _, fifo := range []bool{false, true} {
		b := newBench(t, fifo, 100)
		for id := range 25 {
			b.sendOrder(id, "a")
			b.sendOrder(id, "b")
		}
		var effects [25]atomic.Int32
		b.run(b.client, b.handler(func(_ context.Context, _ *consume.Message, o order) error {
			effects[o.ID].Add(1)
			return nil
		}, nil), quick())
		for range 50 {
			b.until(consume.Ack)
		}
		b.empty(b.url)
		for id := range effects {
			if n := effects[id].Load(); n != 1 {
				t.Errorf("order %d took effect %d times", id, n)
			}
		}
	}
}

// A failed message comes again after its delay, up to the limit, then becomes a dead letter, and blocks no others.
func TestRetriesThenSetsAside(t *testing.T) {
	t.Parallel()
	for _, fifo := range []bool{false, true} {
		b := newBench(t, fifo, 100)
		b.send(`{"id":1}`, "a", sqsonce.AttributeID, "poison", "trace", "t-1")
		b.sendOrder(2, "b")
		var retries []int
		b.run(b.client, b.handler(func(_ context.Context, m *consume.Message, o order) error {
			if o.ID != 1 {
				return nil
			}
			retries = append(retries, m.Retries)
			return everonce.NotDone(errors.New("the bank is closed"))
		}, func(s *consume.Spec[order]) { s.Retry.Limit = 2 }), quick())
		b.until(consume.Ack)
		b.until(consume.SetAside)
		letter := b.list(1)[0]
		if len(retries) != 3 || retries[2] != 2 {
			t.Errorf("the retries were %v", retries)
		}
		if letter.Reason != consume.Exhausted || letter.Consumer != "billing" || letter.Source != b.queue.Name || letter.Attempts != 3 ||
			len(letter.KeyHash) == 0 || letter.Message.ID != "poison" || letter.Message.Headers["trace"] != "t-1" || string(letter.Message.Body) != `{"id":1}` {
			t.Errorf("the dead letter is %s", asJSON(t, letter))
		}
		b.empty(b.url)
	}
}

// A handler that takes longer than the visibility timeout keeps its message hidden.
func TestHeartbeatKeepsAMessageHidden(t *testing.T) {
	t.Parallel()
	b := newBench(t, false, 100)
	b.sendOrder(1, "")
	var runs atomic.Int32
	handle := func(context.Context, *consume.Message, order) error {
		runs.Add(1)
		<-time.After(7 * time.Second) // the server's clock cannot be moved: more than twice the visibility
		return nil
	}
	h := b.handler(handle, nil)
	b.run(b.client, h, quick())
	b.run(b.client, h, quick())
	if v := b.decision(); v.Disposition != consume.Ack || v.Outcome != everonce.Executed {
		t.Errorf("the first decision is %v, %v", v.Disposition, v.Outcome)
	}
	b.empty(b.url)
	if len(b.dispatched) > 0 || runs.Load() != 1 {
		t.Errorf("it was delivered again %d times, and ran %d times", len(b.dispatched), runs.Load())
	}
}
