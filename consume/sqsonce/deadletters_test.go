package sqsonce_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/sqsonce"
	"github.com/everonce/everonce/store/memstore"
)

// A replay has the message's body, attributes and group. If the message was done, it is a duplicate, also within the
// five minutes in which a FIFO queue drops known deduplication IDs.
func TestReplay(t *testing.T) {
	t.Parallel()
	for _, fifo := range []bool{false, true} {
		b := newBench(t, fifo, 100)
		var attributes []string
		for i := range 9 { // with its ID the ten that SQS allows
			attributes = append(attributes, fmt.Sprint("a", i), fmt.Sprint("value ", i))
		}
		b.send(`{"id":1}`, "a", append(attributes, sqsonce.AttributeID, "order-1")...)
		recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Reexecute, nil)
		if err != nil {
			t.Fatal(err)
		}
		var refuse atomic.Bool
		refuse.Store(true)
		var seen []*consume.Message
		stop := b.run(b.client, b.handlerOf(recv, func(_ context.Context, m *consume.Message, _ order) error {
			seen = append(seen, m)
			if refuse.Load() {
				return everonce.NotDone(errors.New("not yet"))
			}
			return nil
		}, func(s *consume.Spec[order]) { s.Retry.Limit = -1 }), quick())
		b.until(consume.SetAside)
		letter := b.list(1)[0]
		refuse.Store(false)
		if n, err := b.letters().Replay(t.Context(), consume.Filter{ID: letter.ID, Queue: b.queue.Name}); n != 1 || err != nil {
			t.Fatalf("%d were replayed: %v", n, err)
		}
		if v := b.until(consume.Ack); v.Outcome != everonce.Executed {
			t.Errorf("the outcome is %v", v.Outcome)
		}
		stop()
		before, after := seen[0], seen[1]
		if asJSON(t, before.Headers) != asJSON(t, after.Headers) || after.ID != "order-1" || len(after.Headers) < 9 || string(after.Body) != `{"id":1}` || after.Retries != 0 {
			t.Errorf("the message was %s, and is %s after its replay", asJSON(t, before), asJSON(t, after))
		}
		if group := after.Headers[sqsonce.HeaderGroup]; group != "a" {
			t.Errorf("its group is %q", group)
		}
		b.empty(b.url)
		b.empty(b.dead)
	}
}

// Reading keeps the dead letters; selected ones are discarded. In a FIFO queue too all dead letters are read.
func TestLooksAndDiscards(t *testing.T) {
	t.Parallel()
	for _, fifo := range []bool{false, true} {
		b := newBench(t, fifo, 100)
		const letters = 23
		for id := range letters {
			b.sendOrder(id, "a")
		}
		b.run(b.client, b.handler(func(_ context.Context, _ *consume.Message, o order) error {
			return everonce.Permanent("refused", fmt.Errorf("order %d is refused", o.ID), nil)
		}, nil), quick())
		for range letters {
			b.until(consume.SetAside)
		}
		first, second := b.list(letters), b.list(letters)
		ids := map[string]bool{}
		for i := range first {
			ids[first[i].ID] = true
		}
		for i := range second {
			if !ids[second[i].ID] {
				t.Errorf("the ID of a dead letter has changed")
			}
		}
		l := b.letters()
		if n, err := l.Discard(t.Context(), consume.Filter{ID: first[3].ID}); n != 1 || err != nil {
			t.Errorf("%d were discarded: %v", n, err)
		}
		if n, err := l.Discard(t.Context(), consume.Filter{Limit: 2, Reasons: []consume.Reason{consume.Rejected}}); n != 2 || err != nil {
			t.Errorf("%d were discarded: %v", n, err)
		}
		b.list(letters - 3)
		b.eventually("others have dead letters", func() bool { // it counts what was given back a moment ago
			n, err := l.Consumers(t.Context())
			return n == 0 && err == nil
		})
	}
}

// SQS may answer without a dead letter although it has one. A read ends with the empty answer after which SQS'
// counters are zero.
func TestLooksBeyondAnEmptyAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t, false, 100)
	b.sendTo(b.dead, `{"id":1}`)
	answers := 0
	l, err := sqsonce.DialDeadLetters(t.Context(), &faulty{Client: b.client, empty: func() bool { answers++; return answers <= 3 }}, b.queue)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := l.Discard(t.Context(), consume.Filter{}); n != 1 || err != nil || answers != 5 {
		t.Errorf("%d were discarded after %d answers: %v", n, answers, err)
	}
}

// A bad message becomes a dead letter with its reason, and blocks no others.
func TestBadInput(t *testing.T) {
	t.Parallel()
	b := newBench(t, false, 100)
	h := b.handler(func(context.Context, *consume.Message, order) error { return nil },
		func(s *consume.Spec[order]) { s.MaxBody = 100_000 })
	b.send(`{"id":1}`, "")                                                                               // no ID
	b.send(`{"id":2}`, "", sqsonce.AttributeID, strings.Repeat("x", 5000))                               // a huge one
	b.send(`not JSON`, "", sqsonce.AttributeID, "not-json")                                              // no JSON
	b.send(`"`+strings.Repeat("x", 100_000)+`"`, "", sqsonce.AttributeID, "large")                       // too large for the consumer
	b.send(strings.Repeat("y", 256<<10-60), "", sqsonce.AttributeID, "full")                             // too large for a note
	b.send(`{"id":3}`, "", sqsonce.AttributeID, "ours", "everonce-note", `{"headers":{"x-everonce-retr`) // an invalid note
	if _, err := b.client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &b.url, MessageBody: aws.String(`{"id":4}`), MessageAttributes: map[string]types.MessageAttributeValue{
		sqsonce.AttributeID: {DataType: aws.String("Binary"), BinaryValue: []byte{1, 2}}, // no text
	}}); err != nil {
		t.Fatal(err)
	}
	b.run(b.client, h, quick())
	b.sendOrder(5, "")
	for range 2 {
		b.until(consume.Ack)
	}
	b.send(`{"id":6}`, "", sqsonce.AttributeID, "order-5") // the ID of another
	reasons := map[consume.Reason]int{}
	for _, l := range b.list(7) {
		reasons[l.Reason]++
	}
	want := map[consume.Reason]int{consume.NoKey: 3, consume.Undecodable: 1, consume.TooLarge: 1, consume.Mismatch: 1, sqsonce.MaxReceives: 1} // one without a note
	if asJSON(t, reasons) != asJSON(t, want) {
		t.Errorf("the reasons are %v, want %v", reasons, want)
	}
	b.empty(b.url)
}

// Envelopes of SNS and EventBridge are unwrapped, and a message without one becomes a dead letter.
func TestEnvelopes(t *testing.T) {
	t.Parallel()
	for envelope, body := range map[sqsonce.Envelope]string{
		sqsonce.SNS: `{"Type": "Notification", "MessageId": "sns-1", "TopicArn": "arn:aws:sns:eu:1:orders", "Message": "{\"id\":7}", "Timestamp": "2026-01-02T03:04:05.678Z",
			"MessageAttributes": {"message-id": {"Type": "String", "Value": "order-7"}, "trace": {"Type": "String", "Value": "t"}, "b": {"Type": "Binary", "Value": "AQI="}}}`,
		sqsonce.EventBridge: `{"version": "0", "id": "event-1", "detail-type": "order.placed", "source": "shop", "account": "1", "time": "2026-01-02T03:04:05Z", "region": "eu",
			"resources": ["everonce:event:order-7"], "detail": {"id": 7}}`,
	} {
		b := newBench(t, false, 100)
		b.queue.Envelope = envelope
		b.send(body, "")
		b.send(`{"id":8}`, "") // not in an envelope
		var got *consume.Message
		b.run(b.client, b.handler(func(_ context.Context, m *consume.Message, o order) error {
			if got = m; o.ID != 7 {
				t.Errorf("the order is %d", o.ID)
			}
			return nil
		}, func(s *consume.Spec[order]) {
			s.Key = consume.Composite("order", consume.JSONPointer("/id"), consume.ProducerID())
		}), quick())
		told := map[consume.Disposition]consume.Decision{}
		for range 2 {
			v := b.decision()
			told[v.Disposition] = v
		}
		if _, handled := told[consume.Ack]; !handled || got.ID != "order-7" || got.BrokerID == "" || got.Subject == "" || told[consume.SetAside].Death.Reason != consume.Undecodable {
			t.Errorf("Observe got %+v; %s", told, asJSON(t, got))
		}
		if l := b.list(1)[0]; l.Reason != consume.Undecodable || string(l.Message.Body) != `{"id":8}` {
			t.Errorf("the dead letter is %s", asJSON(t, l))
		}
		b.empty(b.url)
	}
}

// Dial returns errors for wrong queues and options.
func TestDialRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t, false, 100)
	alone := b.create(b.queue.Name+"-alone", nil)
	h := b.handler(func(context.Context, *consume.Message, order) error { return nil }, nil)
	nobody := newClient(t, "http://127.0.0.1:1")
	long := quick()
	long.Workers.HandleTimeout = 13 * 60 * 60 * 1e9
	for name, tc := range map[string]struct {
		client sqsonce.Client
		queue  sqsonce.Queue
		opts   *sqsonce.Options
		want   error
	}{
		"no queue":               {b.client, sqsonce.Queue{Name: "there-is-none"}, nil, sqsonce.ErrTopology},
		"no queue at the URL":    {b.client, sqsonce.Queue{Name: b.url + "-none"}, nil, sqsonce.ErrTopology},
		"no dead-letter queue":   {b.client, sqsonce.Queue{Name: alone}, nil, sqsonce.ErrTopology},
		"its own dead letters":   {b.client, sqsonce.Queue{Name: alone, DeadLetters: alone}, nil, everonce.ErrInvalidArgument},
		"no name":                {b.client, sqsonce.Queue{}, nil, everonce.ErrInvalidArgument},
		"no client":              {nil, b.queue, nil, everonce.ErrInvalidArgument},
		"no server":              {nobody, b.queue, nil, sqsonce.ErrUnreachable},
		"longer than 12 hours":   {b.client, b.queue, long, everonce.ErrInvalidArgument},
		"too short a visibility": {b.client, b.queue, &sqsonce.Options{Visibility: 1e9}, everonce.ErrInvalidArgument},
		"negative":               {b.client, b.queue, &sqsonce.Options{Wait: -1}, everonce.ErrInvalidArgument},
		"negative pause":         {b.client, b.queue, &sqsonce.Options{Backoff: consume.Backoff{Min: -1}}, everonce.ErrInvalidArgument},
	} {
		if _, err := sqsonce.Dial(t.Context(), tc.client, tc.queue, h, tc.opts); !errors.Is(err, tc.want) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	if _, err := sqsonce.Dial(t.Context(), b.client, sqsonce.Queue{Name: alone, DeadLetters: b.dead}, h, nil); err != nil {
		t.Errorf("with dead letters that are named: %v", err)
	}
}

// Dial warns of a queue that keeps messages for longer than they are remembered.
func TestDialWarnsOfALongRetention(t *testing.T) {
	t.Parallel()
	b := newBench(t, false, 100)
	h := b.handler(func(context.Context, *consume.Message, order) error { return nil }, nil) // which remembers for 14 days
	for days, want := range map[int]bool{7: false, 8: true} {
		client := &faulty{Client: b.client, attributes: func(out *sqs.GetQueueAttributesOutput) {
			out.Attributes["MessageRetentionPeriod"] = fmt.Sprint(days * 24 * 60 * 60) // of the queue, and of the dead letters
		}}
		var log strings.Builder
		if _, err := sqsonce.Dial(t.Context(), client, b.queue, h, &sqsonce.Options{Workers: consume.Workers{Log: slog.New(slog.NewTextHandler(&log, nil))}}); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(log.String(), "remembered=336h0m0s") != want {
			t.Errorf("%d days: the log is %q", days, log.String())
		}
	}
}
