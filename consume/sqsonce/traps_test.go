package sqsonce_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/sqsonce"
	"github.com/everonce/everonce/store/memstore"
)

// SQS may answer that it has deleted a message, and deliver it again.
func TestADeleteThatDeletedNothingIsHarmless(t *testing.T) {
	t.Parallel()
	b := newBench(t, false, 100)
	b.sendOrder(1, "")
	var lies, runs atomic.Int32
	client := &faulty{Client: b.client, deleteMessage: func(*sqs.DeleteMessageInput) bool { return lies.Add(1) == 1 }}
	b.run(client, b.handler(func(context.Context, *consume.Message, order) error { runs.Add(1); return nil }, nil), quick())
	if first, second := b.until(consume.Ack), b.until(consume.Ack); first.Outcome != everonce.Executed || second.Outcome != everonce.Replayed || runs.Load() != 1 {
		t.Errorf("the outcomes are %v and %v, after %d runs", first.Outcome, second.Outcome, runs.Load())
	}
	b.empty(b.url)
}

// A message that is redelivered while it is being handled has a new receipt, which deletes it: the old one may delete
// nothing.
func TestDeletesByTheLatestReceipt(t *testing.T) {
	t.Parallel()
	b := newBench(t, false, 100)
	b.sendOrder(1, "")
	var first, used atomic.Value
	receipts := make(chan struct{}, 100)
	client := &faulty{
		Client: b.client,
		change: func(*sqs.ChangeMessageVisibilityInput) bool { return true }, // the heartbeat does not arrive
		received: func(out *sqs.ReceiveMessageOutput) {
			for i := range out.Messages {
				first.CompareAndSwap(nil, *out.Messages[i].ReceiptHandle)
				receipts <- struct{}{}
			}
		},
		deleteMessage: func(in *sqs.DeleteMessageInput) bool { used.Store(*in.ReceiptHandle); return false },
	}
	var runs atomic.Int32
	b.run(client, b.handler(func(context.Context, *consume.Message, order) error {
		runs.Add(1)
		<-receipts
		<-receipts
		<-receipts // before it was asked for the third, the second was noted
		return nil
	}, nil), quick())
	b.until(consume.Ack)
	b.empty(b.url)
	if used.Load() == first.Load() || runs.Load() != 1 {
		t.Errorf("it was deleted by an older receipt, or ran %d times", runs.Load())
	}
}

// A message that goes to another consumer after the visibility timeout, while the first one works, takes effect once
// with everonce, and twice without.
func TestTwoConsumersAfterTheVisibilityTimeout(t *testing.T) {
	t.Parallel()
	t.Run("WithoutEveronce", func(t *testing.T) {
		t.Parallel()
		twoConsumers(t, 2, func(b *bench, effect func()) *consume.Consumer {
			h, err := consume.NewNatural(consume.NaturalSpec[order]{
				Consumer: "billing", Key: consume.ProducerID(),
				Handle:  func(context.Context, *consume.Message, order) (bool, error) { effect(); return true, nil },
				Observe: func(_ context.Context, _ *consume.Message, v consume.Decision) { b.dispatched <- v },
			})
			if err != nil {
				t.Fatal(err)
			}
			return h
		})
	})
	t.Run("WithEveronce", func(t *testing.T) {
		t.Parallel()
		twoConsumers(t, 1, func(b *bench, effect func()) *consume.Consumer {
			return b.handler(func(context.Context, *consume.Message, order) error { effect(); return nil }, nil)
		})
	})
}

// twoConsumers sends a message to two consumers, whose effect takes longer than its visibility: it is to happen so often.
func twoConsumers(t *testing.T, want int32, handler func(b *bench, effect func()) *consume.Consumer) {
	t.Helper()
	b := newBench(t, false, 100)
	b.sendOrder(1, "")
	second := make(chan struct{})
	var effects, deliveries atomic.Int32
	h := handler(b, func() {
		if effects.Add(1) == 1 {
			<-second
		}
	})
	var once sync.Once
	o := quick()
	o.Prefetch, o.Workers.Concurrency = 1, 1 // so that who works does not ask
	for range 2 {
		b.run(&faulty{
			Client: b.client,
			change: func(in *sqs.ChangeMessageVisibilityInput) bool { return in.VisibilityTimeout == 3 }, // no heartbeat arrives
			received: func(out *sqs.ReceiveMessageOutput) {
				if len(out.Messages) > 0 && deliveries.Add(int32(len(out.Messages))) >= 2 { //nolint:gosec // few
					once.Do(func() { time.AfterFunc(time.Second, func() { close(second) }) })
				}
			},
		}, h, o)
	}
	b.until(consume.Ack)
	if want == 2 {
		b.until(consume.Ack)
	}
	b.empty(b.url)
	t.Logf("%d deliveries, %d effects", deliveries.Load(), effects.Load())
	if effects.Load() != want || deliveries.Load() < 2 {
		t.Errorf("it took effect %d times, want %d, after %d deliveries", effects.Load(), want, deliveries.Load())
	}
}

// A FIFO queue drops only messages with the same deduplication ID within five minutes: a resend with another one, as
// after a restart of the producer, or after five minutes, arrives twice.
func TestFIFODeduplicationIsNotEnough(t *testing.T) {
	t.Parallel()
	b := newBench(t, true, 100)
	for _, id := range []string{"first", "first", "after a restart"} {
		if _, err := b.client.SendMessage(t.Context(), &sqs.SendMessageInput{
			QueueUrl: &b.url, MessageBody: aws.String(`{"id":7}`), MessageGroupId: aws.String("a"), MessageDeduplicationId: aws.String(strings.ReplaceAll(id, " ", "-")),
		}); err != nil {
			t.Fatal(err)
		}
	}
	var runs atomic.Int32
	b.run(b.client, b.handler(func(context.Context, *consume.Message, order) error { runs.Add(1); return nil },
		func(s *consume.Spec[order]) { s.Key = consume.JSONPointer("/id") }), quick())
	if first, second := b.until(consume.Ack), b.until(consume.Ack); first.Outcome != everonce.Executed || second.Outcome != everonce.Replayed {
		t.Errorf("the outcomes are %v and %v", first.Outcome, second.Outcome)
	}
	b.empty(b.url)
	if len(b.dispatched) > 0 || runs.Load() != 1 {
		t.Errorf("SQS delivered %d more, and it ran %d times", len(b.dispatched), runs.Load())
	}
}

// A redrive by SQS itself gives a message another MessageId, its documentation says. ElasticMQ's does not, so it is changed here.
// A key from an attribute survives that, and the MessageId as a key does not.
func TestARedriveHasANewMessageID(t *testing.T) {
	t.Parallel()
	for want, key := range map[everonce.Outcome]consume.Key{everonce.Replayed: consume.ProducerID(), everonce.Executed: consume.BrokerID()} {
		t.Run(want.String(), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, false, 1)
			b.sendOrder(1, "")
			h := b.handler(func(context.Context, *consume.Message, order) error { return nil }, func(s *consume.Spec[order]) { s.Key = key })
			// It is handled, but not deleted: SQS moves it to the dead letters, and an operator moves it back.
			stop := b.run(&faulty{Client: b.client, deleteMessage: func(*sqs.DeleteMessageInput) bool { return true }}, h, quick())
			b.until(consume.Ack)
			b.eventually("SQS has not moved the message", func() bool { return b.attribute(b.dead, "ApproximateNumberOfMessages") == "1" })
			stop()
			if _, err := b.client.StartMessageMoveTask(t.Context(), &sqs.StartMessageMoveTaskInput{
				SourceArn: aws.String(b.attribute(b.dead, "QueueArn")), DestinationArn: aws.String(b.attribute(b.url, "QueueArn")),
			}); err != nil {
				t.Fatal(err)
			}
			b.run(&faulty{Client: b.client, received: func(out *sqs.ReceiveMessageOutput) {
				for i := range out.Messages {
					out.Messages[i].MessageId = aws.String("after-the-redrive")
				}
			}}, h, quick())
			if v := b.until(consume.Ack); v.Outcome != want {
				t.Errorf("the outcome is %v", v.Outcome)
			}
			b.empty(b.url)
		})
	}
}

func (b *bench) sendTo(url, body string, attributes ...string) {
	b.Helper()
	to := *b
	to.url = url
	to.send(body, "", attributes...)
}

// SQS counts each receipt, and moves a message to the dead letters by its own count. The destination of a replay then
// comes from SQS, and not from the producer.
func TestALetterOfSQSItself(t *testing.T) {
	t.Parallel()
	for _, fifo := range []bool{false, true} {
		b := newBench(t, fifo, 2)
		b.send(`{"id":1}`, "a", sqsonce.AttributeID, "order-1", "everonce-note", `{"headers":{"x-everonce-queue":"forged","x-everonce-reason":"rejected"}}`)
		for range 2 {
			b.receive(1)
		}
		b.eventually("SQS has not moved the message", func() bool {
			b.receive(0)
			return b.attribute(b.dead, "ApproximateNumberOfMessages") == "1"
		})
		letter := b.list(1)[0]
		if letter.Reason != sqsonce.MaxReceives || letter.Queue != b.queue.Name || letter.Message.ID != "order-1" || letter.ID != b.list(1)[0].ID {
			t.Errorf("the dead letter is %s", asJSON(t, letter))
		}
		var runs atomic.Int32
		b.run(b.client, b.handler(func(_ context.Context, m *consume.Message, _ order) error {
			runs.Add(1)
			if fifo && m.Headers[sqsonce.HeaderGroup] != "a" {
				t.Errorf("the group is %q", m.Headers[sqsonce.HeaderGroup])
			}
			return nil
		}, nil), quick())
		if n, err := b.letters().Replay(t.Context(), consume.Filter{}); n != 1 || err != nil {
			t.Errorf("%d were replayed: %v", n, err)
		}
		b.until(consume.Ack)
		b.empty(b.dead)
		if runs.Load() != 1 {
			t.Errorf("it ran %d times", runs.Load())
		}
	}
}

// receive receives so many messages, or looks whether there is one, and hides them for no time.
func (b *bench) receive(n int) {
	b.Helper()
	for got := -1; got < n; {
		out, err := b.client.ReceiveMessage(b.Context(), &sqs.ReceiveMessageInput{QueueUrl: &b.url, VisibilityTimeout: 0, WaitTimeSeconds: int32(min(n, 1))})
		if err != nil {
			b.Fatal(err)
		}
		if got = max(got, 0) + len(out.Messages); n == 0 {
			return
		}
	}
}

// In a FIFO queue nothing of a group is handled before a message that failed has come again.
func TestFIFOKeepsTheOrderOnFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t, true, 100)
	for id := range 12 {
		b.sendOrder(id, "a")
	}
	b.sendOrder(100, "b")
	var mu sync.Mutex
	var done []int
	failed := map[int]bool{}
	b.run(b.client, b.handler(func(_ context.Context, _ *consume.Message, o order) error {
		mu.Lock()
		defer mu.Unlock()
		if o.ID%5 == 2 && !failed[o.ID] {
			failed[o.ID] = true
			return everonce.NotDone(errors.New("not yet"))
		}
		if o.ID < 100 {
			done = append(done, o.ID)
		}
		return nil
	}, nil), quick())
	for range 13 {
		b.until(consume.Ack)
	}
	b.empty(b.url)
	mu.Lock()
	defer mu.Unlock()
	if got := fmt.Sprint(done); got != "[0 1 2 3 4 5 6 7 8 9 10 11]" || len(failed) != 2 {
		t.Errorf("they were done in the order %s, after failures of %v", got, failed)
	}
}

// Later messages of a group are not received with a failing one: they keep all their retries.
func TestFIFOFollowersKeepTheirRetries(t *testing.T) {
	t.Parallel()
	b := newBench(t, true, 100)
	for id := range 4 {
		b.sendOrder(id, "a")
	}
	var mu sync.Mutex
	var got []string
	h := b.handler(func(_ context.Context, m *consume.Message, o order) error {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, fmt.Sprint(o.ID, ":", m.Retries))
		if o.ID == 0 || o.ID == 2 && m.Retries == 0 {
			return everonce.NotDone(errors.New("not yet"))
		}
		return nil
	}, func(s *consume.Spec[order]) { s.Retry.Limit = 2 })
	b.run(b.client, h, quick())
	b.run(b.client, h, quick()) // another process
	for range 3 {
		b.until(consume.Ack)
	}
	b.empty(b.url)
	b.list(1)
	mu.Lock()
	defer mu.Unlock()
	if text := strings.Join(got, " "); text != "0:0 0:1 0:2 1:0 2:0 2:1 3:0" {
		t.Errorf("the tries, as message:retries, were %s", text)
	}
}

// A message that comes again before the consumer reads the answer that hid it is not left hidden by its new receipt.
func TestComesAgainBeforeItsRetryIsAnswered(t *testing.T) {
	t.Parallel()
	b := newBench(t, false, 100)
	b.sendOrder(1, "")
	receipts := make(chan struct{}, 100)
	var once sync.Once
	client := &faulty{
		Client: b.client,
		received: func(out *sqs.ReceiveMessageOutput) {
			for range out.Messages {
				receipts <- struct{}{}
			}
		},
		changed: func(*sqs.ChangeMessageVisibilityInput) {
			once.Do(func() { <-receipts; <-receipts; <-time.After(100 * time.Millisecond) }) // until the second is received
		},
	}
	o := quick()
	o.Visibility = 10 * time.Minute // too long to wait for
	b.run(client, b.handler(func(_ context.Context, m *consume.Message, _ order) error {
		if m.Retries == 0 {
			return everonce.NotDone(errors.New("not yet"))
		}
		return nil
	}, nil), o)
	b.until(consume.Ack)
	b.empty(b.url)
}

// If a message could not be deleted, its dead letter is not sent again.
func TestADeadLetterIsSentOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, false, 100)
	b.sendOrder(1, "")
	var lost atomic.Int32
	b.run(&faulty{Client: b.client, lost: func(*sqs.DeleteMessageInput) bool { return lost.Add(1) <= 2 }}, b.handler(func(context.Context, *consume.Message, order) error {
		return everonce.Permanent("refused", errors.New("never"), nil)
	}, nil), quick())
	b.until(consume.SetAside)
	b.empty(b.url)
	b.list(1)
}

// A dead-letter queue that is missing, or that the consumer may not send to, blocks nothing: messages for it come
// again.
func TestRefusedDeadLettersBlockNothing(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"QueueDoesNotExist", "AccessDenied", "KMS.DisabledException"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, false, 100)
			b.sendOrder(1, "")
			var mended atomic.Bool
			client := &faulty{Client: b.client, refused: func(call string) string {
				if call == "SendMessage" && !mended.Load() {
					return code
				}
				return ""
			}}
			o := quick()
			o.Workers.Concurrency = 1
			b.run(client, b.handler(func(_ context.Context, _ *consume.Message, o order) error {
				if o.ID == 1 {
					return everonce.Permanent("refused", errors.New("never"), nil)
				}
				return nil
			}, nil), o)
			b.until(consume.SetAside)
			b.sendOrder(2, "")
			b.until(consume.Ack)
			mended.Store(true)
			b.list(1)
			b.empty(b.url)
		})
	}
}

// The consumer logs that its credentials have expired, or that its queue is gone, and goes on when that is mended.
func TestGoesOnWhenSQSIsMended(t *testing.T) {
	t.Parallel()
	b := newBench(t, false, 100)
	var asked atomic.Int32
	client := &faulty{Client: b.client, refused: func(call string) string {
		if call == "ReceiveMessage" && asked.Add(1) <= 2 {
			return "ExpiredToken" // ElasticMQ takes any credentials
		}
		return ""
	}}
	o := quick()
	o.Backoff = consume.Backoff{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond}
	o.Workers.SettleTimeout = time.Second // a request that waits is not answered when its queue goes
	b.run(client, b.handler(func(context.Context, *consume.Message, order) error { return nil }, nil), o)
	b.sendOrder(1, "")
	b.until(consume.Ack)
	if _, err := b.client.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: &b.url}); err != nil {
		t.Fatal(err)
	}
	b.eventually("the queue is not missed", func() bool { return client.failures.Load() > 0 })
	b.create(b.queue.Name, nil)
	b.sendOrder(2, "")
	b.until(consume.Ack)
	b.empty(b.url)
}

// Draining gives back messages that no handler has started, at once.
func TestDrainLosesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, false, 100)
	const messages = 30
	for id := range messages {
		b.sendOrder(id, "")
	}
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Reexecute, nil)
	if err != nil {
		t.Fatal(err)
	}
	var effects [messages]atomic.Int32
	begun, release := make(chan struct{}, messages), make(chan struct{})
	h := b.handlerOf(recv, func(_ context.Context, _ *consume.Message, o order) error {
		effects[o.ID].Add(1)
		begun <- struct{}{}
		<-release
		return nil
	}, nil)
	o := quick()
	o.Visibility = 10 * time.Minute // too long to wait for
	stop := b.run(b.client, h, o)
	<-begun
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	close(release)
	<-stopped
	b.run(b.client, h, o)
	b.eventually("not all were handled", func() bool { return b.attribute(b.url, "ApproximateNumberOfMessages") == "0" })
	b.empty(b.url)
	for id := range effects {
		if n := effects[id].Load(); n != 1 {
			t.Errorf("order %d took effect %d times", id, n)
		}
	}
}
