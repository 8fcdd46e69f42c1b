package rabbitonce_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/rs/zerolog"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/memstore"
)

// wire is a way to the broker that can be cut.
type wire struct {
	t     *testing.T
	proxy *toxiproxy.Proxy
	url   string
}

func newWire(t *testing.T, brokerURL string) *wire {
	t.Helper()
	uri, err := amqp.ParseURI(brokerURL)
	if err != nil {
		t.Fatal(err)
	}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	w := &wire{t: t, proxy: toxiproxy.NewProxy(server, "p", "127.0.0.1:0", fmt.Sprintf("%s:%d", uri.Host, uri.Port))}
	w.start()
	t.Cleanup(w.proxy.Stop)
	if _, err := fmt.Sscanf(w.proxy.Listen, "127.0.0.1:%d", &uri.Port); err != nil {
		t.Fatal(err)
	}
	uri.Host = "127.0.0.1"
	w.url = uri.String()
	return w
}

func (w *wire) start() {
	w.t.Helper()
	if err := w.proxy.Start(); err != nil {
		w.t.Fatal(err)
	}
}

// cut ends all connections, and takes new ones.
func (w *wire) cut() {
	w.t.Helper()
	w.proxy.Stop()
	w.start()
}

// poison does something to the data of both directions.
func (w *wire) poison(kind, attributes string) {
	w.t.Helper()
	for _, way := range []string{"upstream", "downstream"} {
		toxic := fmt.Sprintf(`{"name":%q,"type":%q,"stream":%q,"attributes":{%s}}`, way, kind, way, attributes)
		if _, err := w.proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *wire) heal() { w.proxy.Toxics.ResetToxics(w.t.Context()) }

// connections tells when a consumer has connected again.
func connections(opts *rabbitonce.Options) (*rabbitonce.Options, <-chan struct{}) {
	h := &reconnections{Handler: slog.DiscardHandler, again: make(chan struct{}, 1000)}
	if opts == nil {
		opts = &rabbitonce.Options{}
	}
	opts.Workers.Log = slog.New(h)
	return opts, h.again
}

type reconnections struct {
	slog.Handler
	again chan struct{}
}

func (*reconnections) Enabled(context.Context, slog.Level) bool { return true }

func (h *reconnections) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "rabbitonce: reconnected" {
		h.again <- struct{}{}
	}
	return nil
}

func wait[T any](t *testing.T, what string, signal <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-signal:
	case <-time.After(soon):
		t.Fatalf("waited for %s", what)
	}
	return v
}

// The connection is cut many times in a stream of messages: each takes effect once, and none is left.
func TestConnectionsThatAreCut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := newWire(t, b.url)
	const n = 200
	b.declare()
	for i := range n {
		b.send(message(fmt.Sprint("m-", i)))
	}
	var mu sync.Mutex
	ran := map[string]int{}
	store := memstore.New(nil)
	r := b.runOn(store, w.url, specOf(func(_ context.Context, m *consume.Message, _ order) error {
		mu.Lock()
		defer mu.Unlock()
		ran[m.ID]++
		if len(ran)%20 == 0 {
			w.cut()
		}
		return nil
	}), &rabbitonce.Options{Heartbeat: time.Second}) // a connection that is made while it is cut may be half open
	for done := map[string]bool{}; len(done) < n; {
		if v := r.decision(); v.Outcome == everonce.Executed {
			done[v.KeyHash] = true
		}
	}
	b.wantLength(b.queue.Name, 0)
	r.stop()
	b.wantLength(b.queue.DeadLetters, 0)
	for id, times := range ran {
		if times != 1 {
			t.Errorf("%s ran %d times", id, times)
		}
	}
}

// A connection that has done its work, and is lost, is made again at once, however many were lost before it: the pause grows only
// while none can be made.
func TestEachLossBeginsItsPausesAnew(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := newWire(t, b.url)
	opts, again := connections(&rabbitonce.Options{Backoff: consume.Backoff{Min: 10 * time.Millisecond, Max: time.Hour}})
	r := b.runOn(memstore.New(nil), w.url, specOf(nothing), opts)
	for i := range 20 {
		b.send(message(fmt.Sprint("m-", i)))
		for r.decision().Outcome != everonce.Executed {
		}
		w.cut()
		wait(t, "the next connection", again)
	}
}

// So is one by which nothing came: that its queue was empty is no failure.
func TestAnIdleLossBeginsItsPausesAnew(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := newWire(t, b.url)
	const least = 10 * time.Millisecond
	losses := &losses{Handler: slog.DiscardHandler, pauses: make(chan time.Duration, 1000)}
	opts, again := connections(&rabbitonce.Options{Backoff: consume.Backoff{Min: least, Max: time.Hour}, Heartbeat: time.Second}) // as above
	opts.Workers.Log = slog.New(slog.NewMultiHandler(losses, opts.Workers.Log.Handler()))
	b.runOn(memstore.New(nil), w.url, specOf(nothing), opts)
	for idle := 0; idle < 6; {
		b.wantConsumer()
		w.cut()
		if pause := <-losses.pauses; pause != 0 {
			if idle++; pause > 2*least {
				t.Fatalf("after %d idle losses the pause is %v", idle, pause)
			}
		}
		wait(t, "the next connection", again)
	}
}

// wantConsumer waits until the queue has a consumer, which may be one that the broker has not missed yet.
func (b *bench) wantConsumer() {
	b.t.Helper()
	for end := time.Now().Add(soon); ; runtime.Gosched() {
		switch q, err := b.ch.QueueDeclarePassive(b.queue.Name, true, false, false, false, nil); {
		case err != nil:
			b.t.Fatal(err)
		case q.Consumers > 0:
			return
		case time.Now().After(end):
			b.t.Fatal("the queue has no consumer")
		}
	}
}

// losses tells the pauses after lost connections; 0 after one that was not made.
type losses struct {
	slog.Handler
	pauses chan time.Duration
}

func (*losses) Enabled(context.Context, slog.Level) bool { return true }

func (h *losses) Handle(_ context.Context, r slog.Record) error {
	var pause time.Duration
	made := false
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "pause":
			pause = a.Value.Duration()
		case "error":
			made = strings.Contains(a.Value.String(), "connection lost")
		}
		return true
	})
	switch {
	case made:
		h.pauses <- pause
	case pause != 0:
		h.pauses <- 0
	}
	return nil
}

// An acknowledgement that was lost with its connection is a message that comes again, flagged and counted, and is replayed.
func TestALostAcknowledgementIsAReplay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := newWire(t, b.url)
	ran := 0
	spec := specOf(func(context.Context, *consume.Message, order) error {
		ran++
		w.cut()
		return nil
	})
	seen := make(chan consume.Message, 10)
	spec.Key = func(m *consume.Message) (string, error) {
		seen <- *m
		return m.ID, nil
	}
	r := b.runOn(memstore.New(nil), w.url, spec, nil)
	b.send(message("m-1"))
	r.wants(everonce.Executed, everonce.Replayed)
	b.wantLength(b.queue.Name, 0)
	r.stop()
	if first, second := <-seen, <-seen; ran != 1 || first.Deliveries != 1 || first.Redelivered || second.Deliveries != 2 || !second.Redelivered {
		t.Errorf("ran %d times: %+v, %+v", ran, first, second)
	}
}

// The number of a delivery means another message on another channel: an acknowledgement that comes after the connection
// was lost goes nowhere.
func TestAnAcknowledgementNeverGoesToAnotherChannel(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := newWire(t, b.url)
	firstBegan, endFirst := make(chan struct{}), make(chan struct{})
	othersBegan, endOthers := make(chan string, 10), make(chan struct{})
	opts, again := connections(nil)
	opts.Workers.Concurrency = 4
	complaints := make(chan string, 1000)
	opts.Workers.Log = slog.New(slog.NewMultiHandler(complaintsTo(complaints).Handler(), opts.Workers.Log.Handler()))
	r := b.runOn(memstore.New(nil), w.url, specOf(func(_ context.Context, m *consume.Message, _ order) error {
		if m.ID == "m-1" {
			close(firstBegan)
			<-endFirst
			return nil
		}
		othersBegan <- m.ID
		<-endOthers
		return everonce.NotDone(errClosed)
	}), opts)
	b.send(message("m-1"))
	wait(t, "the first message", firstBegan)
	w.cut()
	wait(t, "the next connection", again)
	r.wants(everonce.InProgress) // the first message, delivered again, as the first of its channel
	b.send(message("m-2"), message("m-3"))
	<-othersBegan
	<-othersBegan
	close(endFirst)
	r.wants(everonce.Executed) // and acknowledged nowhere
	for c := range complaints {
		if strings.Contains(c, consume.ErrGone.Error()) { // which is the last word of it
			break
		}
	}
	close(endOthers)
	for exhausted := 0; exhausted < 2; {
		if r.decision().Death.Reason == consume.Exhausted {
			exhausted++
		}
	}
	b.wantLength(b.queue.DeadLetters, 2)
	r.stop()
}

// A lost connection is made again while all workers are busy, and a message waits for one of them: that one would be handled in vain.
func TestAConnectionIsMadeAgainWhileAllAreBusy(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := newWire(t, b.url)
	begun, proceed := make(chan struct{}), make(chan struct{})
	opts, again := connections(&rabbitonce.Options{Prefetch: 2, Workers: consume.Workers{Concurrency: 1}})
	r := b.runOn(memstore.New(nil), w.url, specOf(func(_ context.Context, m *consume.Message, _ order) error {
		if m.ID == "m-1" {
			close(begun)
			<-proceed
		}
		return nil
	}), opts)
	b.send(message("m-1"))
	wait(t, "the first message", begun)
	b.send(message("m-2"))
	b.wantLength(b.queue.Name, 0) // it waits for the worker
	w.cut()
	wait(t, "the next connection", again)
	close(proceed)
	r.wants(everonce.Executed)
	for r.decision().Outcome != everonce.Executed {
	}
	b.wantLength(b.queue.Name, 0)
}

// An acknowledgement covers one message: an earlier one that is still being handled comes again when the connection is
// lost.
func TestAnAcknowledgementIsOfOneMessage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := newWire(t, b.url)
	begun, proceed := make(chan struct{}), make(chan struct{})
	opts := &rabbitonce.Options{Prefetch: 2, Workers: consume.Workers{Concurrency: 2}}
	r := b.runOn(memstore.New(nil), w.url, specOf(func(_ context.Context, m *consume.Message, _ order) error {
		if m.ID == "m-1" {
			close(begun)
			<-proceed
		}
		return nil
	}), opts)
	b.send(message("m-1"))
	wait(t, "the first message", begun)
	b.send(message("m-2"), message("m-3"))
	r.wants(everonce.Executed, everonce.Executed) // the broker has the second's acknowledgement, or it had not sent the third
	w.cut()
	for r.decision().Outcome != everonce.InProgress { // or the third, once more
	}
	close(proceed)
	for r.decision().Outcome != everonce.Executed {
	}
	b.wantLength(b.queue.Name, 0)
}

// A connection on which nothing comes through any more is found by its heartbeats, and by nothing else.
func TestAHalfOpenConnection(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := newWire(t, b.url)
	complaints := make(chan string, 1000)
	r := b.runOn(memstore.New(nil), w.url, specOf(nothing), &rabbitonce.Options{Heartbeat: time.Second, Workers: consume.Workers{Log: complaintsTo(complaints)}})
	b.send(message("m-1"))
	r.wants(everonce.Executed)
	w.poison("timeout", `"timeout":0`)
	b.send(message("m-2"))
	select {
	case c := <-complaints:
		if !strings.Contains(c, "connection lost") {
			t.Errorf("it complained of %s", c)
		}
	case <-time.After(soon):
		t.Fatal("the loss was not noticed")
	}
	w.heal() // which ends what was poisoned
	for v := r.decision(); v.Outcome != everonce.Executed; v = r.decision() {
		if v.Disposition != consume.Ack {
			t.Errorf("%v, %v", v.Outcome, v.Err)
		}
	}
	b.wantLength(b.queue.Name, 0)
}

// A slow line that delivers byte by byte is slow, and nothing else.
func TestASlowConnection(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := newWire(t, b.url)
	r := b.runOn(memstore.New(nil), w.url, specOf(nothing), &rabbitonce.Options{Workers: consume.Workers{Concurrency: 1}})
	w.poison("slicer", `"average_size":20,"size_variation":10,"delay":500`)
	b.send(message("m-1"), message("m-2"), message("m-1"))
	r.wants(everonce.Executed, everonce.Executed, everonce.Replayed)
	w.heal()
}

// A large letter on a slow line takes longer than the broker may be silent: it comes all the same, and goes back.
func TestALargeDeadLetterOnASlowConnection(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := newWire(t, b.url)
	b.declare()
	letter := letterFor(b.queue.Name, "m-1")
	letter.Body = make([]byte, 2<<20)
	b.sendTo(b.queue.DeadLetters, letter)
	l, err := rabbitonce.DialDeadLetters(t.Context(), w.url, b.queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()                     //nolint:errcheck // of the test
	w.poison("bandwidth", `"rate":300`) // KB in a second: it takes twice as long as askTimeout
	if n, err := l.Replay(t.Context(), consume.Filter{}); n != 1 || err != nil {
		t.Errorf("replayed %d, %v", n, err)
	}
	b.wantLength(b.queue.Name, 1)
}

// complaintsTo hands over the errors that a consumer logs.
func complaintsTo(c chan string) *slog.Logger {
	return slog.New(&complaints{Handler: slog.DiscardHandler, to: c})
}

type complaints struct {
	slog.Handler
	to chan string
}

func (*complaints) Enabled(context.Context, slog.Level) bool { return true }

func (h *complaints) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" {
			select {
			case h.to <- a.Value.String():
			default: // the channel is full
			}
		}
		return true
	})
	return nil
}
