package otelonce

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/saga"
)

// Relayed is for [outbox.RelayOptions].Observe.
func (o *Observer) Relayed(ctx context.Context, e *outbox.Event, v outbox.Report) {
	with := metric.WithAttributeSet(attribute.NewSet(keyDestination.String(o.topics.label(e.Topic)), keyOutcome.String(v.How.String())))
	o.events.Add(ctx, 1, with)
	if v.How == outbox.Published {
		o.published.Record(ctx, v.Lag.Seconds(), with)
	}
}

// Publisher traces what a relay publishes: a span for each call, with links to the traces that its events' headers
// name. It does not change the headers. Without traces it returns next. The system is as for [Observer.Consumer].
func (o *Observer) Publisher(system string, next outbox.Publisher) outbox.Publisher {
	if o.tracer == nil {
		return next
	}
	return outbox.PublisherFunc(func(ctx context.Context, events []outbox.Event) []error {
		if len(events) == 0 {
			return next.Publish(ctx, events)
		}
		topic := o.topics.label(events[0].Topic)
		var links []trace.Link
		for i := range events {
			if from := o.carried(events[i].Headers); from.IsValid() {
				links = append(links, trace.Link{SpanContext: from})
			}
		}
		ctx, span := o.tracer.Start(ctx, "send "+topic, trace.WithSpanKind(trace.SpanKindProducer), trace.WithLinks(links...), trace.WithAttributes(
			keySystem.String(system), keyDestination.String(topic), attribute.String("messaging.operation.name", "send"),
			attribute.String("messaging.operation.type", "send"), attribute.Int("messaging.batch.message_count", len(events))))
		defer span.End()
		errs := next.Publish(ctx, events)
		failed := 0
		for _, err := range errs {
			if err != nil {
				failed++
			}
		}
		if failed > 0 {
			span.SetStatus(codes.Error, "not all were published")
			span.SetAttributes(attribute.Int("everonce.outbox.failed", failed))
		}
		return errs
	})
}

// Saga is for [saga.RunnerOptions].Observe. If a saga was set aside for an operator, its state is "set_aside".
func (o *Observer) Saga(ctx context.Context, v saga.Report) {
	state := string(v.Status)
	if v.Waits {
		state = "set_aside"
	}
	o.sagas.Add(ctx, 1, metric.WithAttributes(keyDefinition.String(o.definitions.label(v.Definition)), keyState.String(state)))
}
