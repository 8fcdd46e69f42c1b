package kafkaonce

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume/internal/copies"
	"github.com/everonce/everonce/internal/envelope"
	"github.com/everonce/everonce/outbox"
)

// Publisher publishes the events of an outbox to topics. An event is published when all in-sync replicas have it. It
// connects when it has something to publish.
//
// A message has the event's key as record key, so that events with the same key are in one partition in their order.
// It has the event's ID in the header ce_id, by which [consume.ProducerID] recognises it when it is published again,
// the type in ce_type, the event's topic in ce_source, when it was inserted in ce_time, the content type in
// content-type, and the event's headers and payload. A header of the event with one of these names has precedence,
// except ce_id. Its timestamp is when it is published: the topic's retention would delete an event that waited for
// longer.
//
// The producer is idempotent, but Kafka forgets it when the relay ends: the next relay publishes again what the last
// one published and did not note, and Kafka keeps both.
type Publisher struct {
	client, alone *kgo.Client
	forgotten     forgotten
	topic         func(*outbox.Event) string
}

// PublisherOptions configure a publisher. The zero value of each field is its default.
type PublisherOptions struct {
	// Topic returns the topic for an event. Default: to the topic that the event names.
	Topic func(*outbox.Event) string
	// Client are further options of the client, as in [Options]. An event that is larger than
	// [kgo.ProducerBatchMaxBytes], default 1 MiB as in the broker, is sent alone.
	Client []kgo.Opt
}

// NewPublisher returns a publisher to the broker at url, which is as for [Dial]. opts may be nil. It sends nothing. The
// error wraps [everonce.ErrInvalidArgument].
func NewPublisher(url string, opts *PublisherOptions) (*Publisher, error) {
	var o PublisherOptions
	if opts != nil {
		o = *opts
	}
	if o.Topic == nil {
		o.Topic = func(e *outbox.Event) string { return e.Topic }
	}
	defaults := []kgo.Opt{kgo.ProducerBatchMaxBytes(defaultLargest)}
	client, err := newClient(url, append(defaults, o.Client...), []kgo.Opt{kgo.RequiredAcks(kgo.AllISRAcks())})
	if err != nil {
		return nil, err
	}
	alone, err := newAlone(url, o.Client)
	if err != nil {
		client.Close()
		return nil, err
	}
	return &Publisher{client: client, alone: alone, topic: o.Topic}, nil
}

// Publish implements [outbox.Publisher]. [outbox.ErrUnavailable]: no broker answers, or it refuses the user, or the
// topic does not exist or refuses the time at which the event is published. An event that the broker would always
// refuse, because it is too large for the topic or has no key for a compacted one, is set aside, without the events
// that are sent with it.
func (p *Publisher) Publish(ctx context.Context, events []outbox.Event) []error {
	return outbox.InOrder(ctx, events, p.send)
}

func (p *Publisher) send(ctx context.Context, events []outbox.Event) []error {
	errs, sent := make([]error, len(events)), make([]*produced, len(events))
	for i := range events {
		if r, err := p.record(&events[i]); err != nil {
			errs[i] = relayError(err)
		} else {
			sent[i] = p.forgotten.produce(p.client, p.alone, r)
		}
	}
	for i, s := range sent {
		if s != nil {
			errs[i] = relayError(s.wait(ctx))
		}
	}
	return errs
}

// Close closes the connection. Later calls of Publish fail.
func (p *Publisher) Close() error {
	p.client.Close()
	p.alone.Close()
	return nil
}

// record returns the record of an event.
func (p *Publisher) record(e *outbox.Event) (*kgo.Record, error) {
	r := &kgo.Record{Topic: p.topic(e), Value: e.Payload}
	if r.Topic == "" {
		return nil, fmt.Errorf("%w: it has no topic", errRefused)
	}
	if e.Key != "" {
		r.Key = []byte(e.Key)
	}
	if r.Value == nil {
		r.Value = []byte{} // null would be a tombstone
	}
	put := func(name, value string) {
		if value != "" {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
	}
	for name, value := range e.Headers {
		if copies.Ours(name) {
			return nil, fmt.Errorf("%w: a header's name begins with %s, which is not for producers", errRefused, copies.Prefix)
		}
		if name != headerID {
			put(name, value)
		}
	}
	put(headerContentType, e.ContentType)
	for name, value := range envelope.Kafka.Headers(envelope.Envelope{ID: e.ID, Type: e.Type, Source: e.Topic, Time: e.CreatedAt}) {
		if _, theirs := e.Headers[name]; !theirs || name == headerID {
			put(name, value)
		}
	}
	return r, nil
}

var errRefused = errors.New("kafkaonce: the event cannot be a message")

// relayError translates an answer of the broker for the relay.
func relayError(err error) error {
	switch {
	case err == nil:
		return nil
	case tooLarge(err):
		return everonce.Permanent("too_large", err, nil)
	case errors.Is(err, errRefused), errors.Is(err, kerr.InvalidTopicException), errors.Is(err, kerr.InvalidRecord):
		return everonce.Permanent("refused", err, nil)
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("kafkaonce: the topic does not exist: %w", err)
	case errors.Is(err, kerr.InvalidTimestamp): // a later try has a later time
		return fmt.Errorf("kafkaonce: the topic refuses the current time (compare the clocks, and see message.timestamp.before.max.ms and after.max.ms): %w", err)
	}
	return fmt.Errorf("%w: %w", outbox.ErrUnavailable, err)
}
