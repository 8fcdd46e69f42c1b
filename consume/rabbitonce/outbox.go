package rabbitonce

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume/internal/copies"
	"github.com/everonce/everonce/internal/envelope"
	"github.com/everonce/everonce/outbox"
)

// Publisher publishes the events of an outbox to exchanges of a broker. An event is published when the broker has
// confirmed it and has not returned it (mandatory). It connects when it has something to publish, and again after a
// loss.
//
// A message has the event's ID as its message-id, by which [consume.ProducerID] recognises it when it is published
// again, and the event's type, content type, headers and payload; its timestamp is when the event was inserted. Topic,
// key and exact time are in the headers cloudEvents:source, cloudEvents:partitionkey and cloudEvents:time, unless the
// event has such a header. It is persistent.
//
// Up to 128 events are published concurrently on one channel, but only one at a time with the same key.
type Publisher struct {
	out     *publisher
	address func(*outbox.Event) Address
}

// Address is the destination of an event.
type Address struct {
	// Exchange is the exchange's name. The exchange "" sends a message to the queue that its routing key names.
	Exchange string
	// RoutingKey has at most 255 bytes.
	RoutingKey string
}

// PublisherOptions configure a publisher. The zero value of each field is its default.
type PublisherOptions struct {
	// Address returns the destination of an event. Default: to the queue whose name is the event's topic.
	Address func(*outbox.Event) Address
	// URLs is as in [Options]. Default: the URL given to NewPublisher.
	URLs func(context.Context) ([]string, error)
	// TLS is as in [Options]. Default: as in Options.
	TLS *tls.Config
	// Heartbeat is as in [Options]. Default 10 s.
	Heartbeat time.Duration
	// Name is the name of the connection for operators. Default "outbox".
	Name string
}

// ErrUnroutable says that the broker has returned an event, because no queue gets it. It counts as a failure of the
// event, which is published again later.
var ErrUnroutable = errors.New("rabbitonce: no queue takes the event (declare a queue, or bind one to the exchange)")

// NewPublisher returns a publisher to the broker at url, which must be empty if URLs is set. opts may be nil. It sends
// nothing. The error wraps [everonce.ErrInvalidArgument].
func NewPublisher(url string, opts *PublisherOptions) (*Publisher, error) {
	var o PublisherOptions
	if opts != nil {
		o = *opts
	}
	if o.Heartbeat = cmp.Or(o.Heartbeat, 10*time.Second); o.Heartbeat < time.Second {
		return nil, fmt.Errorf("%w: rabbitonce: Heartbeat is %v, and must be at least 1s", everonce.ErrInvalidArgument, o.Heartbeat)
	}
	if o.Address == nil {
		o.Address = func(e *outbox.Event) Address { return Address{RoutingKey: e.Topic} }
	}
	d, err := (&Options{URLs: o.URLs, TLS: o.TLS, Heartbeat: o.Heartbeat, Name: cmp.Or(o.Name, "outbox")}).dialing(url)
	if err != nil {
		return nil, err
	}
	if o.URLs == nil {
		if _, err := d.brokers(context.Background()); err != nil {
			return nil, err
		}
	}
	return &Publisher{out: newPublisher(d), address: o.Address}, nil
}

// Publish implements [outbox.Publisher]. [outbox.ErrUnavailable]: there is no connection, the broker blocks
// publishers, refuses the user, or its queue is full. [ErrUnroutable] and a missing exchange count as failures of the
// event. An event that the broker would always refuse, for example as too large, is set aside.
func (p *Publisher) Publish(ctx context.Context, events []outbox.Event) []error {
	return outbox.InOrder(ctx, events, func(ctx context.Context, events []outbox.Event) []error {
		errs := make([]error, len(events))
		parcels := make([]parcel, 0, len(events))
		at := make([]int, 0, len(events))
		for i := range events {
			to, err := p.parcel(&events[i])
			if err != nil {
				errs[i] = everonce.Permanent("refused", err, nil)
				continue
			}
			parcels, at = append(parcels, to), append(at, i)
		}
		for n, err := range p.out.publishAll(ctx, parcels) {
			errs[at[n]] = relayError(err)
		}
		return errs
	})
}

// Close closes the connection. Later calls of Publish fail.
func (p *Publisher) Close() error { return p.out.close() }

// maxShort is the length of AMQP's short strings, in bytes.
const maxShort = 255

// parcel returns the message of an event and its destination.
func (p *Publisher) parcel(e *outbox.Event) (parcel, error) {
	to := p.address(e)
	if len(to.Exchange) > maxShort || len(to.RoutingKey) > maxShort {
		return parcel{}, fmt.Errorf("rabbitonce: the name of an exchange, or a routing key, has more than %d bytes", maxShort)
	}
	headers := make(amqp.Table, len(e.Headers)+3)
	for name, value := range envelope.AMQP.Headers(envelope.Envelope{Source: e.Topic, Key: e.Key, Time: e.CreatedAt}) {
		headers[name] = value
	}
	for name, value := range e.Headers {
		if len(name) > maxShort || copies.Ours(name) {
			return parcel{}, fmt.Errorf("rabbitonce: a header's name has more than %d bytes, or begins with %s, which is not for producers", maxShort, copies.Prefix)
		}
		headers[name] = value
	}
	msg := amqp.Publishing{
		MessageId: e.ID, Type: e.Type, ContentType: e.ContentType, Headers: headers, Timestamp: e.CreatedAt, DeliveryMode: amqp.Persistent, Body: e.Payload,
	}
	for _, text := range []string{msg.MessageId, msg.Type, msg.ContentType} {
		if len(text) > maxShort { // the client library would close the connection
			return parcel{}, fmt.Errorf("rabbitonce: the event's ID, type or content type has more than %d bytes", maxShort)
		}
	}
	return parcel{to, msg}, nil
}

// relayError translates an answer of the broker for the relay.
func relayError(err error) error {
	e, _ := errors.AsType[*amqp.Error](err)
	switch {
	case err == nil, errors.Is(err, ErrUnroutable):
		return err
	case errors.Is(err, errTooLarge):
		return everonce.Permanent("too_large", err, nil)
	case e != nil && e.Code == amqp.NotFound:
		return fmt.Errorf("rabbitonce: the exchange does not exist: %w", err)
	case e != nil && e.Server && e.Code == amqp.PreconditionFailed:
		return everonce.Permanent("refused", err, nil)
	}
	return fmt.Errorf("%w: %w", outbox.ErrUnavailable, err)
}
