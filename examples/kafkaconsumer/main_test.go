package main

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce/examples/internal/pgschema"
	"github.com/everonce/everonce/internal/testing/testserver"
)

// Every order is sent three times: there is one invoice for each.
func TestRun(t *testing.T) {
	broker := testserver.URL(t, "kafka")
	pool, err := pgxpool.New(t.Context(), pgschema.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.TrimPrefix(broker, "kafka://")), kgo.MetadataMinAge(50*time.Millisecond), kgo.UnknownTopicRetries(100))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin, topic := kadm.NewClient(client), "kafkaconsumer."+strings.ToLower(rand.Text())
	if _, err := admin.CreateTopic(t.Context(), 2, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	defer admin.DeleteTopics(context.Background(), topic, topic+".dead", topic+".retry.1s", topic+".retry.5s", topic+".retry.30s", topic+".retry.2m", topic+".retry.10m") //nolint:errcheck // of the test
	for range 3 {
		for _, id := range []string{"o-1", "o-2"} {
			r := &kgo.Record{Topic: topic, Key: []byte(id), Value: []byte(`{"id":"` + id + `","cents":1200}`), Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte(id)}}}
			if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	done := make(chan error, 1)
	go func() { done <- run(ctx, pool, broker, topic) }()
	for committed := int64(0); committed < 6; {
		select {
		case err := <-done:
			t.Fatal("the consumer ended: ", err)
		case <-time.After(50 * time.Millisecond): // the group commits each second
		}
		offsets, err := admin.FetchOffsets(t.Context(), "billing")
		if err != nil && !kerr.IsRetriable(err) { // the first group of a broker waits for its coordinator
			t.Fatal(err)
		}
		committed = 0
		for _, p := range offsets[topic] {
			committed += max(p.At, 0)
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
