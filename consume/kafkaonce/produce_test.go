package kafkaonce

import (
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce/internal/testserver"
)

// A record that is produced to a topic that was created anew is stored, even if a client learns late that the old
// topic is gone: a client that forgot the new one would count from zero again, and the broker would take the record
// for a duplicate.
func TestAnIDIsForgottenOnce(t *testing.T) {
	t.Parallel()
	ctx, topic := t.Context(), "test."+strings.ToLower(rand.Text())
	client, err := newClient(testserver.URL(t, "kafka"), nil, []kgo.Opt{kgo.RequiredAcks(kgo.AllISRAcks())})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(ctx, 1, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	var f forgotten
	sent := func() {
		for {
			err := f.produce(client, nil, &kgo.Record{Topic: topic, Value: []byte("x")}).wait(ctx)
			if err == nil {
				return
			}
			if !errors.Is(err, kerr.UnknownTopicOrPartition) { // the broker answers before it has the topic
				t.Fatal(err)
			}
		}
	}
	sent()
	if _, err := admin.DeleteTopic(ctx, topic); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := admin.CreateTopic(ctx, 1, 1, nil, topic); err == nil {
			break
		} else if !errors.Is(err, kerr.TopicAlreadyExists) {
			t.Fatal(err)
		}
	}
	sent()
	f.forget(idOf{client, topic}, 0)
	sent()
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	if end, _ := ends.Lookup(topic, 0); end.Offset != 2 {
		t.Errorf("%d records are in the new topic, want 2", end.Offset)
	}
	if _, err := admin.DeleteTopic(ctx, topic); err != nil {
		t.Error(err)
	}
}
