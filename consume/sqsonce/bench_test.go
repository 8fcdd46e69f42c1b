package sqsonce_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/sqsonce"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/store/memstore"
)

// soon is how long a test waits for what must happen. It is no claim about how long that takes.
const soon = 3 * time.Minute

// order is the payload of the tests' messages.
type order struct {
	ID int `json:"id"`
}

// newClient returns a client of a server, without connections of others.
func newClient(t testing.TB, url string) *sqs.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	t.Cleanup(transport.CloseIdleConnections)
	return sqs.New(sqs.Options{
		BaseEndpoint: &url, Region: "elasticmq", HTTPClient: &http.Client{Transport: transport},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil //nolint:gosec // a fake
		}),
	})
}

// bench is one test's queue, with a queue of dead letters.
type bench struct {
	*testing.T
	client     *sqs.Client
	queue      sqsonce.Queue
	url, dead  string
	fifo       bool
	dispatched chan consume.Decision
}

// newBench creates queues, and deletes them after the test. After maxReceives SQS itself moves a message to the dead
// letters.
func newBench(t *testing.T, fifo bool, maxReceives int) *bench {
	t.Helper()
	b := &bench{T: t, client: newClient(t, testserver.URL(t, "sqs")), fifo: fifo, dispatched: make(chan consume.Decision, 10_000)}
	name, end, attributes := "test-"+strings.ToLower(rand.Text()), "", map[string]string{}
	if fifo {
		end = ".fifo"
		attributes["FifoQueue"] = "true"
	}
	b.dead = b.create(name+"-dead"+end, attributes)
	attributes = map[string]string{"VisibilityTimeout": "1", "RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, b.attribute(b.dead, "QueueArn"), maxReceives)}
	if fifo {
		attributes["FifoQueue"] = "true"
	}
	b.url = b.create(name+end, attributes)
	b.queue = sqsonce.Queue{Name: name + end}
	return b
}

func (b *bench) create(name string, attributes map[string]string) string {
	b.Helper()
	out, err := b.client.CreateQueue(b.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		//nolint:errcheck // the test may have deleted it
		_, _ = b.client.DeleteQueue(context.Background(), &sqs.DeleteQueueInput{QueueUrl: out.QueueUrl})
	})
	return *out.QueueUrl
}

func (b *bench) attribute(url, name string) string {
	b.Helper()
	out, err := b.client.GetQueueAttributes(b.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil {
		b.Fatal(err)
	}
	return out.Attributes[name]
}

// send sends a message; attributes are pairs of name and text.
func (b *bench) send(body, group string, attributes ...string) {
	b.Helper()
	in := &sqs.SendMessageInput{QueueUrl: &b.url, MessageBody: &body, MessageAttributes: map[string]types.MessageAttributeValue{}}
	for i := 0; i < len(attributes); i += 2 {
		in.MessageAttributes[attributes[i]] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &attributes[i+1]}
	}
	if group != "" {
		in.MessageGroupId = &group
	}
	if b.fifo {
		in.MessageDeduplicationId = aws.String(rand.Text())
	}
	if _, err := b.client.SendMessage(b.Context(), in); err != nil {
		b.Fatal(err)
	}
}

// sendOrder sends an order with its ID.
func (b *bench) sendOrder(id int, group string) {
	b.Helper()
	b.send(fmt.Sprintf(`{"id":%d}`, id), group, sqsonce.AttributeID, fmt.Sprint("order-", id))
}

// handler returns a consumer with a new store.
func (b *bench) handler(handle func(context.Context, *consume.Message, order) error, change func(*consume.Spec[order])) *consume.Consumer {
	b.Helper()
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Reexecute, nil)
	if err != nil {
		b.Fatal(err)
	}
	return b.handlerOf(recv, handle, change)
}

func (b *bench) handlerOf(recv *everonce.Receiver, handle func(context.Context, *consume.Message, order) error, change func(*consume.Spec[order])) *consume.Consumer {
	b.Helper()
	spec := consume.Spec[order]{
		Consumer: "billing", Key: consume.ProducerID(), Handle: handle, Retry: consume.RetryPolicy{Min: 100 * time.Millisecond, Max: time.Second},
		Observe: func(_ context.Context, _ *consume.Message, v consume.Decision) { b.dispatched <- v },
	}
	if change != nil {
		change(&spec)
	}
	h, err := consume.New(recv, spec)
	if err != nil {
		b.Fatal(err)
	}
	return h
}

// quick has a short long poll, and says nothing.
func quick() *sqsonce.Options {
	return &sqsonce.Options{Wait: time.Second, Visibility: 3 * time.Second, Workers: consume.Workers{Log: slog.New(slog.DiscardHandler), Backoff: consume.Backoff{Min: 10 * time.Millisecond}}}
}

// run runs a consumer until stop is called, or the test ends.
func (b *bench) run(client sqsonce.Client, h *consume.Consumer, o *sqsonce.Options) (stop func()) {
	b.Helper()
	c, err := sqsonce.Dial(b.Context(), client, b.queue, h, o)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				b.Error(err)
			}
		case <-time.After(soon):
			b.Error("the consumer does not end")
		}
	})
	b.Cleanup(stop)
	return stop
}

// decision waits for the next.
func (b *bench) decision() consume.Decision {
	b.Helper()
	select {
	case v := <-b.dispatched:
		return v
	case <-time.After(soon):
		b.Fatal("there is no decision")
		return consume.Decision{}
	}
}

// until waits for the next decision of a kind.
func (b *bench) until(want consume.Disposition) consume.Decision {
	b.Helper()
	for {
		if v := b.decision(); v.Disposition == want {
			return v
		}
	}
}

// empty waits until a queue has no message, not even a hidden one.
func (b *bench) empty(url string) {
	b.Helper()
	b.eventually("the queue is not empty", func() bool {
		return b.attribute(url, "ApproximateNumberOfMessages") == "0" && b.attribute(url, "ApproximateNumberOfMessagesNotVisible") == "0"
	})
}

func (b *bench) eventually(what string, ok func() bool) {
	b.Helper()
	for deadline := time.Now().Add(soon); !ok(); {
		if time.Now().After(deadline) {
			b.Fatal(what)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// letters opens the dead letters.
func (b *bench) letters() *sqsonce.DeadLetters {
	b.Helper()
	l, err := sqsonce.DialDeadLetters(b.Context(), b.client, b.queue)
	if err != nil {
		b.Fatal(err)
	}
	return l
}

// list waits for n dead letters.
func (b *bench) list(n int) (found []consume.DeadLetter) {
	b.Helper()
	l := b.letters()
	b.eventually(fmt.Sprintf("there are not %d dead letters", n), func() bool {
		found = nil
		for letter, err := range l.All(b.Context(), consume.Filter{}) {
			if err != nil {
				b.Fatal(err)
			}
			found = append(found, letter)
		}
		return len(found) >= n
	})
	if len(found) > n {
		b.Fatalf("there are %d dead letters, want %d", len(found), n)
	}
	return found
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
