package patterntest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
	"github.com/everonce/everonce/consume/natsonce"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/consume/sqsonce"
	"github.com/everonce/everonce/inbox"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/outbox/cloudeventsonce"
	"github.com/everonce/everonce/outbox/webhook"
)

// way is how events go from an outbox to an inbox.
type way struct {
	topic     string
	publisher outbox.Publisher
	binary    cloudeventsonce.Mode
	// run feeds the consumer until the context ends, and letters opens its dead letters; both are nil where there is no
	// broker.
	run     func(ctx context.Context) error
	letters func(ctx context.Context) (consume.DeadLetters, error)
}

// All fields of an event reach the inbox's handler of its type, on every broker: directly, over a retry, its dead
// letter and the replay of that; unchanged, and as a CloudEvent. Publishers, consumers and inbox have their defaults.
func TestAnEventReachesItsHandlerWhole(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T, *consume.Consumer, *inbox.Inbox[*sql.Tx]) way{
		"rabbitmq": byRabbitMQ, "kafka": byKafka, "nats": byNATS, "sqs": bySQS, "webhook": byWebhook, "in process": inProcess,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := onSQLite(t)
			in, box := newInbox(t, h, nil), newOutbox(t, h)
			tried := map[string]int{}
			var mu sync.Mutex
			consumer, err := consume.NewNatural(consume.NaturalSpec[struct{}]{
				Consumer: "billing", Key: consume.ProducerID(), Retry: consume.RetryPolicy{Min: time.Millisecond, Max: time.Millisecond},
				Decode: func(*consume.Message) (none struct{}, err error) { return none, nil },
				Handle: func(ctx context.Context, m *consume.Message, _ struct{}) (bool, error) {
					mu.Lock()
					tried[m.ID]++
					n := tried[m.ID]
					mu.Unlock()
					switch {
					case m.Headers["refuse"] != "" && n == 1:
						return false, errors.New("not yet")
					case m.Headers["refuse"] != "" && n == 2:
						return false, everonce.Permanent("refused", errors.New("no"), nil)
					}
					return in.Receive(ctx, m)
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			w := open(t, consumer, in)
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer cancel()
			if w.run != nil {
				running.Go(func() {
					if err := w.run(ctx); err != nil {
						t.Error(err)
					}
				})
			}
			reachesWhole(t, h, in, box, w)
		})
	}
}

func reachesWhole(t *testing.T, h *handle[*sql.Tx], in *inbox.Inbox[*sql.Tx], box *outbox.Outbox[*sql.Tx], w way) {
	t.Helper()
	const source = "https://shop.example/orders"
	modes := map[string]outbox.Publisher{"plain": w.publisher}
	for name, mode := range map[string]cloudeventsonce.Mode{"structured": cloudeventsonce.Structured, "binary": w.binary} {
		p, err := cloudeventsonce.New(w.publisher, source, mode)
		if err != nil {
			t.Fatal(err)
		}
		modes[name] = p
	}
	sent := map[string]outbox.Event{}
	for mode := range modes {
		for _, refuse := range []string{"", "1"} {
			if refuse != "" && w.letters == nil {
				continue
			}
			headers := map[string]string{"mode": mode, "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
			if refuse != "" {
				headers["refuse"] = refuse
			}
			e := outbox.Event{ID: mode + "-50%-" + refuse, Topic: w.topic, Key: "Jürgen \"50%\"", Type: "order.placed", ContentType: "text/plain; charset=utf-8", Headers: headers, Payload: []byte("7 apples")}
			sent[e.ID] = e
			publishIn(t, h, box, e)
		}
	}
	relayTo(t, box, outbox.One(1, func(ctx context.Context, e *outbox.Event) error {
		return errors.Join(modes[e.Headers["mode"]].Publish(ctx, []outbox.Event{*e})...)
	}))
	handled := make(chan consume.Message, 100)
	working(t, in, nil, inbox.Handler[*sql.Tx]{Types: []string{"order.placed"}, Handle: func(_ context.Context, _ *sql.Tx, m *consume.Message) error {
		handled <- *m
		return nil
	}})
	check := func(m *consume.Message, at string) {
		t.Helper()
		e, ok := sent[m.ID]
		stored, err := box.Get(t.Context(), m.ID)
		if !ok || err != nil {
			t.Fatalf("%s: a message with the ID %q, %v: %+v", at, m.ID, err, m)
		}
		mode, from := e.Headers["mode"], source
		if mode == "plain" {
			from = w.topic
		}
		if m.Type != e.Type || m.EventSource != from || m.OrderKey != e.Key || !m.Time.Equal(stored.CreatedAt) {
			t.Errorf("%s: %s: the type is %q, the source %q, the key %q, the time %v and not %v", at, m.ID, m.Type, m.EventSource, m.OrderKey, m.Time, stored.CreatedAt)
		}
		if structured := mode == "structured" || mode == "binary" && w.binary == cloudeventsonce.Structured; structured != (m.ContentType == "application/cloudevents+json") || !structured && (m.ContentType != e.ContentType || string(m.Body) != string(e.Payload)) {
			t.Errorf("%s: %s: the body is %s, as %q", at, m.ID, m.Body, m.ContentType)
		}
		for name, value := range e.Headers {
			if m.Headers[name] != value {
				t.Errorf("%s: %s: the header %s is %q", at, m.ID, name, m.Headers[name])
			}
		}
		if mode != "plain" {
			if key, err := consume.CloudEvent()(m); key != "https%3A//shop.example/orders:"+strings.ReplaceAll(m.ID, "%", "%25") {
				t.Errorf("%s: %s: the key is %q, %v", at, m.ID, key, err)
			}
		}
	}
	await := func(n int) {
		t.Helper()
		for range n {
			select {
			case m := <-handled:
				check(&m, "handled")
			case <-time.After(hung):
				t.Fatalf("not all events were handled")
			}
		}
	}
	await(len(modes))
	if w.letters == nil {
		return
	}
	letters, err := w.letters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer letters.Close() //nolint:errcheck // it was read
	for replayed, until := 0, time.Now().Add(hung); replayed < len(modes); {
		for letter, err := range letters.All(t.Context(), consume.Filter{}) {
			if err != nil {
				t.Fatal(err)
			}
			check(letter.Message, "dead letter")
		}
		n, err := letters.Replay(t.Context(), consume.Filter{})
		if replayed += n; err != nil || time.Now().After(until) {
			t.Fatalf("%d letters were replayed: %v", replayed, err)
		}
	}
	await(len(modes))
}

// publishIn publishes an event in a transaction.
func publishIn(t *testing.T, h *handle[*sql.Tx], box *outbox.Outbox[*sql.Tx], e outbox.Event) {
	t.Helper()
	if err := h.receiver.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return box.Publish(ctx, tx, e) }); err != nil {
		t.Fatal(err)
	}
}

// relayTo runs a relay until the test ends.
func relayTo(t *testing.T, box *outbox.Outbox[*sql.Tx], to outbox.Publisher) {
	t.Helper()
	r, err := box.Relay(to, &outbox.RelayOptions{Observe: func(_ context.Context, e *outbox.Event, v outbox.Report) {
		if v.Err != nil {
			t.Errorf("%s: %v", e.ID, v.Err)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

func byRabbitMQ(t *testing.T, c *consume.Consumer, _ *inbox.Inbox[*sql.Tx]) way {
	url, name := testserver.URL(t, "rabbitmq"), "test."+strings.ToLower(rand.Text())
	p, err := rabbitonce.NewPublisher(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() }) //nolint:errcheck // what was confirmed is published
	queue := rabbitonce.Queue{Name: name, Delays: []time.Duration{10 * time.Millisecond}}
	t.Cleanup(func() { deleteQueues(t, url, name, name+".dead", name+".retry.10ms") })
	r, err := rabbitonce.Dial(t.Context(), url, queue, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return way{name, p, cloudeventsonce.BinaryAMQP, r.Run, func(ctx context.Context) (consume.DeadLetters, error) {
		return rabbitonce.DialDeadLetters(ctx, url, queue, nil)
	}}
}

func byKafka(t *testing.T, c *consume.Consumer, _ *inbox.Inbox[*sql.Tx]) way {
	l := newLog(t, onSQLite(t), 1)
	url := testserver.URL(t, "kafka")
	p, err := kafkaonce.NewPublisher(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() }) //nolint:errcheck // as above
	r, err := kafkaonce.Dial(t.Context(), url, l.topic, c, &kafkaonce.Options{Group: l.topic.Name})
	if err != nil {
		t.Fatal(err)
	}
	return way{l.topic.Name, p, cloudeventsonce.BinaryKafka, r.Run, func(ctx context.Context) (consume.DeadLetters, error) {
		return kafkaonce.DialDeadLetters(ctx, url, l.topic, nil)
	}}
}

func byNATS(t *testing.T, c *consume.Consumer, _ *inbox.Inbox[*sql.Tx]) way {
	url, name := testserver.URL(t, "nats"), "test-"+rand.Text()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer conn.Close()
		for _, stream := range []string{name, name + "-dead", "KV_" + name + "-billing-retries"} {
			js.DeleteStream(context.Background(), stream) //nolint:errcheck // of the test
		}
	})
	p, err := natsonce.NewPublisher(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() }) //nolint:errcheck // as above
	queue := natsonce.Queue{Stream: name}
	r, err := natsonce.Dial(t.Context(), url, queue, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return way{name, p, cloudeventsonce.BinaryHTTP, r.Run, func(ctx context.Context) (consume.DeadLetters, error) {
		return natsonce.DialDeadLetters(ctx, url, queue, nil)
	}}
}

func bySQS(t *testing.T, c *consume.Consumer, _ *inbox.Inbox[*sql.Tx]) way {
	client := sqs.New(sqs.Options{
		BaseEndpoint: aws.String(testserver.URL(t, "sqs")), Region: "elasticmq",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil //nolint:gosec // of the test's server
		}),
	})
	name := "test-" + strings.ToLower(rand.Text())
	create := func(name string, attributes map[string]string) string {
		out, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_, _ = client.DeleteQueue(context.Background(), &sqs.DeleteQueueInput{QueueUrl: out.QueueUrl}) //nolint:errcheck // of the test
		})
		return *out.QueueUrl
	}
	dead := create(name+"-dead", nil)
	out, err := client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &dead, AttributeNames: []sqstypes.QueueAttributeName{sqstypes.QueueAttributeNameQueueArn}})
	if err != nil {
		t.Fatal(err)
	}
	create(name, map[string]string{"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":10}`, out.Attributes["QueueArn"])})
	p, err := sqsonce.NewPublisher(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	queue := sqsonce.Queue{Name: name} // CloudEvents have no binary mode for it
	r, err := sqsonce.Dial(t.Context(), client, queue, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return way{name, p, cloudeventsonce.Structured, r.Run, func(ctx context.Context) (consume.DeadLetters, error) {
		return sqsonce.DialDeadLetters(ctx, client, queue)
	}}
}

func inProcess(t *testing.T, _ *consume.Consumer, in *inbox.Inbox[*sql.Tx]) way {
	c, err := in.Consumer()
	if err != nil {
		t.Fatal(err)
	}
	return way{topic: "orders", publisher: outbox.ToConsumer(c, 1), binary: cloudeventsonce.BinaryHTTP}
}

func byWebhook(t *testing.T, _ *consume.Consumer, in *inbox.Inbox[*sql.Tx]) way {
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		m, err := webhook.ReadMessage(r, 1<<20, "mode")
		if err == nil {
			_, err = in.Receive(r.Context(), m)
		}
		if err != nil {
			t.Error(err)
			rw.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(s.Close)
	p, err := webhook.New(webhook.Endpoint{URL: s.URL}, &webhook.Options{AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	return way{topic: "orders", publisher: p, binary: cloudeventsonce.BinaryHTTP}
}

func deleteQueues(t *testing.T, url string, names ...string) {
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close() //nolint:errcheck // of the test
	for _, name := range names {
		ch, err := conn.Channel()
		if err == nil {
			_, err = ch.QueueDelete(name, false, false, false)
		}
		if err != nil {
			t.Error(err)
		}
	}
}
