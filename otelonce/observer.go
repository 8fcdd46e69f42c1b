package otelonce

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/everonce/everonce"
)

// scopeName is the name of this library in OpenTelemetry.
const scopeName = "github.com/everonce/everonce/otelonce"

// Options are the options of an observer. The zero value of each field is its default.
type Options struct {
	// MaxValues is how many topics, and how many definitions of sagas, labels distinguish. Later ones are "other".
	// Default 100.
	MaxValues int
	// Propagator reads trace contexts from requests and messages, and writes them into events. Default: W3C's trace
	// context.
	Propagator propagation.TextMapPropagator
	// MessageIDs adds the messages' IDs to the spans of messages, as messaging.message.id. An ID is a key if
	// [consume.ProducerID] is used, and may be confidential for readers of traces. Without it, spans have the key's hash,
	// as the log does.
	MessageIDs bool
}

// Observer counts and traces. Make one per process. It is safe for concurrent use.
type Observer struct {
	figures
	tracer trace.Tracer // nil without traces
	carry  propagation.TextMapPropagator
	ids    bool // of messages, in spans
}

var (
	_ everonce.Observer = (*Observer)(nil)
	_ everonce.Tracer   = (*Observer)(nil)
)

// NewObserver returns an observer, for [everonce.Options]. Without a tracer provider it makes no spans. The error
// wraps [everonce.ErrInvalidArgument], or comes from the meter.
func NewObserver(meters metric.MeterProvider, tracers trace.TracerProvider, opts *Options) (*Observer, error) {
	if meters == nil {
		return nil, fmt.Errorf("%w: otelonce: the meter provider is nil (to trace only, use metric/noop's)", everonce.ErrInvalidArgument)
	}
	var set Options
	if opts != nil {
		set = *opts
	}
	if set.MaxValues < 0 {
		return nil, fmt.Errorf("%w: otelonce: MaxValues must not be negative", everonce.ErrInvalidArgument)
	}
	if set.MaxValues == 0 {
		set.MaxValues = 100
	}
	if set.Propagator == nil {
		set.Propagator = propagation.TraceContext{}
	}
	o := &Observer{carry: set.Propagator, ids: set.MessageIDs}
	if tracers != nil {
		o.tracer = tracers.Tracer(scopeName)
	}
	if err := o.figures.init(meters.Meter(scopeName), set.MaxValues); err != nil {
		return nil, fmt.Errorf("otelonce: the meter refuses an instrument: %w", err)
	}
	return o, nil
}

// Start implements [everonce.Observer].
func (o *Observer) Start(ctx context.Context, op everonce.Op) context.Context {
	o.running.Add(1)
	if o.tracer == nil {
		return ctx
	}
	return o.startOperation(ctx, &op)
}

// End implements [everonce.Observer].
func (o *Observer) End(ctx context.Context, ev everonce.Observation) {
	o.running.Add(-1)
	o.figures.operation(ctx, &ev)
	if o.tracer != nil {
		endOperation(ctx, &ev)
	}
}

// absorbed reports whether a call found the operation done, so that it did not take effect again.
func absorbed(ev *everonce.Observation) bool {
	switch ev.Outcome {
	case everonce.Replayed, everonce.Expired, everonce.Elided:
		return true
	case everonce.Rejected: // at the first rejection an attempt ran
		return ev.Attempt == 0
	}
	return false
}

// needsPerson reports whether an outcome needs an operator.
func needsPerson(o everonce.Outcome) bool {
	switch o {
	case everonce.Unknown, everonce.NotRecorded, everonce.LeaseLost, everonce.StoreFailed:
		return true
	}
	return false
}
