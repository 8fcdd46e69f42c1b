// Package eventbridgeonce publishes the events of an outbox to EventBridge. It is tested only with a fake of the
// documented API.
package eventbridgeonce

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume/sqsonce"
	"github.com/everonce/everonce/consume/sqsonce/internal/entries"
	"github.com/everonce/everonce/outbox"
)

// Client has the methods of [*eventbridge.Client] that this package uses.
type Client interface {
	PutEvents(ctx context.Context, in *eventbridge.PutEventsInput, optFns ...func(*eventbridge.Options)) (*eventbridge.PutEventsOutput, error)
}

// Publisher publishes events, up to ten in a call. An event is published when EventBridge has confirmed it.
//
// An event's detail is its payload, which must be a JSON object, and its detail-type is its type, or its topic if it
// has none. EventBridge has no field for headers; they are left out. It gives each event a new id at each publish. The
// event's own ID is among the resources, as [sqsonce.EventResource] and the ID, where a consumer with
// [sqsonce.EventBridge] finds it.
//
// EventBridge keeps no order: events with the same key are sent one after the other, and may arrive in another order.
type Publisher struct {
	client      Client
	bus, source string
}

// NewPublisher returns a publisher to an event bus, by its name or ARN; source says where events come from
// ("shop.orders"). It sends nothing. The error wraps [everonce.ErrInvalidArgument].
func NewPublisher(client Client, bus, source string) (*Publisher, error) {
	if client == nil || bus == "" || source == "" {
		return nil, fmt.Errorf("%w: eventbridgeonce: the client, the bus or the source is missing", everonce.ErrInvalidArgument)
	}
	return &Publisher{client, bus, source}, nil
}

// Publish implements [outbox.Publisher]. [outbox.ErrUnavailable]: EventBridge does not answer, refuses the
// credentials, or throttles the calls. An event whose payload is not a JSON object, or that is too large, is set
// aside.
func (p *Publisher) Publish(ctx context.Context, events []outbox.Event) []error {
	return entries.Publish(ctx, events, entries.Others, p.entry, p.send)
}

func (p *Publisher) entry(e *outbox.Event) (made entries.Entry[types.PutEventsRequestEntry], err error) {
	var object map[string]json.RawMessage
	if json.Unmarshal(e.Payload, &object) != nil || object == nil {
		return made, errors.New("eventbridgeonce: the payload is not a JSON object")
	}
	kind := cmp.Or(e.Type, e.Topic)
	made.Is = types.PutEventsRequestEntry{
		EventBusName: &p.bus, Source: &p.source, DetailType: &kind, Detail: aws.String(string(e.Payload)), Time: &e.CreatedAt,
		Resources: []string{sqsonce.EventResource + e.ID},
	}
	if e.CreatedAt.IsZero() {
		made.Is.Time = nil
	}
	made.Size = 14 + len(p.source) + len(kind) + len(e.Payload) + len(made.Is.Resources[0])
	return made, nil
}

func (p *Publisher) send(ctx context.Context, list []types.PutEventsRequestEntry) ([]error, error) {
	out, err := p.client.PutEvents(ctx, &eventbridge.PutEventsInput{Entries: list})
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(list))
	if len(out.Entries) != len(list) {
		return nil, fmt.Errorf("eventbridgeonce: %d answers for %d events", len(out.Entries), len(list))
	}
	for i, r := range out.Entries {
		switch code := aws.ToString(r.ErrorCode); code {
		case "":
		case "ThrottlingException", "InternalFailure", "InternalException":
			errs[i] = fmt.Errorf("%w: %s: %s", outbox.ErrUnavailable, code, aws.ToString(r.ErrorMessage))
		default:
			errs[i] = entries.Failed(code, aws.ToString(r.ErrorMessage), code == "MalformedDetail")
		}
	}
	return errs, nil
}
