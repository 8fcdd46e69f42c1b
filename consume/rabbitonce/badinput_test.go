package rabbitonce_test

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
)

// Whatever a producer sends is done, or is a dead letter that says why; the consumer goes on.
func TestBadInput(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spec := specOf(nothing)
	spec.Key, spec.MaxBody = consume.FirstOf(consume.Header("order-id"), consume.ProducerID()), 1000
	r := b.run(spec, &rabbitonce.Options{Workers: consume.Workers{Concurrency: 1}})
	body := []byte(`{"id":"1"}`)
	for _, c := range []struct {
		name   string
		msg    amqp.Publishing
		reason consume.Reason
	}{
		{"no ID", amqp.Publishing{Body: body}, consume.NoKey},
		{"an empty ID", amqp.Publishing{Headers: amqp.Table{"order-id": ""}, Body: body}, consume.NoKey},
		{"a huge ID", amqp.Publishing{Headers: amqp.Table{"order-id": strings.Repeat("1", 50_000)}, Body: body}, consume.NoKey},
		{"an ID that is no text", amqp.Publishing{MessageId: "\xff\xfe", Body: body}, consume.NoKey},
		{"an ID that is a table", amqp.Publishing{MessageId: "m-1", Headers: amqp.Table{"order-id": amqp.Table{"a": 1}}, Body: body}, consume.NoKey},
		{"IDs in an array", amqp.Publishing{MessageId: "m-1", Headers: amqp.Table{"order-id": []any{"1", "2"}}, Body: body}, consume.NoKey},
		{"no JSON", amqp.Publishing{MessageId: "m-1", Body: []byte("<order/>")}, consume.Undecodable},
		{"no body", amqp.Publishing{MessageId: "m-1"}, consume.Undecodable},
		{"a large body", amqp.Publishing{MessageId: "m-1", Body: make([]byte, 1001)}, consume.TooLarge},
		{"a number for an ID", amqp.Publishing{Headers: amqp.Table{"order-id": int64(7)}, Body: body}, ""},
		{"the same ID with another body", amqp.Publishing{Headers: amqp.Table{"order-id": "7"}, Body: []byte(`{"id":"2"}`)}, consume.Mismatch},
	} {
		b.send(c.msg)
		if v := r.decision(); v.Death.Reason != c.reason || c.reason == "" && v.Outcome != everonce.Executed {
			t.Errorf("%s: %v, %v, %v", c.name, v.Death.Reason, v.Outcome, v.Err)
		}
		if c.reason != "" {
			if got := b.letter().Headers["x-everonce-reason"]; got != string(c.reason) {
				t.Errorf("%s: the dead letter is %v", c.name, got)
			}
		}
	}
	b.wantLength(b.queue.Name, 0)
}
