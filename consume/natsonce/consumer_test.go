package natsonce_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
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

// one handles messages one after the other.
var one = &natsonce.Options{Workers: consume.Workers{Concurrency: 1}}

// A producer's resend is a new message to the server: it has the same key, and takes effect once.
func TestAProducersResendTakesEffectOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handled := 0
	r := b.run(specOf(func(context.Context, *consume.Message, order) error { handled++; return nil }), one)
	b.send("m-1", "m-1", "m-1")
	r.wants(everonce.Executed, everonce.Replayed, everonce.Replayed)
	b.settled()
	r.stop()
	if handled != 1 {
		t.Errorf("handled %d times", handled)
	}
}

// A failed message comes again after its delay, and its retries are counted; the handler sees the message as it was
// sent.
func TestRetriedAndCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var seen []consume.Message
	r := b.run(specOf(func(_ context.Context, m *consume.Message, _ order) error {
		seen = append(seen, *m)
		if len(seen) < 3 {
			return everonce.NotDone(errors.New("not yet"))
		}
		return nil
	}), one)
	ack := b.publish(b.message("m-1"))
	r.wants(everonce.Failed, everonce.Failed, everonce.Executed)
	b.settled()
	r.stop()
	for i, m := range seen {
		if m.Retries != i || m.Deliveries != i+1 || m.Redelivered != (i > 0) || m.Source != b.queue.Stream || m.Subject != b.queue.Stream+".placed" ||
			m.BrokerID != fmt.Sprintf("%s:%d", ack.Stream, ack.Sequence) || m.ContentType != "application/json" || m.Headers["Order-Id"] != "m-1" || m.First.IsZero() {
			t.Errorf("delivery %d: %+v", i+1, m)
		}
	}
}

// A message that fails too often becomes a dead letter with all details.
func TestExhaustedBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.run(specOf(func(context.Context, *consume.Message, order) error {
		return everonce.NotDone(errors.New("the bank is closed"))
	}), nil)
	b.send("m-1")
	r.wants(everonce.Failed, everonce.Failed, everonce.Failed)
	v := r.decision()
	l := b.letter()
	for name, want := range map[string]string{
		"x-everonce-reason": "exhausted", "x-everonce-attempts": "4", "x-everonce-queue": b.queue.Stream, "x-everonce-consumer": "billing",
		"x-everonce-detail": "the bank is closed", "x-everonce-key-hash": v.KeyHash, "x-everonce-subject": b.queue.Stream + ".placed", "Order-Id": "m-1", "Content-Type": "application/json",
	} {
		if got := l.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if l.Header.Get("x-everonce-first") == "" || l.Header.Get("x-everonce-last") == "" || string(l.Data) != `{"id":"m-1"}` || l.Subject != b.dead()+".billing" {
		t.Errorf("%+v", l)
	}
	b.settled()
}

// A message that always fails holds up no other.
func TestPoisonBlocksNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spec := specOf(func(_ context.Context, _ *consume.Message, o order) error {
		if o.ID == "poison" {
			panic("poison")
		}
		return nil
	})
	done := make(chan struct{}, 100)
	handle := spec.Handle
	spec.Handle = func(ctx context.Context, m *consume.Message, o order) error {
		err := handle(ctx, m, o)
		done <- struct{}{}
		return err
	}
	b.run(spec, one)
	b.send("poison")
	for i := range 20 {
		b.send(fmt.Sprint("m-", i))
	}
	for range 20 {
		wait(t, "those behind it", done)
	}
	if reason := b.letter().Header.Get("x-everonce-reason"); reason != "unknown" { // a panic may have had its effect
		t.Error(reason)
	}
	b.settled()
}

// Deliveries while another process has the key are not counted as retries, however many they are.
func TestWaitingForAnotherIsNoRetry(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store, begun, proceed := memstore.New(nil), make(chan struct{}), make(chan struct{})
	other, err := consume.New(newReceiver(t, store), specOf(func(context.Context, *consume.Message, order) error {
		close(begun)
		<-proceed
		return everonce.NotDone(errors.New("it failed after all"))
	}))
	if err != nil {
		t.Fatal(err)
	}
	var elsewhere sync.WaitGroup
	elsewhere.Go(func() {
		other.Handle(context.Background(), &consume.Message{Headers: map[string]string{"Order-Id": "m-1"}, Body: []byte(`{"id":"m-1"}`), ContentType: "application/json"})
	})
	wait(t, "the other", begun)
	deliveries, retries := 0, 0
	r := b.runOn(store, specOf(func(_ context.Context, m *consume.Message, _ order) error {
		if deliveries, retries = m.Deliveries, m.Retries; m.Retries == 0 {
			return everonce.NotDone(errors.New("not yet"))
		}
		return nil
	}), one)
	b.send("m-1")
	r.wants(everonce.InProgress, everonce.InProgress)
	close(proceed)
	elsewhere.Wait()
	for v := r.decision(); v.Outcome != everonce.Executed; v = r.decision() {
	}
	b.settled()
	if retries != 1 || deliveries < 4 {
		t.Errorf("%d retries, %d deliveries", retries, deliveries)
	}
}

// At the end a consumer finishes started messages, gives back the others at once, and loses nothing.
func TestDrainLosesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store, begun, proceed := memstore.New(nil), make(chan struct{}, 1), make(chan struct{})
	first := b.runOn(store, specOf(func(context.Context, *consume.Message, order) error {
		begun <- struct{}{}
		<-proceed
		return nil
	}), one)
	b.send("m-1", "m-2", "m-3", "m-4")
	wait(t, "the first", begun)
	b.eventually("others were fetched", func() bool { return b.consumer().NumAckPending > 1 })
	first.end()
	close(proceed)
	first.stop()
	if v := first.decision(); v.Outcome != everonce.Executed || len(first.decisions) > 0 {
		t.Errorf("%v, and %d more", v.Outcome, len(first.decisions))
	}
	began := time.Now()
	second := b.runOn(store, specOf(nothing), nil)
	second.wants(everonce.Executed, everonce.Executed, everonce.Executed)
	if waited := time.Since(began); waited > b.queue.AckWait/2 {
		t.Errorf("they were not given back: it took %v", waited)
	}
	b.settled()
}

// A server that is killed and comes back costs redeliveries at most, and leaves nothing behind of the time when it was away.
func TestServerIsKilledAndComesBack(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, "nats")
	b := newBenchOn(t, server.URL)
	if _, err := b.js.CreateConsumer(context.Background(), b.queue.Stream, jetstream.ConsumerConfig{
		Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second, MaxRequestExpires: time.Second, // so that it soon asks again
	}); err != nil {
		t.Fatal(err)
	}
	made, log := make(chan *nats.Conn, 1), logging{lines: make(chan string, 1000)}
	r := b.run(specOf(nothing), &natsonce.Options{
		Workers: consume.Workers{Log: log.logger()}, Connect: []nats.Option{nats.ConnectHandler(func(conn *nats.Conn) { made <- conn })},
	})
	conn := <-made
	b.send("m-1")
	r.wants(everonce.Executed)
	server.Run(killed)
	for range 3 {
		log.wants(t, "no messages can be fetched")
	}
	server.Up()
	b.eventually("the test's connection is back", b.conn.IsConnected)
	b.eventually("the stream is back", func() bool {
		_, err := b.js.PublishMsg(context.Background(), b.message("m-2"))
		return err == nil
	})
	for v := r.decision(); ; v = r.decision() { // the first may come again: its acknowledgement was not synced
		if v.Outcome == everonce.Executed {
			break
		}
	}
	b.settled()
	// One for all answers, one for a request for messages. The subscription of a request may end only after the next one has begun.
	b.eventually("no more than two subscriptions are left", func() bool { return conn.NumSubscriptions() <= 2 })
}

// A reconnect event that arrives during a pause must not end the first good request after it: messages on their way to
// that would wait for AckWait.
func TestAWordOfAnOutageThatIsOver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handled := make(chan struct{}, 1)
	h, err := consume.New(newReceiver(t, memstore.New(nil)), specOf(func(context.Context, *consume.Message, order) error { handled <- struct{}{}; return nil }))
	if err != nil {
		t.Fatal(err)
	}
	made, log, line := make(chan *nats.Conn, 1), logging{lines: make(chan string, 1000)}, &cutLine{}
	c, err := natsonce.Dial(context.Background(), b.url, b.queue, h, quick(&natsonce.Options{
		Workers: consume.Workers{Log: log.logger()},
		Connect: []nats.Option{nats.SetCustomDialer(line), nats.ConnectHandler(func(conn *nats.Conn) { made <- conn })},
	}))
	if err != nil {
		t.Fatal(err)
	}
	asked, err := b.conn.SubscribeSync("$JS.API.CONSUMER.MSG.NEXT." + b.queue.Stream + ".billing")
	if err != nil {
		t.Fatal(err)
	}
	conn := <-made
	line.cut.Store(true)
	if err := errors.Join(b.conn.Flush(), conn.ForceReconnect()); err != nil {
		t.Fatal(err)
	}
	b.eventually("the connection is lost", func() bool { return !conn.IsConnected() })
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	log.wants(t, "no messages can be fetched")
	line.cut.Store(false)
	if _, err := asked.NextMsg(soon); err != nil {
		t.Fatal(err)
	}
	b.send("m-1")
	wait(t, "the message after the outage", handled)
	if n, _, err := asked.Pending(); n != 0 || err != nil { // a request goes on for 20 s
		t.Errorf("it asked %d times more for one message (%v)", n, err)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// cutLine dials no connection while it is cut.
type cutLine struct {
	net.Dialer
	cut atomic.Bool
}

func (l *cutLine) Dial(network, address string) (net.Conn, error) {
	if l.cut.Load() {
		return nil, errors.New("the line is cut")
	}
	return l.Dialer.Dial(network, address)
}

// A connection that the client library gives up for good ends the consumer with an error, so that its process can begin anew.
func TestAConnectionThatIsGivenUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h, err := consume.New(newReceiver(t, memstore.New(nil)), specOf(nothing))
	if err != nil {
		t.Fatal(err)
	}
	made := make(chan *nats.Conn, 1)
	c, err := natsonce.Dial(context.Background(), b.url, b.queue, h, quick(&natsonce.Options{
		Connect: []nats.Option{nats.ConnectHandler(func(conn *nats.Conn) { made <- conn })},
	}))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(context.Background()) }()
	(<-made).Close()
	select {
	case err := <-ended:
		if !errors.Is(err, natsonce.ErrUnreachable) {
			t.Error(err)
		}
	case <-time.After(soon):
		t.Error("it does not end")
	}
}

// Credentials that the server refuses for a while, as when they have ended or are changed on one side first, end no consumer: nats.go gives a
// connection up when they are refused twice.
func TestCredentialsThatEnd(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, "nats")
	b := newBenchOn(t, server.URL)
	log := logging{lines: make(chan string, 1000)}
	r := b.run(specOf(nothing), &natsonce.Options{Workers: consume.Workers{Log: log.logger()}})
	server.Run(killed + `; program
		nohup "$bin" -a 127.0.0.1 -p "$(cat "$dir/port")" -js -sd "$dir/data" --user other --pass word >>"$dir/log" 2>&1 </dev/null & echo $! >"$dir/pid"`)
	for range 4 {
		log.wants(t, "authorization violation")
	}
	server.Run(killed)
	server.Up()
	c, err := nats.Connect(server.URL) // the test's own connection was given up
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b.js, err = jetstream.New(c)
	if err != nil {
		t.Fatal(err)
	}
	b.eventually("the stream is back", func() bool {
		_, err := b.js.PublishMsg(context.Background(), b.message("m-1"))
		return err == nil
	})
	r.wants(everonce.Executed)
	b.settled()
}
