package rabbitonce_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
)

// lines is a log that is read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func textTo(l *lines) *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// poisoned runs a consumer whose dead-letter queue accepts nothing, which spoil arranges. It sends more bad messages
// than may be unacknowledged, and then a good one, and wants that one to be handled, and the log to report the others.
func (b *bench) poisoned(spoil func(), why string) (poison int) {
	b.t.Helper()
	log := &lines{}
	opts := &rabbitonce.Options{Prefetch: 4, Workers: consume.Workers{Concurrency: 2, Log: textTo(log)}}
	r := b.run(specOf(nothing), opts)
	spoil()
	poison = 2*opts.Prefetch + 1
	for i := range poison {
		b.send(amqp.Publishing{MessageId: fmt.Sprint("poison-", i), Body: []byte("no json")})
	}
	b.send(message("good"))
	for r.decision().Outcome != everonce.Executed {
	}
	text := log.String()
	for _, want := range []string{"level=WARN", "the dead-letter queue refuses a message", "reason=undecodable", b.queue.DeadLetters, why} {
		if !strings.Contains(text, want) {
			b.t.Errorf("the log is without %q: %s", want, text)
		}
	}
	return poison
}

// A full dead-letter queue that rejects messages blocks nothing: bad messages are deferred, and set aside when there
// is room.
func TestFullDeadLettersBlockNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	full := amqp.Table{"x-max-length": int64(1), "x-overflow": "reject-publish"}
	if _, err := b.ch.QueueDeclare(b.queue.DeadLetters, true, false, false, false, full); err != nil {
		t.Fatal(err)
	}
	poison := b.poisoned(func() {}, "the queue is full")
	buried := map[string]bool{}
	for range poison {
		d := b.letter() // and there is room for the next one
		id, _ := d.Headers["x-everonce-message-id"].(string)
		if buried[id] || d.Headers["x-everonce-retries"] != nil || d.Headers["x-everonce-attempts"] != int64(1) {
			t.Errorf("%s came twice, or was counted: %v", id, d.Headers)
		}
		buried[id] = true
	}
	for _, name := range b.queues() {
		b.wantLength(name, 0)
	}
}

// A queue of dead letters that is gone, and may not be declared, holds up nothing either.
func TestMissingDeadLettersBlockNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	b.queue.Topology = rabbitonce.Check
	poison := b.poisoned(func() { b.deleteQueue(b.queue.DeadLetters) }, "no such queue")
	b.queue.Topology = rabbitonce.Declare
	b.declare()
	b.wantLength(b.queue.DeadLetters, poison)
}

// A delay that is full, and rejects what comes, holds up the worker whose message is to wait there, and with it what is behind: until
// there is room, in which the message is not handled again, and then all goes on.
func TestAFullDelayHoldsUpItsWorker(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	delay := b.declareWithADelayForOne()
	complaints := make(chan string, 1000)
	opts := &rabbitonce.Options{Workers: consume.Workers{Concurrency: 1, Log: complaintsTo(complaints)}}
	r := b.run(specOf(func(_ context.Context, m *consume.Message, _ order) error {
		if m.ID == "good" {
			return nil
		}
		return everonce.NotDone(errClosed)
	}), opts)
	b.send(message("m-1"), message("m-2"), message("good"))
	for refused := 0; refused < 3; {
		if strings.Contains(<-complaints, "the queue is full") {
			refused++
		}
	}
	r.wants(everonce.Failed, everonce.Failed)
	if n := len(r.decisions); n != 0 {
		t.Errorf("%d more were handled meanwhile", n)
	}
	b.take(delay)
	r.wants(everonce.Executed)
	b.take(delay)
	b.wantLength(b.queue.Name, 0)
}
