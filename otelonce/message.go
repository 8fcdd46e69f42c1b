package otelonce

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/inbox"
)

// Consumer observes a consumer, or the worker of an inbox.
type Consumer struct {
	o         *Observer
	name      string
	base      []attribute.KeyValue // labels
	byVerdict labels[decided]
	byReason  labels[consume.Reason]
}

// decided has the values of a delivery's labels.
type decided struct {
	disposition string
	outcome     everonce.Outcome
}

// Consumer returns an observer of a consumer: its Context and Observe are for the consumer's spec. The system is the
// broker's name in OpenTelemetry's conventions: "rabbitmq", "kafka", "aws_sqs", "nats".
func (o *Observer) Consumer(system, name string) *Consumer {
	c := &Consumer{o: o, base: []attribute.KeyValue{keySystem.String(system), keyConsumer.String(name)}, name: name}
	c.byVerdict.of = func(d decided) []attribute.KeyValue {
		all := append(slices.Clone(c.base), keyDisposition.String(d.disposition))
		if d.outcome != 0 {
			all = append(all, keyOutcome.String(d.outcome.String()))
		}
		return all
	}
	c.byReason.of = func(r consume.Reason) []attribute.KeyValue {
		return append(slices.Clone(c.base), keyReason.String(string(r)))
	}
	for _, r := range []consume.Reason{
		consume.Rejected, consume.Exhausted, consume.Mismatch, consume.Unknown, consume.NoKey, consume.Undecodable, consume.TooLarge, consume.BadRecord,
		"broker_delivery_limit",
	} {
		o.deadLetters.Add(context.Background(), 0, c.byReason.get(r).add...)
	}
	o.messages.Add(context.Background(), 0, c.byVerdict.get(decided{consume.Hold.String(), everonce.StoreFailed}).add...)
	return c
}

// handling is the state of a delivery in the context of its message.
type handling struct {
	began time.Time
	span  trace.Span // nil without traces
}

type handlingKey struct{}

// Context is for Context of [consume.Spec], [consume.TxSpec] and [consume.NaturalSpec]. With traces it starts a span,
// in the trace that the message's headers name.
func (c *Consumer) Context(ctx context.Context, m *consume.Message) context.Context {
	h := &handling{began: time.Now()}
	if c.o.tracer != nil {
		ctx = c.o.carry.Extract(ctx, propagation.MapCarrier(m.Headers))
		ctx, h.span = c.o.tracer.Start(ctx, "process "+c.name, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(c.base...)) //nolint:spancheck // Observe ends it
		if h.span.IsRecording() {
			h.span.SetAttributes(attribute.String("messaging.operation.name", "process"), attribute.String("messaging.operation.type", "process"),
				keyDestination.String(m.Source), attribute.Int("messaging.message.body.size", len(m.Body)))
			if c.o.ids {
				h.span.SetAttributes(attribute.String("messaging.message.id", m.ID))
			}
		}
	}
	return context.WithValue(ctx, handlingKey{}, h)
}

// Observe is for Observe of the same spec.
func (c *Consumer) Observe(ctx context.Context, _ *consume.Message, v consume.Decision) {
	with := c.byVerdict.get(decided{v.Disposition.String(), v.Outcome})
	c.o.messages.Add(ctx, 1, with.add...)
	if v.Disposition == consume.SetAside {
		c.o.deadLetters.Add(ctx, 1, c.byReason.get(v.Death.Reason).add...)
	}
	if h, ok := ctx.Value(handlingKey{}).(*handling); ok {
		c.o.processing.Record(ctx, time.Since(h.began).Seconds(), with.record...)
		h.end(v.Disposition.String(), v.Disposition != consume.Ack, attribute.String("everonce.key_hash", v.KeyHash))
	}
}

// end ends the span.
func (h *handling) end(disposition string, failed bool, more ...attribute.KeyValue) {
	if h.span == nil {
		return
	}
	h.span.SetAttributes(append(more, attribute.String("everonce.disposition", disposition))...)
	if failed {
		h.span.SetStatus(codes.Error, disposition)
		h.span.SetAttributes(attribute.String("error.type", disposition))
	}
	h.span.End()
}

// Inbox observes the worker of an inbox: Context and Observe are for [inbox.WorkerOptions].
type Inbox struct {
	consumer *Consumer
	byHow    labels[inbox.Disposition]
}

// Inbox returns an observer of the worker of a consumer's inbox.
func (o *Observer) Inbox(consumer string) *Inbox {
	in := &Inbox{consumer: &Consumer{o: o, name: consumer, base: []attribute.KeyValue{keySystem.String("everonce_inbox"), keyConsumer.String(consumer)}}}
	in.byHow.of = func(d inbox.Disposition) []attribute.KeyValue {
		return []attribute.KeyValue{keyConsumer.String(consumer), keyOutcome.String(d.String())}
	}
	for d := inbox.Handled; d <= inbox.Lost; d++ {
		o.inboxed.Add(context.Background(), 0, in.byHow.get(d).add...)
	}
	return in
}

// Context is for [inbox.WorkerOptions].Context. With traces it starts a span, in the trace that the message's headers
// name.
func (in *Inbox) Context(ctx context.Context, m *consume.Message) context.Context {
	return in.consumer.Context(ctx, m)
}

// Observe is for [inbox.WorkerOptions].Observe.
func (in *Inbox) Observe(ctx context.Context, _ *consume.Message, v inbox.Report) {
	o, with := in.consumer.o, in.byHow.get(v.How)
	o.inboxed.Add(ctx, 1, with.add...)
	if v.How == inbox.Handled {
		o.handled.Record(ctx, v.Lag.Seconds(), with.record...)
	}
	if h, ok := ctx.Value(handlingKey{}).(*handling); ok {
		h.end(v.How.String(), v.How == inbox.Retried || v.How == inbox.SetAside || v.How == inbox.Lost)
	}
}

// carried returns the span context in headers, if any.
func (o *Observer) carried(headers map[string]string) trace.SpanContext {
	return trace.SpanContextFromContext(o.carry.Extract(context.Background(), propagation.MapCarrier(headers)))
}
