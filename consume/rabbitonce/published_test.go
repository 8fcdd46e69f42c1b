package rabbitonce_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/memstore"
)

// line is a way to the broker that knows what is said on it.
type line struct {
	url      string
	open     atomic.Int64 // connections
	channels atomic.Int64 // that were opened
	closed   atomic.Int64 // of them
	// publishing is called before the broker gets a message; where it reports false the broker does not get it, and the connection is cut.
	publishing func() (pass bool)
	// declaring, if set, is called before a queue is declared, or looked for. It may change the frame; where it reports false it is as above.
	declaring func(frame []byte) (pass bool)
	// opening, if set, is called before the broker is asked for a channel; what it writes seems to come from the broker.
	opening func(near io.Writer)
	// deaf: the broker does not hear that a consumer is to end.
	deaf bool
	// unread is by how many connections nothing is read any more, from the first message on that is published by them. They stay open.
	unread atomic.Int64
	over   <-chan struct{} // with the test
}

func newLine(t *testing.T, brokerURL string, publishing func() (pass bool)) *line {
	t.Helper()
	l := &line{publishing: publishing, over: t.Context().Done()}
	l.url = relay(t, brokerURL, func(near, far net.Conn) {
		l.open.Add(1)
		go func() {
			defer near.Close() //nolint:errcheck // the other way ends by it
			io.Copy(near, far) //nolint:errcheck // as it ends
		}()
		go func() {
			defer l.open.Add(-1)
			defer far.Close()  //nolint:errcheck // as above
			defer near.Close() //nolint:errcheck // as above
			l.say(far, near)
		}()
	})
	return l
}

// say passes on what is said to the broker, frame by frame.
func (l *line) say(far io.Writer, near io.ReadWriter) {
	const greeting, head, end = 8, 7, 1
	const method, openChannel, closeChannel, declareQueue, endConsumer, publish = 1, 20<<16 | 10, 20<<16 | 40, 50<<16 | 10, 60<<16 | 30, 60<<16 | 40
	if _, err := io.CopyN(far, near, greeting); err != nil {
		return
	}
	for {
		frame := make([]byte, head, 1<<10)
		if _, err := io.ReadFull(near, frame); err != nil {
			return
		}
		frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame[3:])+end)...)
		if _, err := io.ReadFull(near, frame[head:]); err != nil {
			return
		}
		if frame[0] == method {
			switch binary.BigEndian.Uint32(frame[head:]) {
			case openChannel:
				l.channels.Add(1)
				if l.opening != nil {
					l.opening(near)
				}
			case closeChannel:
				l.closed.Add(1)
			case declareQueue:
				if l.declaring != nil && !l.declaring(frame) {
					return
				}
			case endConsumer:
				if l.deaf {
					continue
				}
			case publish:
				if l.unread.Add(-1) >= 0 {
					l.keepOpen(far)
					return
				}
				if !l.publishing() {
					return
				}
			}
		}
		if _, err := far.Write(frame); err != nil {
			return
		}
	}
}

// keepOpen lets the broker hear heartbeats, and nothing else.
func (l *line) keepOpen(far io.Writer) {
	beat := time.NewTicker(100 * time.Millisecond)
	defer beat.Stop()
	for {
		select {
		case <-l.over:
			return
		case <-beat.C:
			if _, err := far.Write([]byte{8, 0, 0, 0, 0, 0, 0, 0xCE}); err != nil {
				return
			}
		}
	}
}

// leaves waits until as many connections are open as it wants.
func (l *line) leaves(t *testing.T, want int64) {
	t.Helper()
	for end := time.Now().Add(soon); l.open.Load() != want; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d connections are open, want %d", l.open.Load(), want)
		}
	}
}

// A delay queue is deleted again as soon as it was declared again: the second copy is returned as the first one was,
// and its message waits until there is a copy.
func TestADelayThatIsDeletedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var published atomic.Int64
	l := newLine(t, b.url, func() bool {
		if published.Add(1) <= 2 {
			b.deleteQueue(b.queue.Name + ".retry.100ms")
		}
		return true
	})
	ran := 0
	r := b.runOn(memstore.New(nil), l.url, specOf(func(context.Context, *consume.Message, order) error {
		if ran++; ran == 1 {
			return everonce.NotDone(errClosed)
		}
		return nil
	}), nil)
	b.send(message("m-1"))
	r.wants(everonce.Failed, everonce.Executed)
	for _, name := range b.queues() {
		b.wantLength(name, 0)
	}
	r.stop()
	if n := published.Load(); n != 4 || ran != 2 {
		t.Errorf("%d copies were published, and it ran %d times", n, ran)
	}
}

// A copy without an answer in time counts as failed: its message is not acknowledged, and is copied again on another
// connection.
func TestACopyWithoutAnAnswerIsAFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var published atomic.Int64
	l := newLine(t, b.url, func() bool {
		if published.Add(1) == 1 {
			<-t.Context().Done() // the first one does not come to the broker
		}
		return true
	})
	ran := 0
	complaints := make(chan string, 1000)
	r := b.runOn(memstore.New(nil), l.url, specOf(func(context.Context, *consume.Message, order) error {
		if ran++; ran == 1 {
			return everonce.NotDone(errClosed)
		}
		return nil
	}), &rabbitonce.Options{Heartbeat: time.Minute, Workers: consume.Workers{SettleTimeout: 500 * time.Millisecond, Log: complaintsTo(complaints)}})
	b.send(message("m-1"))
	r.wants(everonce.Failed, everonce.Executed)
	if c := <-complaints; !strings.Contains(c, "did not confirm a message") {
		t.Errorf("it complained of %s", c)
	}
	for _, name := range b.queues() {
		b.wantLength(name, 0)
	}
	r.stop()
	if n := published.Load(); n < 2 || ran != 2 { // more than 2 where the broker is slow
		t.Errorf("%d copies were published, and it ran %d times", n, ran)
	}
}

// Nor is one that the broker does not read, though its heartbeats come: no write is waited for longer than for three of them, and the
// copy is published by another connection. That a writer has a deadline shows only where the system's buffers are full.
func TestACopyThatIsNotReadIsAFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	l := newLine(t, b.url, func() bool { return true })
	l.unread.Store(1)
	publish, end := rabbitonce.PublisherOf(l.url)
	large := amqp.Publishing{Headers: amqp.Table{}, Body: make([]byte, 15<<20)} // the broker takes 16 MiB
	failed, published := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(published)
		err := publish(t.Context(), b.queue.Name, large)
		failed <- err
		for ; err != nil && t.Context().Err() == nil; err = publish(t.Context(), b.queue.Name, message("m-1")) { // its connection ends a little later
		}
	}()
	select {
	case err := <-failed:
		if err == nil || !strings.Contains(err.Error(), "did not confirm a message") {
			t.Fatalf("%v", err)
		}
	case <-time.After(soon):
		t.Fatal("it is still being written")
	}
	wait(t, "the next connection", published)
	b.wantLength(b.queue.Name, 1)
	if err := end(); err != nil {
		t.Error(err)
	}
}

// hugeMessage is more than the system's buffers take.
func hugeMessage(id string) amqp.Publishing {
	msg := message(id)
	msg.Body = []byte(`{"id":"` + strings.Repeat("x", 15<<20) + `"}`)
	return msg
}

// Nor does a write wait longer than an answer may take, if that is less: the worker keeps its message, and its copy
// goes out on another connection.
func TestACopyThatIsNotReadIsWaitedForAsLongAsAnAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := newLine(t, b.url, func() bool { return true })
	l.unread.Store(1)
	ran := 0
	complaints := make(chan string, 1000)
	opts := &rabbitonce.Options{Heartbeat: time.Minute, Workers: consume.Workers{SettleTimeout: 8 * time.Second, Log: complaintsTo(complaints)}}
	r := b.runOn(memstore.New(nil), l.url, specOf(func(context.Context, *consume.Message, order) error {
		if ran++; ran == 1 {
			return everonce.NotDone(errClosed)
		}
		return nil
	}), opts)
	b.send(hugeMessage("m-1"))
	r.wants(everonce.Failed, everonce.Executed)
	if c := <-complaints; !strings.Contains(c, "did not confirm a message: context deadline exceeded") {
		t.Errorf("it complained of %s", c)
	}
	for _, name := range b.queues() {
		b.wantLength(name, 0)
	}
	r.stop()
	if ran != 2 {
		t.Errorf("it ran %d times", ran)
	}
}

// Nor does the end of a consumer wait for it for longer: the message is given back.
func TestTheEndIsNotWaitedForInACopyThatIsNotRead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := newLine(t, b.url, func() bool { return true })
	l.unread.Store(1000)
	opts := &rabbitonce.Options{Heartbeat: time.Minute, Workers: consume.Workers{SettleTimeout: 2 * time.Second}}
	r := b.runOn(memstore.New(nil), l.url, specOf(func(context.Context, *consume.Message, order) error { return everonce.NotDone(errClosed) }), opts)
	b.send(hugeMessage("m-1"))
	r.wants(everonce.Failed)
	r.stop()
	b.wantLength(b.queue.Name, 1)
}

// Nor is one that could not be written: its channel has ended since it was taken.
func TestACopyThatIsNotWrittenIsAFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	if err := rabbitonce.PublishByAnEndedChannel(t.Context(), b.url, b.queue.Name); err == nil || !strings.Contains(err.Error(), "did not confirm a message") {
		t.Errorf("%v", err)
	}
	b.wantLength(b.queue.Name, 0)
}

// A dead letter on whose way the connection is lost was not refused: it is published again, and its message is not handled once more.
func TestADeadLetterIsPublishedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var published atomic.Int64
	l := newLine(t, b.url, func() bool { return published.Add(1) > 1 })
	r := b.runOn(memstore.New(nil), l.url, specOf(nothing), nil)
	b.send(message(""))
	if d := b.letter(); d.Headers["x-everonce-reason"] != string(consume.NoKey) {
		t.Errorf("the dead letter: %v", d.Headers)
	}
	r.stop()
	if n, decisions := published.Load(), len(r.decisions); n != 2 || decisions != 1 {
		t.Errorf("%d copies were published, and it was handled %d times", n, decisions)
	}
}

// Nor is a dead letter lost whose queue was deleted, if the connection that should declare it again is lost or closed
// by the broker.
func TestADeadLetterIsPublishedAgainAfterALostDeclaration(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(frame []byte) (pass bool){
		"Lost":   func([]byte) bool { return false },
		"Closed": func(frame []byte) bool { frame[1]++; return true }, // by a channel that is not open
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			var published, until atomic.Int64
			third := make(chan struct{})
			l := newLine(t, b.url, func() bool {
				switch published.Add(1) {
				case 1: // is returned
					b.deleteQueue(b.queue.DeadLetters)
					until.Store(2) // it is looked for, and then declared
				case 3: // the second was returned, and the queue was declared
					close(third)
				}
				return true
			})
			l.declaring = func(frame []byte) bool { return until.Add(-1) != 0 || end(frame) }
			r := b.runOn(memstore.New(nil), l.url, specOf(nothing), nil)
			b.send(message(""))
			wait(t, "the third copy", third)
			if decisions := len(r.decisions); decisions != 1 {
				t.Fatalf("it was handled %d times", decisions)
			}
			if d := b.letter(); d.Headers["x-everonce-reason"] != string(consume.NoKey) {
				t.Errorf("the dead letter: %v", d.Headers)
			}
			r.stop()
			if n, decisions := published.Load(), len(r.decisions); n != 3 || decisions != 1 {
				t.Errorf("%d copies were published, and it was handled %d times", n, decisions)
			}
		})
	}
}

// Everything opened is closed: a copy does not open a channel each time, and no connection is left, neither of a
// consumer that has ended nor of one that cannot start, and retries while its queue does not exist.
func TestNothingIsLeftOpen(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := newLine(t, b.url, func() bool { return true })
	b.url = l.url
	r := b.run(specOf(nothing), &rabbitonce.Options{Workers: consume.Workers{Concurrency: 1}})
	before := l.channels.Load()
	const n = 30
	for range n {
		b.send(message(""))
	}
	b.whenBuried(r, n)
	if opened := l.channels.Load() - before; opened > n/2 {
		t.Errorf("%d channels were opened for %d copies", opened, n)
	}
	l.leaves(t, 0)
	letters, err := rabbitonce.DialDeadLetters(t.Context(), l.url, b.queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	if replayed, err := letters.Replay(t.Context(), consume.Filter{}); replayed != n || err != nil {
		t.Errorf("replayed %d, %v", replayed, err)
	}
	if err := letters.Close(); err != nil {
		t.Error(err)
	}
	l.leaves(t, 0)
	b.queue.Topology = rabbitonce.Check
	b.deleteQueue(b.queue.DeadLetters)
	if err := b.dial(nil); !errors.Is(err, rabbitonce.ErrTopology) {
		t.Errorf("without its dead letters: %v", err)
	}
	if _, err := rabbitonce.DialDeadLetters(t.Context(), l.url, b.queue, nil); !errors.Is(err, rabbitonce.ErrTopology) {
		t.Errorf("no dead letters: %v", err)
	}
	l.leaves(t, 0)
}

// Nor is a channel left open by each copy that is refused: the broker allows so many, and one that waits for room is refused often.
func TestARefusedCopyLeavesNoChannelOpen(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declareWithADelayForOne()
	var published atomic.Int64
	l := newLine(t, b.url, func() bool { published.Add(1); return true })
	b.runOn(memstore.New(nil), l.url, specOf(func(context.Context, *consume.Message, order) error { return everonce.NotDone(errClosed) }), nil)
	b.send(message("m-1"), message("m-2"))
	const refused, kept = 12, 6 // the consumer's channel, and the channels of copies
	for end := time.Now().Add(soon); published.Load() < refused || l.channels.Load()-l.closed.Load() > kept; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("of %d channels %d were closed after %d copies", l.channels.Load(), l.closed.Load(), published.Load())
		}
	}
}

// Nor is one left open that the broker was asked for when it blocked the connection, and that it opens once it takes messages again.
func TestABlockedCopyLeavesNoChannelOpen(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	told := make(chan struct{})
	l := newLine(t, b.url, func() bool { return true })
	l.opening = func(near io.Writer) {
		if l.channels.Load() > 1 {
			return
		}
		for _, word := range [][]byte{{1, 0, 0, 0, 0, 0, 5, 0, 10, 0, 60, 0, 0xCE}, {1, 0, 0, 0, 0, 0, 4, 0, 10, 0, 61, 0xCE}} { // blocked, and no longer
			if _, err := near.Write(word); err != nil {
				t.Error(err)
			}
			<-told
		}
	}
	publish, end := rabbitonce.PublisherOf(l.url)
	if err := publish(t.Context(), b.queue.Name, message("m-1")); err == nil || !strings.Contains(err.Error(), "short of memory") {
		t.Fatalf("%v", err)
	}
	close(told)
	for late := time.Now().Add(soon); l.closed.Load() != 1; runtime.Gosched() {
		if time.Now().After(late) {
			t.Fatalf("of %d channels %d were closed", l.channels.Load(), l.closed.Load())
		}
	}
	for late := time.Now().Add(soon); ; runtime.Gosched() {
		if err := publish(t.Context(), b.queue.Name, message("m-1")); err == nil {
			break
		} else if time.Now().After(late) {
			t.Fatal(err)
		}
	}
	b.wantLength(b.queue.Name, 1)
	if err := end(); err != nil {
		t.Error(err)
	}
	l.leaves(t, 0)
}

// Nor is anything opened once more by a replay whose letters are closed under it.
func TestAReplayThatIsClosedOpensNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	b.sendLetters(2)
	var published atomic.Int64
	l := newLine(t, b.url, func() bool { published.Add(1); return true })
	letters, err := rabbitonce.DialDeadLetters(t.Context(), l.url, b.queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	replayed, err := letters.Replay(t.Context(), consume.Filter{Only: func(*consume.DeadLetter) bool {
		if published.Load() == 1 { // the second letter is to be replayed
			if err := letters.Close(); err != nil {
				t.Error(err)
			}
		}
		return true
	}})
	if n := published.Load(); replayed != 1 || n != 1 || err == nil {
		t.Fatalf("replayed %d, of which %d copies were published: %v", replayed, n, err)
	}
	l.leaves(t, 0)
}
