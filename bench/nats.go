package main

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/natsonce"
)

// natsServer is NATS JetStream.
type natsServer struct {
	url  string
	conn *nats.Conn
	js   jetstream.JetStream
}

func newNATS(_ context.Context, url string) (broker, error) {
	n := &natsServer{url: url}
	return n, n.connect()
}

func (n *natsServer) connect() (err error) {
	if n.conn, err = nats.Connect(n.url); err == nil {
		n.js, err = jetstream.New(n.conn)
	}
	return err
}

func (n *natsServer) create(ctx context.Context, name string) (jetstream.Stream, error) {
	return n.js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name}})
}

func (n *natsServer) serve(ctx context.Context, queue string, h *consume.Consumer, workers consume.Workers) (func(context.Context) error, error) {
	if _, err := n.create(ctx, queue); err != nil {
		return nil, err
	}
	c, err := natsonce.Dial(ctx, n.url, natsonce.Queue{Stream: queue, Durable: "bench"}, h, &natsonce.Options{Workers: workers})
	if err != nil {
		return nil, err
	}
	return c.Run, nil
}

// bare has each acknowledgement confirmed.
func (n *natsServer) bare(ctx context.Context, queue string, handle func(context.Context, []byte) error) error {
	own := &natsServer{url: n.url}
	if err := own.connect(); err != nil {
		return err
	}
	stream, err := own.create(ctx, queue)
	if err != nil {
		return err
	}
	c, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "bench", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		return err
	}
	messages, err := c.Messages(jetstream.PullMaxMessages(2 * consumerWorkers))
	if err != nil {
		return err
	}
	for range consumerWorkers {
		go func() {
			for {
				m, err := messages.Next()
				if err != nil {
					return // the measurement is over
				}
				if handle(ctx, m.Data()) == nil {
					m.DoubleAck(ctx) //nolint:errcheck // as above
				}
			}
		}()
	}
	context.AfterFunc(ctx, own.conn.Close)
	return nil
}

func (n *natsServer) send(ctx context.Context, queue string, messages []sent) error {
	acks := make([]jetstream.PubAckFuture, len(messages))
	for i, m := range messages {
		var err error
		if acks[i], err = n.js.PublishMsgAsync(&nats.Msg{Subject: queue, Data: m.body, Header: nats.Header{"ce-id": {m.id}, "Content-Type": {"application/json"}}}); err != nil {
			return err
		}
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (n *natsServer) remove(queues []string) error {
	defer n.conn.Close()
	var errs []error
	for _, q := range queues {
		for _, name := range []string{q, q + "-dead", "KV_" + q + "-bench-retries"} {
			if err := n.js.DeleteStream(context.Background(), name); !errors.Is(err, jetstream.ErrStreamNotFound) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
