package main

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce/internal/testserver"
)

// A message that is published twice is in the topic twice: the consumer recognises the ID.
func TestPublish(t *testing.T) {
	broker, topic := testserver.URL(t, "kafka"), "publish."+strings.ToLower(rand.Text())
	for range 2 {
		if err := publish(t.Context(), broker, topic, "order-7", `{"id":"order-7","cents":1200}`); err != nil {
			t.Fatal(err)
		}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.TrimPrefix(broker, "kafka://")), kgo.ConsumeTopics(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	defer kadm.NewClient(client).DeleteTopics(context.Background(), topic) //nolint:errcheck // of the test
	for n := 0; n < 2; {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for _, r := range fetches.Records() {
			if n++; string(r.Key) != "order-7" || len(r.Headers) != 1 || r.Headers[0].Key != "ce_id" || string(r.Headers[0].Value) != "order-7" {
				t.Errorf("%+v", r)
			}
		}
	}
}
