package otelonce

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/everonce/everonce"
)

// spanNames are the names of spans by the kinds of calls.
var spanNames = map[string]string{
	"do": "everonce.do", "transact": "everonce.transact", "do_tx": "everonce.do_tx",
	"step": "everonce.step", "step_tx": "everonce.step_tx", "settle": "everonce.settle",
}

// startOperation starts the span of a call.
func (o *Observer) startOperation(ctx context.Context, op *everonce.Op) context.Context {
	ctx, _ = o.tracer.Start(ctx, spanNames[op.Kind]) //nolint:spancheck // endOperation ends it
	return ctx
}

// endOperation ends the span of a call. It leaves out an error's text, which may have confidential data of the
// application.
func endOperation(ctx context.Context, ev *everonce.Observation) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	outcome := ev.Outcome.String()
	about := append(make([]attribute.KeyValue, 0, 8),
		attribute.String("everonce.key_hash", ev.KeyHash), attribute.String("everonce.outcome", outcome), attribute.Int("everonce.attempt", ev.Attempt))
	if ev.Step != "" {
		about = append(about, attribute.String("everonce.step", ev.Step))
	}
	if ev.Provisional {
		about = append(about, attribute.Bool("everonce.provisional", true))
	}
	if ev.Reconciled {
		about = append(about, attribute.Bool("everonce.reconciled", true))
	}
	if ev.LeaseLost {
		about = append(about, attribute.Bool("everonce.lease_lost", true))
	}
	if needsPerson(ev.Outcome) || ev.Outcome == everonce.Failed {
		span.SetStatus(codes.Error, outcome)
		about = append(about, attribute.String("error.type", outcome))
	}
	span.SetAttributes(about...)
	if met := spanOf(ev.Met); met.IsValid() {
		span.AddLink(trace.Link{SpanContext: met})
	}
	span.End()
}

// traceparent is the name of W3C's header with the context of a span.
const traceparent = "traceparent"

// Trace implements [everonce.Tracer]: it returns the span's context in the format of W3C's header traceparent, if the
// span is sampled.
func (o *Observer) Trace(ctx context.Context) string {
	if o.tracer == nil || !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	to := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, to)
	return to[traceparent]
}

// spanOf parses a result of Trace. It returns an empty span context for other text.
func spanOf(text string) trace.SpanContext {
	from := propagation.MapCarrier{traceparent: text}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), from))
}

// Continue continues the trace that the headers of a request name, unless another middleware has already started a
// span. It does not start a span: use otelhttp for that.
func (o *Observer) Continue(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !trace.SpanContextFromContext(r.Context()).IsValid() {
			r = r.WithContext(o.carry.Extract(r.Context(), propagation.HeaderCarrier(r.Header)))
		}
		next.ServeHTTP(w, r)
	})
}

// Headers returns the headers of an outbox's event that carry the trace of ctx on, or nil without one.
func (o *Observer) Headers(ctx context.Context) map[string]string {
	to := propagation.MapCarrier{}
	o.carry.Inject(ctx, to)
	if len(to) == 0 {
		return nil
	}
	return to
}
