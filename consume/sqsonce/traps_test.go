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

// faulty is a client some of whose calls go wrong.
type faulty struct {
	sqsonce.Client
	deleteMessage func(in *sqs.DeleteMessageInput) (done bool)
	change        func(in *sqs.ChangeMessageVisibilityInput) (done bool)
	changed       func(in *sqs.ChangeMessageVisibilityInput)
	received      func(out *sqs.ReceiveMessageOutput)
	attributes    func(out *sqs.GetQueueAttributesOutput)
	empty         func() bool                           // an answer without messages
	lost          func(in *sqs.DeleteMessageInput) bool // a deletion that fails
}

func (f *faulty) GetQueueAttributes(ctx context.Context, in *sqs.GetQueueAttributesInput, o ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	out, err := f.Client.GetQueueAttributes(ctx, in, o...)
	if err == nil && f.attributes != nil {
		f.attributes(out)
	}
	return out, err
}

func (f *faulty) DeleteMessage(ctx context.Context, in *sqs.DeleteMessageInput, o ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error) {
	if f.deleteMessage != nil && f.deleteMessage(in) {
		return &sqs.DeleteMessageOutput{}, nil
	}
	if f.lost != nil && f.lost(in) {
		return nil, errors.New("the answer was lost")
	}
	return f.Client.DeleteMessage(ctx, in, o...)
}

func (f *faulty) ChangeMessageVisibility(ctx context.Context, in *sqs.ChangeMessageVisibilityInput, o ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error) {
	if f.change != nil && f.change(in) {
		return &sqs.ChangeMessageVisibilityOutput{}, nil
	}
	out, err := f.Client.ChangeMessageVisibility(ctx, in, o...)
	if f.changed != nil {
		f.changed(in)
	}
	return out, err
}

func (f *faulty) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, o ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	if f.empty != nil && f.empty() {
		return &sqs.ReceiveMessageOutput{}, nil
	}
	out, err := f.Client.ReceiveMessage(ctx, in, o...)
	if err == nil && f.received != nil {
		f.received(out)
	}
	return out, err
}

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

// A message that comes again while it is in hand has a new receipt, by which it is deleted: the old one may delete nothing.
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

// What comes again to another consumer after the visibility timeout, while the first one works, takes effect once with everonce,
// and twice without.
func TestTwoConsumersAfterTheVisibilityTimeout(t *testing.T) {
	t.Parallel()
	for _, bare := range []bool{true, false} {
		b := newBench(t, false, 100)
		b.sendOrder(1, "")
		recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Reexecute, nil)
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan struct{})
		var effects, deliveries atomic.Int32
		effect := func() {
			if effects.Add(1) == 1 {
				<-second // it takes longer than its visibility
			}
		}
		handler := func() *consume.Consumer {
			if bare {
				h, err := consume.NewNatural(consume.NaturalSpec[order]{
					Consumer: "billing", Key: consume.ProducerID(),
					Handle:  func(context.Context, *consume.Message, order) (bool, error) { effect(); return true, nil },
					Observe: func(_ context.Context, _ *consume.Message, v consume.Verdict) { b.dispatched <- v },
				})
				if err != nil {
					t.Fatal(err)
				}
				return h
			}
			return b.handlerOf(recv, func(context.Context, *consume.Message, order) error { effect(); return nil }, nil)
		}
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
			}, handler(), o)
		}
		b.until(consume.Ack)
		if bare {
			b.until(consume.Ack)
		}
		b.empty(b.url)
		if want := map[bool]int32{true: 2, false: 1}[bare]; effects.Load() != want || deliveries.Load() < 2 {
			t.Errorf("without everonce is %v: it took effect %d times, want %d, after %d deliveries", bare, effects.Load(), want, deliveries.Load())
		}
	}
}

// FIFO drops what has the same deduplication ID within five minutes, and nothing else: what a producer sends again with another
// one, as one that was restarted does, or after five minutes, arrives twice.
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

// A redrive by SQS itself gives a message another MessageId. A key from an attribute or from the body survives that.
func TestARedriveHasANewMessageID(t *testing.T) {
	t.Parallel()
	b := newBench(t, false, 1)
	b.sendOrder(1, "")
	var ids []string
	var mu sync.Mutex
	runs := 0
	b.run(b.client, b.handler(func(_ context.Context, m *consume.Message, _ order) error {
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, m.BrokerID)
		runs++
		return nil
	}, func(s *consume.Spec[order]) {
		observe := s.Observe
		s.Observe = func(ctx context.Context, m *consume.Message, v consume.Verdict) {
			mu.Lock()
			ids = append(ids, m.BrokerID)
			mu.Unlock()
			observe(ctx, m, v)
		}
	}), &sqsonce.Options{Wait: time.Second, Visibility: 3 * time.Second, Workers: quick().Workers})
	b.until(consume.Ack)
	b.empty(b.url)

	// The same message fails elsewhere, and SQS moves it; an operator moves it back.
	b.sendTo(b.dead, `{"id":1}`, sqsonce.AttributeID, "order-1")
	if _, err := b.client.StartMessageMoveTask(t.Context(), &sqs.StartMessageMoveTaskInput{
		SourceArn: aws.String(b.attribute(b.dead, "QueueArn")), DestinationArn: aws.String(b.attribute(b.url, "QueueArn")),
	}); err != nil {
		t.Fatal(err)
	}
	if v := b.until(consume.Ack); v.Outcome != everonce.Replayed {
		t.Errorf("the outcome is %v", v.Outcome)
	}
	mu.Lock()
	defer mu.Unlock()
	if runs != 1 || ids[0] == ids[len(ids)-1] {
		t.Errorf("it ran %d times, with the MessageIds %v", runs, ids)
	}
}

func (b *bench) sendTo(url, body string, attributes ...string) {
	b.Helper()
	to := *b
	to.url = url
	to.send(body, "", attributes...)
}

// SQS counts each receipt, and moves a message to the dead letters by its own count.
func TestALetterOfSQSItself(t *testing.T) {
	t.Parallel()
	for _, fifo := range []bool{false, true} {
		b := newBench(t, fifo, 2)
		b.sendOrder(1, "a")
		for range 2 {
			b.receive(1)
		}
		b.eventually("SQS has not moved the message", func() bool {
			b.receive(0)
			return b.attribute(b.dead, "ApproximateNumberOfMessages") == "1"
		})
		letter := b.list(1)[0]
		if letter.Reason != sqsonce.MaxReceives || letter.Queue != b.queue.Name || letter.Message.ID != "order-1" || letter.ID != b.list(1)[0].ID {
			t.Errorf("the letter is %s", asJSON(t, letter))
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

// What is behind a failing message in its group is not received with it: its retries are its own.
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

// A message that comes again before the answer that hid it is read is in nobody's hand, and is not left hidden by its new receipt.
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
			once.Do(func() { <-receipts; <-receipts; <-time.After(100 * time.Millisecond) }) // until the second is in hand
		},
	}
	o := quick()
	o.Visibility = 10 * time.Minute // nobody could wait for that
	b.run(client, b.handler(func(_ context.Context, m *consume.Message, _ order) error {
		if m.Retries == 0 {
			return everonce.NotDone(errors.New("not yet"))
		}
		return nil
	}, nil), o)
	b.until(consume.Ack)
	b.empty(b.url)
}

// A dead letter whose message could not be deleted is not sent again for that.
func TestADeadLetterIsSentOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, false, 100)
	b.sendOrder(1, "")
	var lost atomic.Int32
	b.run(&faulty{Client: b.client, lost: func(*sqs.DeleteMessageInput) bool { return lost.Add(1) <= 2 }}, b.handler(func(context.Context, *consume.Message, order) error {
		return everonce.Permanent("refused", errors.New("never"), nil)
	}, nil), quick())
	b.until(consume.Bury)
	b.empty(b.url)
	b.list(1)
}

// Draining gives back what no handler has begun, at once.
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
	o.Visibility = 10 * time.Minute // nobody could wait for that
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
