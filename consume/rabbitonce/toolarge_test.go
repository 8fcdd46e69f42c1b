package rabbitonce_test

import (
	"context"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/memstore"
)

// largestMessage lowers the size of messages that the node accepts, until restore is called. It keeps larger ones, as
// after an upgrade to a version with a lower default.
func (n *node) largestMessage(bytes string) (restore func()) {
	set := func(bytes string) { // from RabbitMQ 4 on, channels look for it in the second place
		n.ctl("eval", "application:set_env(rabbit, max_message_size, "+bytes+"), persistent_term:put(max_message_size, "+bytes+").")
	}
	set(bytes)
	return func() { set("134217728") }
}

// largeMessage is larger than what the broker takes by then, in several frames.
func largeMessage(id string) amqp.Publishing {
	msg := message(id)
	msg.Body = []byte(`{"id":"` + id + `","text":"` + strings.Repeat("x", 300_000) + `"}`)
	return msg
}

// A message that has become too large for a copy becomes a dead letter of the broker when it is to be retried or set
// aside: no worker waits for it, and nothing is lost. It is replayed when the broker accepts it again, and other dead
// letters before that.
func (n *node) tooLarge(t *testing.T) {
	b := newBenchOn(t, n.URL)
	b.declare()
	b.send(largeMessage("m-1"), largeMessage(""))
	restore := n.largestMessage("200000")
	log, closed := &lines{}, true
	r := b.runOn(memstore.New(nil), n.URL, specOf(func(_ context.Context, m *consume.Message, _ order) error {
		if m.ID == "m-1" && closed {
			closed = false
			return everonce.NotDone(errClosed)
		}
		return nil
	}), &rabbitonce.Options{Workers: consume.Workers{Concurrency: 1, Log: textTo(log)}})
	b.send(message(""), message("m-2"))
	for r.decision().Outcome != everonce.Executed {
	}
	b.wantLength(b.queue.Name, 0)
	b.wantLength(b.queue.DeadLetters, 3)
	for _, want := range []string{"message dead-lettered", "reason=too_large", "is larger than configured max size", errClosed.Error()} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log is without %q: %s", want, log.String())
		}
	}
	l := b.letters()
	found, err := l.List(t.Context(), consume.Filter{Reasons: []consume.Reason{"broker_rejected"}})
	if err != nil || len(found) != 2 || found[0].Queue != b.queue.Name || len(found[0].Message.Body) < 300_000 {
		t.Fatalf("%d dead letters, %v", len(found), err)
	}
	if n, err := l.Replay(t.Context(), consume.Filter{}); n != 1 || err == nil || strings.Count(err.Error(), "is larger than the broker accepts") != 2 {
		t.Errorf("replayed %d, %v", n, err)
	}
	b.wantLength(b.queue.DeadLetters, 3) // the replayed one was set aside again
	restore()
	l = b.letters() // a channel has the limit with which it was opened
	if n, err := l.Replay(t.Context(), consume.Filter{Reasons: []consume.Reason{"broker_rejected"}}); n != 2 || err != nil {
		t.Errorf("replayed %d, %v", n, err)
	}
	for r.decision().Outcome != everonce.Executed {
	}
	b.wantLength(b.queue.DeadLetters, 2)
}

// A queue that was declared elsewhere may drop rejected messages, so the message waits, and goes on when the broker
// accepts it again.
func (n *node) tooLargeElsewhere(t *testing.T) {
	b := newBenchOn(t, n.URL)
	if _, err := b.ch.QueueDeclare(b.queue.Name, true, false, false, false, nil); err != nil { // without dead letters
		t.Fatal(err)
	}
	b.queue.Topology = rabbitonce.DeclareOwn
	b.declare()
	b.send(largeMessage("m-1"))
	restore := n.largestMessage("200000")
	complained := make(chan string, 10_000)
	ran := 0
	r := b.runOn(memstore.New(nil), n.URL, specOf(func(context.Context, *consume.Message, order) error {
		if ran++; ran == 1 {
			return everonce.NotDone(errClosed)
		}
		return nil
	}), &rabbitonce.Options{Workers: consume.Workers{Log: complaintsTo(complained)}})
	r.wants(everonce.Failed)
	for range 3 {
		if c := <-complained; !strings.Contains(c, "is larger than the broker accepts") {
			t.Fatalf("it complained of %s", c)
		}
	}
	restore()
	r.wants(everonce.Executed)
	b.wantLength(b.queue.Name, 0)
	r.stop()
	if ran != 2 {
		t.Errorf("it ran %d times", ran)
	}
}
