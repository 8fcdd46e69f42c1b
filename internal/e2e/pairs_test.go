package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/client"
	"github.com/everonce/everonce/httponce/proxy"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/outbox/webhook"
	"github.com/everonce/everonce/saga"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/sqlsession"
	"github.com/everonce/everonce/store/sqlitestore"
)

// The tests in this file join two parts as a user would: with the defaults of both, and an answer between them that is
// lost.

// answerLost hands every request on, and closes the connection in place of the first answers.
func answerLost(answers int32, next http.Handler) http.Handler {
	var lost atomic.Int32
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if lost.Add(1) > answers {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	})
}

func serve(t *testing.T, h http.Handler) *url.URL {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func txReceiver(t *testing.T, store *sqlitestore.Store) *everonce.TxReceiver[*sql.Tx] {
	t.Helper()
	recv, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	return recv
}

// bookTx enters a request's body into the ledger.
func bookTx(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
	return book(w, r, func(order string) (int64, error) { return enter(r.Context(), tx, order) })
}

func enter(ctx context.Context, tx *sql.Tx, op string) (line int64, err error) {
	err = tx.QueryRowContext(ctx, `INSERT INTO ledger (op) VALUES (?) RETURNING line`, op).Scan(&line)
	return line, err
}

// wantLedger compares the ledger with the operations that it must hold, each once.
func wantLedger(t *testing.T, store *sqlitestore.Store, want ...string) {
	t.Helper()
	var got sql.NullString
	err := store.DB().QueryRowContext(t.Context(), `SELECT group_concat(op, ' ') FROM (SELECT op FROM ledger ORDER BY op)`).Scan(&got)
	if err != nil || got.String != strings.Join(want, " ") {
		t.Errorf("the ledger has %q, %v, want %q", got.String, err, want)
	}
}

// send posts an order, and returns the status, the body, and the mark of a replay.
func send(t *testing.T, c *http.Client, to, body string) (status int, text, mark string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b), res.Header.Get("Idempotent-Replayed")
}

// proxied returns a proxy in front of a service, with a store and a middleware as everonce proxy has them.
func proxied(t *testing.T, upstream *url.URL) http.Handler {
	t.Helper()
	store, err := sqlitestore.Open(t.Context(), filepath.Join(memoryDir(t), "proxy.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	recv, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := proxy.New(upstream, nil)
	if err != nil {
		t.Fatal(err)
	}
	return protect(p)
}

// TestPairClientProxyMiddleware: the client's key goes through the proxy to a service that recognises it too. One
// answer is lost in front of the proxy: the proxy replays it.
func TestPairClientProxyMiddleware(t *testing.T) {
	t.Parallel()
	books := openBooks(t)
	service, err := httponce.HandleTx(txReceiver(t, books), httponce.Unscoped(), bookTx, nil)
	if err != nil {
		t.Fatal(err)
	}
	front := serve(t, answerLost(1, proxied(t, serve(t, service))))
	transport, err := client.NewTransport(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	status, body, mark := send(t, &http.Client{Transport: transport}, front.String(), "order-1")
	if status != http.StatusCreated || !strings.Contains(body, `"line":1`) || mark != "true" {
		t.Errorf("%d %s, replayed %q", status, body, mark)
	}
	wantLedger(t, books, "order-1")
}

// TestPairSessionClientProxy: the proxy passes on a session's registration and its numbered requests, which have no
// key.
func TestPairSessionClientProxy(t *testing.T) {
	t.Parallel()
	books := openBooks(t)
	sessions, err := sqlsession.New(txReceiver(t, books), session.Config{Lease: time.Minute}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sessions.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	charge, err := httponce.HandleSession(sessions, httponce.Unscoped(), bookTx, nil)
	if err != nil {
		t.Fatal(err)
	}
	register, err := httponce.Sessions(sessions, httponce.Unscoped(), nil)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/sessions", register)
	mux.Handle("/charge", charge)
	through := proxied(t, serve(t, mux))
	front := http.NewServeMux()
	front.Handle("/", through)
	front.Handle("/charge", answerLost(1, through))
	at := serve(t, front)
	sender, err := client.NewSession(at.JoinPath("sessions").String(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sender.Close(context.Background()) })
	for i := range 3 {
		status, body, _ := send(t, &http.Client{Transport: sender}, at.JoinPath("charge").String(), fmt.Sprint("order-", i))
		if status != http.StatusCreated {
			t.Errorf("%d %s", status, body)
		}
	}
	wantLedger(t, books, "order-0", "order-1", "order-2")
}

// TestPairOutboxWebhookHandler: an event that was answered in vain is sent again, and its receiver recognises it by the
// key.
func TestPairOutboxWebhookHandler(t *testing.T) {
	t.Parallel()
	sender, books := openBooks(t), openBooks(t)
	box := newBox(t, sender)
	handler, err := httponce.HandleTx(txReceiver(t, books), httponce.Unscoped(), bookTx, nil)
	if err != nil {
		t.Fatal(err)
	}
	to, err := webhook.New(webhook.Endpoint{URL: serve(t, answerLost(1, handler)).String()}, &webhook.Options{AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := inTx(t, sender, func(tx *sql.Tx) error {
		return box.Publish(t.Context(), tx, outbox.Event{Topic: "orders", Type: "order.placed", Payload: []byte("order-1")})
	}); err != nil {
		t.Fatal(err)
	}
	published := make(chan struct{})
	relay, err := box.Relay(to, &outbox.RelayOptions{Observe: func(_ context.Context, _ *outbox.Event, v outbox.Report) {
		if v.How == outbox.Published {
			close(published)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	runUntil(t, relay.Run, published)
	wantLedger(t, books, "order-1")
}

// TestPairSagaParticipantOverMessages: a saga sends its commands through the outbox and RabbitMQ to a participant,
// which gets each of them twice. A later step is refused, and what the participant did is undone once.
func TestPairSagaParticipantOverMessages(t *testing.T) {
	t.Parallel()
	orders, stock := openBooks(t), openBooks(t)
	box := newBox(t, orders)
	url, queue := testserver.URL(t, "rabbitmq"), fmt.Sprintf("pair-saga-%d", time.Now().UnixNano())
	publisher, err := rabbitonce.NewPublisher(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = publisher.Close() })

	// the participant
	half, err := saga.NewParticipant(txReceiver(t, stock), "stock", everonce.Lifetime{})
	if err != nil {
		t.Fatal(err)
	}
	reserved, released := make(chan bool, 100), make(chan bool, 100)
	handler, err := consume.NewNatural(consume.NaturalSpec[string]{
		Consumer: "stock", Key: consume.ProducerID(),
		Handle: func(ctx context.Context, m *consume.Message, order string) (bool, error) {
			b, err := saga.ParseBranch(func(name string) string { return m.Headers[name] })
			if err != nil {
				return false, err
			}
			done := reserved
			if b.Compensating {
				done = released
				err = half.Compensate(ctx, b, func(ctx context.Context, tx *sql.Tx) error {
					_, err := enter(ctx, tx, "release-"+order)
					return err
				})
			} else {
				_, err = saga.Action(ctx, half, b, func(ctx context.Context, tx *sql.Tx) (int64, error) { return enter(ctx, tx, "reserve-"+order) })
			}
			if errors.Is(err, saga.ErrCancelled) {
				return false, nil
			}
			if err == nil {
				done <- true
			}
			return err == nil, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := rabbitonce.Dial(t.Context(), url, rabbitonce.Queue{Name: queue}, handler, nil)
	if err != nil {
		t.Fatal(err)
	}

	// the orchestrator
	sagas, err := saga.New(txReceiver(t, orders))
	if err != nil {
		t.Fatal(err)
	}
	if err := sagas.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	command := func(ctx context.Context, tx *sql.Tx, c *saga.Call[string]) (any, error) {
		e := outbox.Event{ID: c.Key, Topic: queue, Key: c.Saga, Headers: c.Branch().Headers(), Payload: []byte(`"` + c.Input + `"`)}
		again := e // what a relay that was killed before it could mark the event does
		again.ID = c.Key + "-again"
		return nil, box.Publish(ctx, tx, e, again)
	}
	fulfil, err := saga.Define("fulfilment", 1,
		saga.Step[string, *sql.Tx]{Name: "reserve", ActionTx: command, CompensationTx: func(ctx context.Context, tx *sql.Tx, c *saga.Call[string]) error {
			_, err := command(ctx, tx, c)
			return err
		}},
		saga.Step[string, *sql.Tx]{Name: "ship", Final: true, Action: func(ctx context.Context, _ *saga.Call[string]) (any, error) {
			for range 2 {
				select {
				case <-reserved:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return nil, everonce.Permanent("no_van", errors.New("there is no van"), nil)
		}},
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := inTx(t, orders, func(tx *sql.Tx) error { return fulfil.Start(t.Context(), sagas, tx, "order-1", "order-1") }); err != nil {
		t.Fatal(err)
	}
	runner, err := sagas.Runner(nil, fulfil)
	if err != nil {
		t.Fatal(err)
	}
	relay, err := box.Relay(publisher, nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		<-released
		<-released
		close(done)
	}()
	stopConsumer, stopRunner := running(t, consumer.Run), running(t, runner.Run)
	runUntil(t, relay.Run, done)
	stopRunner()
	stopConsumer()
	wantLedger(t, stock, "release-order-1", "reserve-order-1")
}

func newBox(t *testing.T, store *sqlitestore.Store) *outbox.Outbox[*sql.Tx] {
	t.Helper()
	box, err := outbox.New(txReceiver(t, store), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := box.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return box
}

func inTx(t *testing.T, store *sqlitestore.Store, work func(tx *sql.Tx) error) error {
	t.Helper()
	tx, err := store.DB().BeginTx(t.Context(), nil)
	if err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// running runs a long-lived part until the returned function is called.
func running(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
}

// runUntil runs a part until done is closed.
func runUntil(t *testing.T, run func(context.Context) error, done <-chan struct{}) {
	t.Helper()
	stop := running(t, run)
	defer stop()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("it was not done within a minute")
	}
}
