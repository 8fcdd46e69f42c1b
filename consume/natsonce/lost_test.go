package natsonce_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/natsonce"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/store/memstore"
)

// Traps of losses: of an answer, of the durable consumer, of the stream or its tail.

// Trap: the client library waits for an answer until the deadline of the context, if that has one. The answer of a
// count is lost, as when a line is cut, and Run has a deadline in the far future: the message and later ones wait no
// longer than other answers may take.
func TestTrapAnAnswerIsLost(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it waits 10 s for an answer")
	}
	b := newBench(t)
	b.declare()
	b.send("m-1", "m-2")
	if err := b.fetch().Nak(); err != nil { // a message that was delivered before has a count
		t.Fatal(err)
	}
	line := &deafLine{after: `{"id":"m-1"}`}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	r := b.runUntil(ctx, memstore.New(nil), specOf(nothing), &natsonce.Options{Connect: []nats.Option{nats.SetCustomDialer(line)}})
	r.wants(everonce.Executed, everonce.Executed)
	if !line.lost.Load() {
		t.Error("blind: no answer was lost")
	}
	b.settled()
}

// deafLine dials a connection that loses what it reads after a given text.
type deafLine struct {
	net.Dialer
	after string
	lost  atomic.Bool
}

func (l *deafLine) Dial(network, address string) (net.Conn, error) {
	conn, err := l.Dialer.Dial(network, address)
	return &deafConn{Conn: conn, line: l}, err
}

type deafConn struct {
	net.Conn
	line *deafLine
	deaf bool
}

func (c *deafConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.deaf && !c.line.lost.Swap(true) {
		return c.Conn.Read(p)
	}
	c.deaf = c.deaf || strings.Contains(string(p[:n]), c.line.after)
	return n, err
}

// Trap: an answer to a message of a deleted durable consumer is never confirmed. It is given up, and a new consumer
// goes on where the old one was: records of earlier messages may be gone.
func TestTrapTheDurableConsumerIsDeleted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.run(specOf(nothing), one)
	b.send("m-1", "m-2")
	first.wants(everonce.Executed, everonce.Executed)
	b.settled()
	first.stop()
	begun, proceed := make(chan string, 10), make(chan struct{})
	log := logging{lines: make(chan string, 1000)}
	r := b.run(specOf(func(_ context.Context, _ *consume.Message, o order) error {
		begun <- o.ID
		<-proceed
		return nil
	}), &natsonce.Options{Workers: consume.Workers{Concurrency: 1, SettleTimeout: time.Second, Log: log.logger()}})
	b.send("m-3")
	if id := <-begun; id != "m-3" {
		t.Error(id)
	}
	if err := b.js.DeleteConsumer(context.Background(), b.queue.Stream, "billing"); err != nil {
		t.Fatal(err)
	}
	close(proceed)
	log.wants(t, "does not confirm")
	r.wants(everonce.Executed, everonce.Replayed)
	b.send("m-4")
	r.wants(everonce.Executed)
	if id := <-begun; id != "m-4" {
		t.Errorf("%s runs again", id)
	}
	b.settled()
}

// Trap: a stream that was made anew begins at sequence 1 again. So does its consumer.
func TestTrapTheStreamIsMadeAnew(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.run(specOf(nothing), one)
	b.send("m-1", "m-2")
	first.wants(everonce.Executed, everonce.Executed)
	b.settled()
	first.stop()
	r := b.run(specOf(nothing), one)
	if err := b.js.DeleteStream(context.Background(), b.queue.Stream); err != nil {
		t.Fatal(err)
	}
	b.stream(jetstream.StreamConfig{Name: b.queue.Stream, Subjects: []string{b.queue.Stream + ".>"}})
	b.send("m-3", "m-4")
	r.wants(everonce.Executed, everonce.Executed)
	b.settled()
}

// Trap: the stream loses its latest messages, as in a power failure or a restore, and the durable consumer is ahead of
// it. New messages have the sequences of the lost ones; they are still handled.
func TestTrapTheStreamLosesItsTail(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, "nats")
	b := newBenchOn(t, server.URL)
	b.queue.AckWait = time.Second
	again := func(command string) {
		server.Run(killed+`; cd "$dir"/data/jetstream/*/streams/"$1"; `+command, b.queue.Stream)
		server.Up()
		b.eventually("the test's connection is back", b.conn.IsConnected)
	}
	publish := func(id string) (ack *jetstream.PubAck) {
		b.eventually("the stream is back", func() (is bool) {
			var err error
			ack, err = b.js.PublishMsg(context.Background(), b.message(id))
			return err == nil
		})
		return ack
	}
	publish("m-1")
	again(`cp -a msgs "$dir/older"`)
	r := b.run(specOf(nothing), nil)
	lost := publish("m-2")
	r.wants(everonce.Executed, everonce.Executed)
	b.settled()
	again(`rm -r msgs; cp -a "$dir/older" msgs`)
	if ack := publish("m-3"); ack.Sequence != lost.Sequence {
		t.Fatalf("blind: %d follows %d", ack.Sequence, lost.Sequence)
	}
	for v := r.decision(); v.Outcome != everonce.Executed; v = r.decision() { // m-1 may come again
	}
	b.settled()
}
