// Command publish puts a message into a topic of Kafka, which it creates: publish TOPIC ID BODY. It takes BROKER_URL.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 4 {
		log.Fatal("usage: publish TOPIC ID BODY")
	}
	if err := publish(context.Background(), os.Getenv("BROKER_URL"), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

// publish returns nil when the broker has the message. After an error it may be there or not: publish it again, with
// the same ID.
func publish(ctx context.Context, broker, topic, id, body string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.TrimPrefix(broker, "kafka://")), kgo.UnknownTopicRetries(100))
	if err != nil {
		return err
	}
	defer client.Close()
	// The broker's defaults are one copy of each message: a topic that must lose nothing has three, and
	// min.insync.replicas 2.
	if _, err := kadm.NewClient(client).CreateTopic(ctx, 2, -1, nil, topic); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return err
	}
	// The record key is the order's, so that its events keep their order; the ID is the event's.
	event := &kgo.Record{Topic: topic, Key: []byte(id), Value: []byte(body), Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte(id)}}}
	return client.ProduceSync(ctx, event).FirstErr()
}
