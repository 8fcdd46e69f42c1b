package main

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce/internal/testing/testserver"
)

// TestScriptsOnKafka runs the program against Kafka: $BROKER is its URL, and $QUEUE a topic with two dead letters.
func TestScriptsOnKafka(t *testing.T) {
	url := testserver.URL(t, "kafka")
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.TrimPrefix(url, "kafka://")))
	if err != nil {
		t.Fatal(err)
	}
	admin, topic := kadm.NewClient(client), "cli."+strings.ToLower(rand.Text())
	t.Cleanup(func() {
		if _, err := admin.DeleteTopics(context.Background(), topic, topic+".dead"); err != nil {
			t.Error(err)
		}
		client.Close()
	})
	for _, name := range []string{topic, topic + ".dead"} {
		if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, name); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"m-1", "m-2"} {
		header := func(name, value string) kgo.RecordHeader {
			return kgo.RecordHeader{Key: name, Value: []byte(value)}
		}
		r := &kgo.Record{Topic: topic + ".dead", Key: []byte("00000000000000" + id[2:] + "a"), Value: []byte(`{"id":"` + id + `"}`), Headers: []kgo.RecordHeader{
			header("ce_id", id), header("x-everonce-reason", "rejected"), header("x-everonce-detail", "there is no such account"), header("x-everonce-queue", topic),
			header("x-everonce-consumer", "billing"), header("x-everonce-attempts", "1"), header("x-everonce-last", "2026-01-02T03:04:05Z"), header("x-everonce-key", "alice"),
		}}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/kafka",
		RequireExplicitExec: true,
		Cmds:                commands,
		Setup: func(env *testscript.Env) error {
			env.Setenv("BROKER", url)
			env.Setenv("QUEUE", topic)
			return setup(env)
		},
	})
}
