package monitortest

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/otelonce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// The messages of a batch go on in traces of their own, and a repetition is linked to the first delivery of its message.
func TestABatchIsInTheTracesOfItsMessages(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	o := must(otelonce.NewObserver(noop.NewMeterProvider(), trace.NewTracerProvider(trace.WithSpanProcessor(spans)), nil))(t)
	store := must(sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "batch.db"), nil))(t)
	defer store.Close()
	tx := must(everonce.NewTxReceiver(store, &everonce.Options{Observer: o}))(t)
	mail := o.Consumer("kafka", "mail")
	c := must(consume.NewTx(tx, consume.TxSpec[string, *sql.Tx]{
		Consumer: "mail", Key: consume.ProducerID(), Context: mail.Context, Observe: mail.Observe,
		HandleAll: func(context.Context, *sql.Tx, []consume.Received[string]) error { return nil },
	}))(t)
	traces := []string{"0af7651916cd43dd8448eb211c80319c", "1af7651916cd43dd8448eb211c80319c"}
	for range 2 {
		var ms []*consume.Message
		for _, id := range traces {
			ms = append(ms, &consume.Message{ID: id, Body: []byte(`"a"`), Headers: map[string]string{"traceparent": "00-" + id + "-b7ad6b7169203331-01"}})
		}
		for _, v := range c.HandleBatch(t.Context(), ms) {
			check(t, v.Err)
		}
	}
	first, again := map[string]string{}, 0
	for _, s := range spans.Ended() {
		if s.Name() != "everonce.transact" {
			continue
		}
		in := s.SpanContext().TraceID().String()
		switch met, seen := first[in]; {
		case !seen:
			first[in] = s.SpanContext().SpanID().String()
		case len(s.Links()) != 1 || s.Links()[0].SpanContext.SpanID().String() != met:
			t.Errorf("a repetition is linked to %+v, want %s", s.Links(), met)
		default:
			again++
		}
	}
	if first[traces[0]] == "" || first[traces[1]] == "" || again != 2 {
		t.Errorf("operations are in the traces %v; %d repetitions have links", first, again)
	}
}
