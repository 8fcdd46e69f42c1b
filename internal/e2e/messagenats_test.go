package e2e

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/natsonce"
)

// natsServer is NATS. Each way has a stream.
type natsServer struct {
	spec *messageSpec
	conn *nats.Conn // the publisher's
	js   jetstream.JetStream
}

func newNATS(spec *messageSpec) broker { return &natsServer{spec: spec} }

// natsQueue is what a way consumes.
func natsQueue(s *messageSpec, way string) natsonce.Queue {
	return natsonce.Queue{Stream: s.Queues + "-" + way, Durable: way, AckWait: time.Second}
}

func (n *natsServer) consumer(ctx context.Context, way string, h *consume.Consumer, workers consume.Workers) (runner, error) {
	if way == wayTx {
		workers.Batch = 4 // the other ways have one message at a time
	}
	return natsonce.Dial(ctx, n.spec.byLine(), natsQueue(n.spec, way), h, &natsonce.Options{
		Workers: workers, Backoff: consume.Backoff{Min: 50 * time.Millisecond, Max: time.Second},
		Connect: []nats.Option{nats.ReconnectWait(50 * time.Millisecond), nats.PingInterval(time.Second), nats.Timeout(time.Second)},
	})
}

func (n *natsServer) letters(ctx context.Context, way string) (consume.DeadLetters, error) {
	return natsonce.DialDeadLetters(ctx, n.spec.Broker, natsQueue(n.spec, way), nil)
}

func (n *natsServer) declare(ctx context.Context, ways []string) error {
	nobody, err := consume.NewNatural(consume.NaturalSpec[operation]{
		Consumer: "none", Key: consume.ProducerID(),
		Handle: func(context.Context, *consume.Message, operation) (bool, error) { return false, nil },
	})
	if err != nil {
		return err
	}
	if err := n.asking(func(js jetstream.JetStream) error {
		for _, way := range ways {
			name := natsQueue(n.spec, way).Stream
			if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name}}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for _, way := range ways {
		c, err := natsonce.Dial(ctx, n.spec.Broker, natsQueue(n.spec, way), nobody, nil)
		if err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (n *natsServer) remove(ctx context.Context, ways []string) error {
	return n.asking(func(js jetstream.JetStream) error {
		var errs []error
		for _, way := range ways {
			q := natsQueue(n.spec, way)
			for _, name := range []string{q.Stream, q.Stream + "-dead", "KV_" + q.Stream + "-" + q.Durable + "-retries"} {
				errs = append(errs, js.DeleteStream(ctx, name))
			}
		}
		return errors.Join(errs...)
	})
}

// waiting also counts messages in progress: they are not done.
func (n *natsServer) waiting(ways []string) (counts map[string]int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), natsTimeout)
	defer cancel()
	counts = map[string]int{}
	return counts, n.asking(func(js jetstream.JetStream) error {
		for _, way := range ways {
			q := natsQueue(n.spec, way)
			c, err := js.Consumer(ctx, q.Stream, q.Durable)
			if err != nil {
				return err
			}
			info := c.CachedInfo()
			if left := int(info.NumPending) + info.NumAckPending; left > 0 {
				counts[way] = left
			}
			dead, err := js.Stream(ctx, q.Stream+"-dead")
			if err != nil {
				return err
			}
			if left := int(dead.CachedInfo().State.Msgs); left > 0 {
				counts[way+".dead"] = left
			}
		}
		return nil
	})
}

const natsTimeout = 10 * time.Second

func (n *natsServer) asking(ask func(jetstream.JetStream) error) error {
	conn, err := nats.Connect(n.spec.Broker)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	return ask(js)
}

func (n *natsServer) publish(way string, ops []int) (left []int, err error) {
	if n.conn == nil {
		if n.conn, err = nats.Connect(n.spec.Broker, nats.NoReconnect()); err == nil {
			n.js, err = jetstream.New(n.conn)
		}
		if err != nil {
			return ops, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), natsTimeout)
	defer cancel()
	acks := make([]jetstream.PubAckFuture, len(ops))
	for i, op := range ops {
		id, body := message(op)
		msg := &nats.Msg{Subject: natsQueue(n.spec, way).Stream, Data: body, Header: nats.Header{"ce-id": {id}, "Content-Type": {"application/json"}}}
		if acks[i], err = n.js.PublishMsgAsync(msg); err != nil {
			break // and so will those behind it
		}
	}
	for i, op := range ops {
		if acks[i] == nil {
			left = append(left, op)
			continue
		}
		select {
		case <-acks[i].Ok():
		case err = <-acks[i].Err():
			left = append(left, op)
		case <-ctx.Done():
			err = ctx.Err()
			left = append(left, op)
		}
	}
	return left, err
}

func (n *natsServer) cut() {
	if n.conn != nil {
		n.conn.Close()
		n.conn = nil
	}
}
