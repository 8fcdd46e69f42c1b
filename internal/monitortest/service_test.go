package monitortest

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/inbox"
	"github.com/everonce/everonce/janitor"
	"github.com/everonce/everonce/otelonce"
	"github.com/everonce/everonce/otelonce/scrape"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/saga"
	"github.com/everonce/everonce/store/sqlitestore"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// service runs all that is observed, on a new database, and returns what a scraper then sees.
func service(t *testing.T) string {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	provider, page, err := scrape.New()
	check(t, err)
	o := must(otelonce.NewObserver(provider, nil, nil))(t)
	store := must(sqlitestore.Open(ctx, filepath.Join(t.TempDir(), "service.db"), nil))(t)
	tx := must(everonce.NewTxReceiver(store, &everonce.Options{Observer: o}))(t)
	guarded := must(tx.Guarded(everonce.Refuse))(t)

	protect := must(httponce.Middleware(guarded, httponce.Unscoped(), &httponce.Options{
		Route: httponce.Route{Required: true, Wait: 10 * time.Second}, Observe: o.HTTP("POST /charges"),
	}))(t)
	shown := func() string {
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
		return w.Body.String()
	}
	began, finish := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle("POST /charges", protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { began <- struct{}{}; <-finish })))
	send := func(key string) {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/charges", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", key)
		mux.ServeHTTP(httptest.NewRecorder(), r)
	}
	for i := 0; !strings.Contains(shown(), "everonce_http_wait_duration_seconds_count"); i++ { // a repetition that comes too late does not wait
		var sent sync.WaitGroup
		sent.Go(func() { send(strconv.Itoa(i)) })
		<-began
		sent.Go(func() { send(strconv.Itoa(i)) })
		for !strings.Contains(shown(), "\neveronce_operations_running 2\n") {
			runtime.Gosched()
		}
		finish <- struct{}{}
		sent.Wait()
	}
	send("")

	mail := o.Consumer("rabbitmq", "mail")
	spec := consume.Spec[string]{
		Consumer: "mail", Key: consume.ProducerID(), Context: mail.Context, Observe: mail.Observe,
		Handle: func(context.Context, *consume.Message, string) error { return nil },
	}
	c := must(consume.New(guarded, spec))(t)
	for range 2 {
		c.Handle(ctx, &consume.Message{ID: "m-1", Body: []byte(`"a"`)})
	}
	c.Handle(ctx, &consume.Message{ID: "m-2", Body: []byte(`no JSON`)})
	closed := must(sqlitestore.Open(ctx, filepath.Join(t.TempDir(), "closed.db"), nil))(t)
	check(t, closed.Close())
	away := must(everonce.NewReceiver(closed, everonce.Refuse, &everonce.Options{Observer: o, StoreTimeout: time.Second}))(t)
	must(consume.New(away, spec))(t).Handle(ctx, &consume.Message{ID: "m-3", Body: []byte(`"a"`)})

	box := must(outbox.New(tx, nil))(t)
	in := must(inbox.New(tx, "billing", nil))(t)
	sagas := must(saga.New(tx))(t)
	check(t, errors.Join(box.Migrate(ctx), in.Migrate(ctx), sagas.Migrate(ctx)))
	fulfil := must(saga.Define("fulfilment", 1, saga.Step[string, *sql.Tx]{
		Name: "ship", Final: true, Action: func(context.Context, *saga.Call[string]) (any, error) { return nil, nil },
	}))(t)
	check(t, tx.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(box.Publish(ctx, tx, outbox.Event{Topic: "orders", Payload: []byte("{}")}), fulfil.Start(ctx, sagas, tx, "order-7", "lamp"))
	}))
	must(in.Receive(ctx, &consume.Message{ID: "m-1", Subject: "placed", Body: []byte("{}")}))(t)

	until(ctx, t, func(ctx context.Context, done func()) error {
		relay, err := box.Relay(outbox.One(1, func(context.Context, *outbox.Event) error { return nil }), &outbox.RelayOptions{
			Observe: func(ctx context.Context, e *outbox.Event, v outbox.Report) { o.Relayed(ctx, e, v); done() },
		})
		return errors.Join(err, relay.Run(ctx))
	})
	until(ctx, t, func(ctx context.Context, done func()) error {
		billing := o.Inbox("billing")
		worker, err := in.Worker(inbox.Handler[*sql.Tx]{Handle: func(context.Context, *sql.Tx, *consume.Message) error { return nil }}, &inbox.WorkerOptions{
			Context: billing.Context,
			Observe: func(ctx context.Context, m *consume.Message, v inbox.Report) { billing.Observe(ctx, m, v); done() },
		})
		return errors.Join(err, worker.Run(ctx))
	})
	until(ctx, t, func(ctx context.Context, done func()) error {
		runner, err := sagas.Runner(&saga.RunnerOptions{
			Observe: func(ctx context.Context, v saga.Report) { o.Saga(ctx, v); done() },
		}, fulfil)
		return errors.Join(err, runner.Run(ctx))
	})

	check(t, o.Backlog(ctx, "outbox", box.Backlog()))
	check(t, o.Backlog(ctx, "inbox billing", in.Backlog()))
	check(t, o.Backlog(ctx, "saga", sagas.Backlog()))
	o.Counted(store.Health(ctx, everonce.HealthRequest{}))
	until(ctx, t, func(ctx context.Context, done func()) error {
		j, err := janitor.New(store, &janitor.Options{Report: func(r janitor.Result, err error) { o.Purged(r, err); done() }})
		check(t, err)
		return j.Run(ctx)
	})
	text := shown()
	check(t, store.Close())
	return text
}

// until runs something until it says that it has done.
func until(ctx context.Context, t *testing.T, run func(ctx context.Context, done func()) error) {
	t.Helper()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	check(t, run(ctx, stop))
}

// must returns a value, or ends the test.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		check(t, err)
		return v
	}
}
