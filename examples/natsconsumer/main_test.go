package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce/examples/internal/pgschema"
	"github.com/everonce/everonce/internal/testserver"
)

// A message of this stream without everonce and with it. The stream's deduplication window is as short as possible: it
// knows an ID for no longer.
type window struct {
	t      *testing.T
	url    string
	js     jetstream.JetStream
	stream string
}

func newWindow(t *testing.T) *window {
	t.Helper()
	w := &window{t: t, url: testserver.URL(t, "nats"), stream: "natsconsumer-" + rand.Text()}
	conn, err := nats.Connect(w.url)
	if err != nil {
		t.Fatal(err)
	}
	if w.js, err = jetstream.New(conn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, name := range []string{w.stream, w.stream + "-dead", "KV_" + w.stream + "-billing-retries"} {
			w.js.DeleteStream(context.Background(), name) //nolint:errcheck // a test may have none
		}
		conn.Close()
	})
	if _, err := w.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: w.stream, Subjects: []string{w.stream + ".*"}, Duplicates: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	return w
}

// publish publishes an order until the stream has it so often, each time with its ID.
func (w *window) publish(id string, often int) {
	w.t.Helper()
	for stored := 0; stored < often; {
		ack, err := w.js.Publish(w.t.Context(), w.stream+".placed", fmt.Appendf(nil, `{"id":%q,"cents":1200}`, id), jetstream.WithMsgID(id))
		if err != nil {
			w.t.Fatal(err)
		}
		if !ack.Duplicate {
			stored++
		}
	}
}

// The window of a stream is not enough: what is published after it is stored again. There is one invoice for each order
// all the same.
func TestRun(t *testing.T) {
	w := newWindow(t)
	pool, err := pgxpool.New(t.Context(), pgschema.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	done := make(chan error, 1)
	go func() { done <- run(ctx, pool, w.url, w.stream) }()
	w.publish("o-1", 2)
	w.publish("o-2", 3)
	for deadline := time.Now().Add(time.Minute); ; {
		select {
		case err := <-done:
			t.Fatalf("it ended: %v", err)
		default:
		}
		c, err := w.js.Consumer(t.Context(), w.stream, "billing")
		if err == nil && c.CachedInfo().NumPending == 0 && c.CachedInfo().NumAckPending == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("waited for too long")
		}
	}
	end()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var invoices, distinct int
	if err := pool.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT order_id) FROM invoice`).Scan(&invoices, &distinct); err != nil || invoices != 2 || distinct != 2 {
		t.Errorf("%d invoices of %d orders, %v", invoices, distinct, err)
	}
}
