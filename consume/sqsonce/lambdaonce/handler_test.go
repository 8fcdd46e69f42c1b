package lambdaonce_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/sqsonce"
	"github.com/everonce/everonce/consume/sqsonce/lambdaonce"
	"github.com/everonce/everonce/store/memstore"
)

// queues is a fake client for what the function itself calls: queues, dead letters and delays.
type queues struct {
	sqsonce.Client
	fifo   string
	denied bool // to change the visibility, as with the role that AWS has for such functions

	mu      sync.Mutex
	letters []*sqs.SendMessageInput
	delays  map[string]int32
}

func (q *queues) GetQueueUrl(_ context.Context, in *sqs.GetQueueUrlInput, _ ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error) { //nolint:revive,staticcheck // SQS' name
	return &sqs.GetQueueUrlOutput{QueueUrl: aws.String("https://sqs.test/1/" + *in.QueueName)}, nil
}

func (q *queues) GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput, ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	return &sqs.GetQueueAttributesOutput{Attributes: map[string]string{"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:eu:1:dead` + q.fifo + `","maxReceiveCount":"100"}`}}, nil
}

func (q *queues) SendMessage(_ context.Context, in *sqs.SendMessageInput, _ ...func(*sqs.Options)) (*sqs.SendMessageOutput, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.letters = append(q.letters, in)
	return &sqs.SendMessageOutput{}, nil
}

func (q *queues) ChangeMessageVisibility(_ context.Context, in *sqs.ChangeMessageVisibilityInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.denied {
		return nil, &smithy.GenericAPIError{Code: "AccessDenied"}
	}
	q.delays[*in.ReceiptHandle] = in.VisibilityTimeout
	return &sqs.ChangeMessageVisibilityOutput{}, nil
}

type order struct{ Do string }

// invoke calls the function with an event of these messages, each "group:what", in Lambda's format, and returns the
// numbers of the failed ones.
func invoke(ctx context.Context, t *testing.T, handler func(context.Context, events.SQSEvent) (events.SQSEventResponse, error), messages ...string) string {
	t.Helper()
	var records []string
	for i, m := range messages {
		group, what, _ := strings.Cut(m, ":")
		records = append(records, fmt.Sprintf(`{"messageId": "m-%[1]d", "receiptHandle": "r-%[1]d", "body": "{\"do\":\"%[2]s\"}", "eventSource": "aws:sqs",
			"attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": "1545082649183", "MessageGroupId": "%[3]s"},
			"messageAttributes": {"message-id": {"stringValue": "%[4]s", "dataType": "String"}}}`, i, what, group, m))
	}
	var event events.SQSEvent
	if err := json.Unmarshal([]byte(`{"Records": [`+strings.Join(records, ",")+`]}`), &event); err != nil {
		t.Fatal(err)
	}
	response, err := handler(ctx, event)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := json.Marshal(response)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(`{"batchItemFailures":`, "", `{"itemIdentifier":"m-`, "", `"}`, "", "}", "").Replace(string(answer))
}

func newHandler(t *testing.T, q *queues, handle func(context.Context, *consume.Message, order) error) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error) {
	t.Helper()
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Reexecute, nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := consume.New(recv, consume.Spec[order]{Consumer: "billing", Key: consume.ProducerID(), Handle: handle})
	if err != nil {
		t.Fatal(err)
	}
	q.delays = map[string]int32{}
	c, err := sqsonce.Dial(t.Context(), q, sqsonce.Queue{Name: "orders" + q.fifo}, h, &sqsonce.Options{Workers: consume.Workers{Log: slog.New(slog.DiscardHandler)}})
	if err != nil {
		t.Fatal(err)
	}
	return lambdaonce.Handler(c)
}

// The answer names exactly the failed messages.
func TestAnswerNamesFailedMessages(t *testing.T) {
	for _, fifo := range []string{"", ".fifo"} {
		q := &queues{fifo: fifo}
		var mu sync.Mutex
		var handled []string
		handler := newHandler(t, q, func(_ context.Context, m *consume.Message, o order) error {
			mu.Lock()
			defer mu.Unlock()
			handled = append(handled, m.ID)
			switch o.Do {
			case "fail":
				return everonce.NotDone(errors.New("not yet"))
			case "refuse":
				return everonce.Permanent("never", errors.New("never"), nil)
			}
			return nil
		})
		got := invoke(t.Context(), t, handler, "a:one", "a:fail", "a:two", "b:refuse", "b:three", "c:")
		want := map[string]string{"": "[1]", ".fifo": "[1,2]"}[fifo] // what is behind a failure in its group comes again
		if got != want {
			t.Errorf("%s: the failures are %s, want %s", fifo, got, want)
		}
		if fifo != "" && strings.Contains(strings.Join(handled, " "), "a:two") {
			t.Errorf("what is behind a failure was handled: %v", handled)
		}
		if len(q.letters) != 1 || q.delays["r-1"] < 1 {
			t.Errorf("%s: %d dead letters, and the delays are %v", fifo, len(q.letters), q.delays)
		}
	}
}

// A message that another invocation is handling is not acknowledged.
func TestAcknowledgesNothingInProgress(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	handler := newHandler(t, &queues{}, func(_ context.Context, _ *consume.Message, o order) error {
		if o.Do == "long" {
			close(begun)
			<-release
		}
		return nil
	})
	first := make(chan string)
	go func() { first <- invoke(t.Context(), t, handler, "a:long") }()
	<-begun
	if got := invoke(t.Context(), t, handler, "a:long", "b:one"); got != "[0]" {
		t.Errorf("the failures are %s, want what is in progress", got)
	}
	close(release)
	if got := <-first; got != "[]" {
		t.Errorf("the failures of the first invocation are %s", got)
	}
}

// A message that there was no time for is not acknowledged either, and the answer comes within the function's time.
func TestAnswersInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := newHandler(t, &queues{}, func(ctx context.Context, _ *consume.Message, o order) error {
			if o.Do == "endless" {
				<-ctx.Done()
				return everonce.NotDone(ctx.Err())
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if got := invoke(ctx, t, handler, "a:endless", "b:two"); got != "[0]" || ctx.Err() != nil {
			t.Errorf("the failures are %s, and the function's time is over: %v", got, ctx.Err())
		}
	})
}

// A function whose role may not hide a message for its delay still answers at once.
func TestAnswersWithoutTheRightToDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := newHandler(t, &queues{denied: true}, func(context.Context, *consume.Message, order) error {
			return everonce.NotDone(errors.New("not yet"))
		})
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if got := invoke(ctx, t, handler, "a:one"); got != "[0]" || time.Since(begin) > 0 {
			t.Errorf("the failures are %s, after %v", got, time.Since(begin))
		}
	})
}

// An event of another source is an error: its messages would be taken for done.
func TestRefusesOtherEvents(t *testing.T) {
	handler := newHandler(t, &queues{}, func(context.Context, *consume.Message, order) error { return nil })
	if _, err := handler(t.Context(), events.SQSEvent{Records: []events.SQSMessage{{EventSource: "aws:s3"}}}); err == nil {
		t.Error("there is no error")
	}
}
