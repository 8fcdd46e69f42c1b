package otelonce_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	api "go.opentelemetry.io/otel/trace"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/internal/leftover"
	"github.com/everonce/everonce/otelonce"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/store/memstore"
)

func TestMain(m *testing.M) { leftover.Main(m) }

// traced returns an observer, and its spans by their names.
func traced(t *testing.T, opts ...trace.TracerProviderOption) (*otelonce.Observer, func(name string) []trace.ReadOnlySpan) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	o, err := otelonce.NewObserver(noop.NewMeterProvider(), trace.NewTracerProvider(append(opts, trace.WithSpanProcessor(spans))...), nil)
	if err != nil {
		t.Fatal(err)
	}
	return o, func(name string) (found []trace.ReadOnlySpan) {
		for _, s := range spans.Ended() {
			if s.Name() == name {
				found = append(found, s)
			}
		}
		return found
	}
}

func receiver(t *testing.T, store everonce.Store, o *otelonce.Observer, p everonce.Policy) *everonce.Receiver {
	t.Helper()
	r, err := everonce.NewReceiver(store, p, &everonce.Options{Observer: o})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const (
	parent  = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	traceID = "0af7651916cd43dd8448eb211c80319c"
)

// A request goes on in its trace, and the work and its steps in the operation's. A repetition in another process, in another trace, is linked to
// the span of the first attempt; so is an attempt that takes over.
func TestReplayIsLinkedToTheFirstAttempt(t *testing.T) {
	store := memstore.New(nil)
	first, spans := traced(t)
	protect, err := httponce.Middleware(receiver(t, store, first, everonce.Reexecute), httponce.Unscoped(), nil)
	if err != nil {
		t.Fatal(err)
	}
	fails := true
	h := first.Continue(protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, _ := everonce.AttemptFrom(r.Context())
		_, _ = everonce.Step(r.Context(), a, "mail", func(context.Context) (string, error) { return "", nil })
		if fails {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})))
	send := func(h http.Handler, trace string) {
		r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", "order-1")
		if trace != "" {
			r.Header.Set("Traceparent", trace)
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	send(h, parent)
	fails = false
	send(h, "")
	done := spans("everonce.do")
	if got := done[0]; got.SpanContext().TraceID().String() != traceID || got.Parent().SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("the first attempt is in the trace %v, behind %v", got.SpanContext().TraceID(), got.Parent().SpanID())
	}
	if got := spans("everonce.step")[0]; got.Parent().SpanID() != done[0].SpanContext().SpanID() {
		t.Errorf("the step is behind %v", got.Parent().SpanID())
	}
	linked(t, "an attempt behind another", done[1], done[0])

	second, others := traced(t)
	if protect, err = httponce.Middleware(receiver(t, store, second, everonce.Reexecute), httponce.Unscoped(), nil); err != nil {
		t.Fatal(err)
	}
	send(second.Continue(protect(http.NotFoundHandler())), "")
	replay := others("everonce.do")[0]
	linked(t, "the replay", replay, done[1])
	if replay.SpanContext().TraceID() == done[1].SpanContext().TraceID() {
		t.Error("the replay is in the trace of the first")
	}
	want(t, replay, attribute.String("everonce.outcome", "replayed"))
	for _, span := range []trace.ReadOnlySpan{done[0], done[1], replay} {
		for _, kv := range span.Attributes() {
			if strings.Contains(kv.Value.String(), "order-1") {
				t.Errorf("%s has the key in %s", span.Name(), kv.Key)
			}
		}
	}
}

func linked(t *testing.T, what string, from, to trace.ReadOnlySpan) {
	t.Helper()
	links := from.Links()
	if len(links) != 1 || links[0].SpanContext.SpanID() != to.SpanContext().SpanID() || links[0].SpanContext.TraceID() != to.SpanContext().TraceID() {
		t.Errorf("%s is linked to %+v, want %v", what, links, to.SpanContext().SpanID())
	}
}

func want(t *testing.T, span trace.ReadOnlySpan, attrs ...attribute.KeyValue) {
	t.Helper()
	has := attribute.NewSet(span.Attributes()...)
	for _, kv := range attrs {
		if v, ok := has.Value(kv.Key); !ok || v != kv.Value {
			t.Errorf("%s has %s=%s, want %s", span.Name(), kv.Key, v.String(), kv.Value.String())
		}
	}
}

// The context of a span that is not sampled is not written into the record, since the span cannot be looked up.
func TestNothingIsWrittenOfATraceThatIsNotSampled(t *testing.T) {
	o, _ := traced(t, trace.WithSampler(trace.NeverSample()))
	r := receiver(t, memstore.New(nil), o, everonce.Refuse)
	_, err := everonce.Do(t.Context(), r, everonce.Key{Scope: "s", ID: "1"}, func(ctx context.Context, _ *everonce.Attempt) (string, error) {
		if text := o.Trace(ctx); text != "" {
			t.Errorf("Trace is %q", text)
		}
		return "", nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A message's ID may be a key: spans have the key's hash, and the ID only on request.
func TestMessageIDsInSpans(t *testing.T) {
	for _, asked := range []bool{false, true} {
		spans := tracetest.NewSpanRecorder()
		o, err := otelonce.NewObserver(noop.NewMeterProvider(), trace.NewTracerProvider(trace.WithSpanProcessor(spans)), &otelonce.Options{MessageIDs: asked})
		if err != nil {
			t.Fatal(err)
		}
		mail := o.Consumer("rabbitmq", "mail")
		m := &consume.Message{ID: "iban-DE02", Source: "orders"}
		mail.Observe(mail.Context(t.Context(), m), m, consume.Decision{Disposition: consume.Ack, KeyHash: "c0ffee"})
		told := fmt.Sprint(spans.Ended()[0].Attributes())
		if strings.Contains(told, m.ID) != asked || !strings.Contains(told, "c0ffee") {
			t.Errorf("MessageIDs %v: the span tells %s", asked, told)
		}
	}
}

// An event takes the trace of its operation along; the relay's span is linked to it, and the consumer goes on in it.
func TestATraceGoesThroughAnOutbox(t *testing.T) {
	o, spans := traced(t)
	ctx, span := trace.NewTracerProvider().Tracer("").Start(t.Context(), "the application's")
	events := []outbox.Event{{Topic: "orders", Headers: o.Headers(ctx)}, {Topic: "orders"}}
	span.End()
	if o.Headers(t.Context()) != nil {
		t.Error("there are headers without a trace")
	}
	errs := o.Publisher("rabbitmq", outbox.PublisherFunc(func(context.Context, []outbox.Event) []error { return []error{nil, errors.New("no")} })).
		Publish(t.Context(), events)
	sent := spans("send orders")[0]
	if len(errs) != 2 || errs[1] == nil || len(sent.Links()) != 1 || sent.Links()[0].SpanContext.TraceID() != span.SpanContext().TraceID() {
		t.Errorf("%v; the publisher's span is linked to %+v", errs, sent.Links())
	}
	want(t, sent, attribute.String("messaging.system", "rabbitmq"), attribute.String("messaging.destination.name", "orders"), attribute.Int("messaging.batch.message_count", 2))

	mail := o.Consumer("rabbitmq", "mail")
	c, err := consume.New(receiver(t, memstore.New(nil), o, everonce.Refuse), consume.Spec[string]{
		Consumer: "mail", Key: consume.ProducerID(), Context: mail.Context, Observe: mail.Observe,
		Handle: func(ctx context.Context, _ *consume.Message, _ string) error {
			if got := api.SpanContextFromContext(ctx).TraceID(); got != span.SpanContext().TraceID() {
				t.Errorf("the handler is in the trace %v", got)
			}
			return everonce.Permanent("no_address", nil, nil)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Handle(t.Context(), &consume.Message{ID: "e-1", Source: "orders", Headers: events[0].Headers, Body: []byte(`"a"`)})
	process := spans("process mail")[0]
	if process.Parent().SpanID() != span.SpanContext().SpanID() || spans("everonce.do")[0].Parent().SpanID() != process.SpanContext().SpanID() {
		t.Errorf("the consumer's span is behind %v, the operation's behind %v", process.Parent().SpanID(), spans("everonce.do")[0].Parent().SpanID())
	}
	want(t, process, attribute.String("messaging.operation.type", "process"), attribute.String("everonce.disposition", "set_aside"), attribute.String("messaging.consumer.group.name", "mail"))
}
