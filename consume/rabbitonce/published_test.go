package rabbitonce_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
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

// beforeEachPublish is a way to the broker on which something is done before the broker gets a message. Where that reports false the
// broker does not get it: the connection is cut.
func beforeEachPublish(t *testing.T, brokerURL string, do func() (pass bool)) (url string) {
	t.Helper()
	uri, err := amqp.ParseURI(brokerURL)
	if err != nil {
		t.Fatal(err)
	}
	broker := net.JoinHostPort(uri.Host, fmt.Sprint(uri.Port))
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // of the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() }) //nolint:errcheck // of the test
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", broker) //nolint:noctx // of the test
			if err != nil {
				near.Close() //nolint:errcheck // the test fails by it
				continue
			}
			go func() {
				defer near.Close() //nolint:errcheck // the other way ends by it
				io.Copy(near, far) //nolint:errcheck // as it ends
			}()
			go func() {
				defer far.Close() //nolint:errcheck // as above
				const greeting, head, end = 8, 7, 1
				const method, publish = 1, 60<<16 | 40
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
					if frame[0] == method && binary.BigEndian.Uint32(frame[head:]) == publish && !do() {
						near.Close() //nolint:errcheck // as above
						return
					}
					if _, err := far.Write(frame); err != nil {
						return
					}
				}
			}()
		}
	}()
	uri.Host, uri.Port = "127.0.0.1", listener.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is one
	return uri.String()
}

// A delay that is deleted again, as soon as it was declared again: the second copy is returned as the first one was, and its message
// stays in hand until there is a copy.
func TestADelayThatIsDeletedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var published atomic.Int64
	url := beforeEachPublish(t, b.url, func() bool {
		if published.Add(1) <= 2 {
			b.deleteQueue(b.queue.Name + ".retry.100ms")
		}
		return true
	})
	ran := 0
	r := b.runOn(memstore.New(nil), url, specOf(func(context.Context, *consume.Message, order) error {
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

// A copy for which the broker has no answer in time is none: its message is not acknowledged, stays in hand, and is copied again by
// another connection.
func TestACopyWithoutAnAnswerIsAFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var published atomic.Int64
	url := beforeEachPublish(t, b.url, func() bool {
		if published.Add(1) == 1 {
			<-t.Context().Done() // the first one does not come to the broker
		}
		return true
	})
	ran := 0
	complaints := make(chan string, 1000)
	r := b.runOn(memstore.New(nil), url, specOf(func(context.Context, *consume.Message, order) error {
		if ran++; ran == 1 {
			return everonce.NotDone(errClosed)
		}
		return nil
	}), &rabbitonce.Options{Workers: consume.Workers{SettleWithin: 500 * time.Millisecond, Log: complaintsTo(complaints)}})
	b.send(message("m-1"))
	r.wants(everonce.Failed, everonce.Executed)
	if c := <-complaints; !strings.Contains(c, "did not take a message over") {
		t.Errorf("it complained of %s", c)
	}
	for _, name := range b.queues() {
		b.wantLength(name, 0)
	}
	r.stop()
	if n := published.Load(); n != 2 || ran != 2 {
		t.Errorf("%d copies were published, and it ran %d times", n, ran)
	}
}

// A dead letter on whose way the connection is lost was not refused: it is published again, and its message is not handled once more.
func TestADeadLetterIsPublishedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var published atomic.Int64
	url := beforeEachPublish(t, b.url, func() bool { return published.Add(1) > 1 })
	r := b.runOn(memstore.New(nil), url, specOf(nothing), nil)
	b.send(message(""))
	if d := b.letter(); d.Headers["x-everonce-reason"] != string(consume.NoKey) {
		t.Errorf("the letter: %v", d.Headers)
	}
	r.stop()
	if n, verdicts := published.Load(), len(r.verdicts); n != 2 || verdicts != 1 {
		t.Errorf("%d copies were published, and it was handled %d times", n, verdicts)
	}
}
