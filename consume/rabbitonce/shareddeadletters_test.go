package rabbitonce_test

import (
	"context"
	"net"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
)

// Dead letters that several queues share are told apart by the queue that they came from, those too that the broker has
// made: what is meant for one queue never gets into another.
func TestSharedDeadLetters(t *testing.T) {
	t.Parallel()
	b, other := newBench(t), newBench(t)
	own := other.queue.DeadLetters
	other.queue.DeadLetters = b.queue.DeadLetters
	b.setAsideInBoth(other)
	other.queue.DeadLetters = own
	expires := amqp.Table{"x-message-ttl": int64(1), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": b.queue.DeadLetters}
	if _, err := b.ch.QueueDeclare(own, true, false, false, false, expires); err != nil {
		t.Fatal(err)
	}
	b.sendTo(own, message("m-3"))
	b.wantLength(b.queue.DeadLetters, 3)

	l := b.letters()
	for queue, want := range map[string]consume.Reason{b.queue.Name: consume.NoKey, other.queue.Name: consume.NoKey, own: "broker_expired"} {
		found, err := l.List(t.Context(), consume.Filter{Queue: queue})
		if err != nil || len(found) != 1 || found[0].Queue != queue || found[0].Reason != want {
			t.Errorf("of %s: %+v, %v", queue, found, err)
		}
	}
	if n, err := l.Replay(t.Context(), consume.Filter{Queue: other.queue.Name}); n != 1 || err != nil {
		t.Errorf("replayed %d, %v", n, err)
	}
	b.wantLength(other.queue.Name, 1)
	b.wantLength(b.queue.Name, 0)
	if n, err := l.Discard(t.Context(), consume.Filter{Queue: b.queue.Name}); n != 1 || err != nil {
		t.Errorf("discarded %d, %v", n, err)
	}
	b.wantLength(b.queue.DeadLetters, 1)
}

// setAsideInBoth sends a message without a key to both queues, where consumers set it aside.
func (b *bench) setAsideInBoth(other *bench) {
	b.t.Helper()
	for i, queue := range []*bench{b, other} {
		r := queue.run(specOf(nothing), nil)
		queue.send(message(""))
		r.decision()
		r.stop()
		b.wantLength(b.queue.DeadLetters, i+1)
	}
}

// A header of the producer's does not say where a replay puts a letter: who may write to one queue would write to any by it.
func TestAForgedQueueIsNotReplayedTo(t *testing.T) {
	t.Parallel()
	b, other := newBench(t), newBench(t)
	other.declare()
	r := b.run(specOf(nothing), nil)
	msg := message("")
	msg.Headers = amqp.Table{"x-everonce-queue": other.queue.Name}
	b.send(msg)
	b.whenBuried(r, 1)
	r.stop()
	found, err := b.letters().List(t.Context(), consume.Filter{})
	if err != nil || len(found) != 1 || found[0].Queue != b.queue.Name {
		t.Errorf("%+v, %v", found, err)
	}
	b.wantReplayed(other, 1)
}

// wantReplayed replays all letters, and wants them in their own queue, and none in the other one.
func (b *bench) wantReplayed(other *bench, want int) {
	b.t.Helper()
	if n, err := b.letters().Replay(b.t.Context(), consume.Filter{}); n != want || err != nil {
		b.t.Errorf("replayed %d, %v", n, err)
	}
	b.wantLength(b.queue.Name, want)
	b.wantLength(other.queue.Name, 0)
}

// Nor does it where the broker has made the letter: there is no copy of ours in which the header would have been overwritten.
func TestABrokersDeadLetterIsNotReplayedToAForgedQueue(t *testing.T) {
	t.Parallel()
	b, other := newBench(t), newBench(t)
	b.declare()
	other.declare()
	for _, forged := range []amqp.Table{
		{"x-everonce-queue": other.queue.Name},
		{"x-everonce-queue": other.queue.Name, "x-everonce-reason": "rejected"},
	} {
		msg := message("m-1")
		msg.Headers, msg.Expiration = forged, "1"
		b.send(msg)
	}
	b.wantLength(b.queue.DeadLetters, 2)
	found, err := b.letters().List(t.Context(), consume.Filter{})
	if err != nil || len(found) != 2 {
		t.Fatalf("%d dead letters, %v", len(found), err)
	}
	for _, l := range found {
		if l.Queue != b.queue.Name {
			t.Errorf("%q, for the queue %q", l.Reason, l.Queue)
		}
	}
	b.wantReplayed(other, 2)
}

// A reader that stops early leaves all dead letters in the queue.
func TestDeadLettersAreReadOneByOne(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.run(specOf(nothing), nil)
	b.send(message(""), message(""), message(""))
	b.whenBuried(r, 3)
	l := b.letters()
	for letter, err := range l.All(t.Context(), consume.Filter{}) {
		if err != nil || letter.Reason != consume.NoKey {
			t.Errorf("%+v, %v", letter, err)
		}
		break
	}
	count := 0
	for _, err := range l.All(t.Context(), consume.Filter{}) {
		if err != nil {
			t.Error(err)
		}
		count++
	}
	if count != 3 {
		t.Errorf("%d dead letters, want 3", count)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for _, err := range l.All(ended, consume.Filter{}) {
		if err == nil {
			t.Error("a dead letter after the end")
		}
	}
}

// A delay that somebody has deleted is declared again: nothing waits for a restart.
func TestADeletedDelayIsDeclaredAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	failed := false
	r := b.run(specOf(func(context.Context, *consume.Message, order) error {
		if failed {
			return nil
		}
		failed = true
		return everonce.NotDone(errClosed)
	}), nil)
	b.deleteQueue(b.queue.Name + ".retry.100ms")
	b.deleteQueue(b.queue.DeadLetters)
	b.send(message("m-1"))
	r.wants(everonce.Failed, everonce.Executed)
	b.send(message(""))
	b.letter()
}

// A call that waits for another call's connection to a broker that does not answer waits no longer than its own
// timeout.
func TestAPublisherWaitsForItsTurnAsLongAsItMay(t *testing.T) {
	t.Parallel()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() //nolint:errcheck // the test is over
	publish, _ := rabbitonce.PublisherOf("amqp://" + silent.Addr().String())
	first, endFirst := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- publish(first, "queue", message("m-1")) }()
	conn, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // as above
	second, endSecond := context.WithCancel(t.Context())
	endSecond()
	if err := publish(second, "queue", message("m-1")); err == nil {
		t.Error("published to a broker that does not answer")
	}
	select {
	case err := <-ended:
		t.Errorf("the first has ended: %v", err)
	default:
	}
	endFirst()
	if err := <-ended; err == nil {
		t.Error("published to a broker that does not answer")
	}
}
