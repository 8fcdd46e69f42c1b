package kafkaonce_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/store/memstore"
)

// exampleTopic creates a topic for an example; remove deletes it with its retry and dead-letter topics.
func exampleTopic() (topic kafkaonce.Topic, remove func()) {
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.TrimPrefix(os.Getenv("EVERONCE_TEST_KAFKA_URL"), "kafka://")))
	if err != nil {
		fmt.Println(err)
		return topic, func() {}
	}
	admin, name := kadm.NewClient(client), newName()
	if _, err = admin.CreateTopic(context.Background(), 1, 1, nil, name); err != nil {
		fmt.Println(err)
	}
	for err == nil { // the broker answers before it has it
		topics, asked := admin.ListTopics(context.Background(), name)
		if asked != nil || topics[name].Err == nil {
			break
		}
	}
	return kafkaonce.Topic{Name: name}, func() {
		names := []string{name}
		for _, suffix := range []string{".dead", ".retry.1s", ".retry.5s", ".retry.30s", ".retry.2m", ".retry.10m"} {
			names = append(names, name+suffix)
		}
		if _, err := admin.DeleteTopics(context.Background(), names...); err != nil {
			fmt.Println(err)
		}
		client.Close()
	}
}

// A consumer of a topic, and the publisher of an outbox. The first event is published twice, as after a relay was killed. The second is
// refused, and becomes a dead letter.
func Example() {
	topic, remove := exampleTopic()
	defer remove()
	url := os.Getenv("EVERONCE_TEST_KAFKA_URL") // kafka://localhost:9092
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	seen := 0
	handler, err := consume.New(receiver, consume.Spec[order]{
		Consumer: "billing",
		Key:      consume.ProducerID(),
		Handle: func(_ context.Context, _ *consume.Message, o order) error {
			if o.ID == "o-2" {
				return everonce.Permanent("no_such_account", errors.New("there is no such account"), nil)
			}
			fmt.Println("charged", o.ID)
			return nil
		},
		Observe: func(_ context.Context, _ *consume.Message, v consume.Decision) {
			fmt.Println(v.Outcome)
			if seen++; seen == 3 {
				stop()
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := kafkaonce.Dial(ctx, url, topic, handler, &kafkaonce.Options{Group: topic.Name, Workers: consume.Workers{Log: quiet}})
	if err != nil {
		fmt.Println(err)
		return
	}
	publisher, err := kafkaonce.NewPublisher(url, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close() //nolint:errcheck // what the broker has confirmed is published
	for _, id := range []string{"o-1", "o-1", "o-2"} {
		e := outbox.Event{ID: id, Key: "alice", Topic: topic.Name, ContentType: "application/json", Payload: []byte(`{"id":"` + id + `"}`)}
		if err := errors.Join(publisher.Publish(ctx, []outbox.Event{e})...); err != nil {
			fmt.Println(err)
		}
	}
	if err := c.Run(ctx); err != nil {
		fmt.Println(err)
	}

	letters, err := kafkaonce.DialDeadLetters(context.Background(), url, topic, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer letters.Close() //nolint:errcheck // what the broker has confirmed is done
	for l, err := range letters.All(context.Background(), consume.Filter{}) {
		fmt.Println(l.Reason, l.Message.ID, err)
	}
	n, err := letters.Replay(context.Background(), consume.Filter{Reasons: []consume.Reason{consume.Rejected}})
	fmt.Println("replayed", n, err)
	// Output:
	// charged o-1
	// executed
	// replayed
	// rejected
	// rejected o-2 <nil>
	// replayed 1 <nil>
}
