package keys_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/keys"
	"github.com/everonce/everonce/store/memstore"
)

// strategies are the strategies for the recordings in testdata, which scripts/record-frameworks makes.
var strategies = map[string]keys.Strategy{
	"celery":       keys.Celery(),
	"dramatiq":     keys.Dramatiq(),
	"taskiq":       keys.Taskiq(),
	"spring_amqp":  keys.SpringAMQP(),
	"spring_kafka": keys.SpringKafka("ce_id"),
	"debezium":     keys.Debezium(),
	"watermill":    keys.Watermill(),
	"nestjs":       keys.NestJS("/id"),
	"cloudevents":  keys.CloudEvents(),
}

// TestRecordedMessages handles the messages of each framework in the order of their publishing: each operation takes
// effect once, by whichever way its message came.
func TestRecordedMessages(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) != len(strategies) {
		t.Fatalf("%d recordings of %d frameworks, %v", len(files), len(strategies), err)
	}
	for name, strategy := range strategies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			var recorded struct {
				Messages []struct {
					Operation, As string
					Message       *consume.Message
				}
			}
			if err := json.Unmarshal(text, &recorded); err != nil {
				t.Fatal(err)
			}
			consumer := consumerOf(t, strategy)
			seen := map[string]int{}
			for _, m := range recorded.Messages {
				want := everonce.Executed
				if seen[m.Operation] > 0 {
					want = everonce.Replayed
				}
				seen[m.Operation]++
				if v := consumer.Handle(t.Context(), m.Message); v.Outcome != want || v.Disposition != consume.Ack {
					t.Errorf("%s, %s: %v, %v, %v, want %v", m.Operation, m.As, v.Outcome, v.Disposition, v.Err, want)
				}
			}
			if len(seen) < 2 || len(recorded.Messages) <= len(seen) {
				t.Errorf("blind: %d messages of %d operations", len(recorded.Messages), len(seen))
			}
		})
	}
}

func consumerOf(t *testing.T, strategy keys.Strategy) *consume.Consumer {
	t.Helper()
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := consume.New(recv, consume.Spec[json.RawMessage]{
		Consumer: "recorded", Key: strategy.Key, Compare: strategy.Compare,
		Handle: func(context.Context, *consume.Message, json.RawMessage) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return consumer
}

func nest(pattern string) *consume.Message {
	return &consume.Message{Body: []byte(`{"pattern":` + pattern + `,"data":{"id":"order-1"}}`)}
}

// TestByTheirDocumentation uses the members and headers that MassTransit and NServiceBus document, and the changes
// that their retries make.
func TestByTheirDocumentation(t *testing.T) {
	t.Parallel()
	masstransit := func(id, sent string) *consume.Message {
		return &consume.Message{Body: []byte(`{"messageId":"` + id + `","messageType":["urn:message:Shop:Placed"],"message":{"order":1},"sentTime":"` + sent + `"}`)}
	}
	nservicebus := func(id string) *consume.Message {
		return &consume.Message{Headers: map[string]string{"NServiceBus.MessageId": id}, Body: []byte(`{}`)}
	}
	for name, c := range map[string]struct {
		strategy            keys.Strategy
		first, again, other *consume.Message
	}{
		"MassTransit":                         {keys.MassTransit(), masstransit("1", "now"), masstransit("1", "later"), masstransit("2", "now")},
		"NestJS, a pattern that is an object": {keys.NestJS("/id"), nest(`{"cmd":"sum","v":1}`), nest(`{"v":1, "cmd":"sum"}`), nest(`{"cmd":"other","v":1}`)},
		"NServiceBus":                         {keys.NServiceBus(), nservicebus("1"), nservicebus("1"), nservicebus("2")},
	} {
		consumer := consumerOf(t, c.strategy)
		for _, step := range []struct {
			m    *consume.Message
			want everonce.Outcome
		}{{c.first, everonce.Executed}, {c.again, everonce.Replayed}, {c.other, everonce.Executed}} {
			if v := consumer.Handle(t.Context(), step.m); v.Outcome != step.want {
				t.Errorf("%s: %v, %v, want %v", name, v.Outcome, v.Err, step.want)
			}
		}
	}
}
