package monitortest

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/otelonce"
	"github.com/everonce/everonce/otelonce/scrape"
	"github.com/everonce/everonce/store/sqlitestore"
)

// The messages of a batch continue their own traces, and a repetition links to the first delivery of its message.
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

// A repetition in a database is linked to the first time, and its delay is counted, whichever way its transaction goes.
func TestRepetitionsInADatabase(t *testing.T) {
	provider, page, err := scrape.New()
	check(t, err)
	spans := tracetest.NewSpanRecorder()
	o := must(otelonce.NewObserver(provider, trace.NewTracerProvider(trace.WithSpanProcessor(spans)), nil))(t)
	store := must(sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "shop.db"), nil))(t)
	defer store.Close()
	tx := must(everonce.NewTxReceiver(store, &everonce.Options{Observer: o}))(t)
	for _, way := range [][]everonce.CallOption{nil, nil, {everonce.Optimistic()}} {
		_, err := everonce.Transact(t.Context(), tx, everonce.Key{Scope: "s", ID: "1"}, func(context.Context, *sql.Tx) (string, error) { return "", nil }, way...)
		check(t, err)
	}
	check(t, tx.InTx(t.Context(), func(ctx context.Context, in *sql.Tx) error {
		_, err := everonce.DoTx(ctx, in, tx, everonce.Key{Scope: "s", ID: "1"}, func(context.Context) (string, error) { return "", nil })
		return err
	}))
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if !strings.Contains(w.Body.String(), "\neveronce_repeat_delay_seconds_count 3\n") {
		t.Error("the delays of three repetitions were not counted")
	}
	first := spans.Ended()[0].SpanContext().SpanID()
	for _, s := range spans.Ended()[1:] {
		if len(s.Links()) != 1 || s.Links()[0].SpanContext.SpanID() != first {
			t.Errorf("%s is linked to %+v", s.Name(), s.Links())
		}
	}
}
