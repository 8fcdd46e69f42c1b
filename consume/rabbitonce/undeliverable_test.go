package rabbitonce_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/memstore"
)

// newMine is a way to the broker on which a delivery that has a mark ends the connection, as one does that the broker cannot write: with
// its word, the error 541, or without one. It counts those deliveries.
func newMine(t *testing.T, brokerURL, mark string, word bool) (url string, ended *atomic.Int64) {
	t.Helper()
	ended = &atomic.Int64{}
	return relay(t, brokerURL, func(near, far net.Conn) {
		var once sync.Once
		end := func() { once.Do(func() { near.Close(); far.Close() }) } //nolint:errcheck // of a test
		go func() {
			defer end()
			io.Copy(far, near) //nolint:errcheck // as it ends
		}()
		go func() {
			defer end()
			for {
				const head, last = 7, 1
				frame := make([]byte, head, 1<<10)
				if _, err := io.ReadFull(far, frame); err != nil {
					return
				}
				frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame[3:])+last)...)
				if _, err := io.ReadFull(far, frame[head:]); err != nil {
					return
				}
				if bytes.Contains(frame, []byte(mark)) {
					ended.Add(1)
					if word {
						near.Write(internalError()) //nolint:errcheck // as above
					}
					return
				}
				if _, err := near.Write(frame); err != nil {
					return
				}
			}
		}()
	}), ended
}

// internalError is the frame by which a broker closes a connection with 541.
func internalError() []byte {
	const class, method, code, text = 10, 50, 541, "INTERNAL_ERROR"
	body := binary.BigEndian.AppendUint16(nil, class)
	body = binary.BigEndian.AppendUint16(body, method)
	body = binary.BigEndian.AppendUint16(body, code)
	body = append(append(body, byte(len(text))), text...)
	body = append(body, 0, 0, 0, 0)
	frame := binary.BigEndian.AppendUint32([]byte{1, 0, 0}, uint32(len(body)))
	return append(append(frame, body...), 0xCE)
}

// A message that ends the connection at each delivery affects no others: messages prefetched with it are handled, and
// become no dead letters beyond the unavoidable. The message itself becomes a dead letter at its delivery limit.
func TestAMessageThatTheBrokerCannotDeliver(t *testing.T) {
	t.Parallel()
	for name, word := range map[string]bool{"with a word": true, "without one": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.queue.DeliveryLimit = 3
			b.declare()
			url, ended := newMine(t, b.url, "undeliverable", word)
			for i := range 7 {
				if id := fmt.Sprint("m-", i); i != 4 {
					b.send(message(id))
					continue
				}
				b.send(message("undeliverable"))
			}
			log := &lines{}
			store := memstore.New(nil)
			r := b.runOn(store, url, specOf(func(context.Context, *consume.Message, order) error { return nil }),
				&rabbitonce.Options{Prefetch: 7, Workers: consume.Workers{Concurrency: 1, Log: textTo(log)}, Backoff: consume.Backoff{Min: 10e6}})
			for done := map[string]bool{}; len(done) < 6; {
				v := r.decision()
				if v.Outcome != everonce.Executed && v.Outcome != everonce.Replayed {
					t.Fatalf("%+v", v)
				}
				done[v.KeyHash] = true
			}
			b.wantLength(b.queue.DeadLetters, 1)
			b.wantLength(b.queue.Name, 0)
			if d := b.letter(); d.MessageId != "undeliverable" {
				t.Errorf("the dead letter is %s", d.MessageId)
			}
			if n := ended.Load(); n != 4 {
				t.Errorf("it was delivered %d times, want 4", n)
			}
			if text := log.String(); !strings.Contains(text, "one by one") || !strings.Contains(text, b.queue.Name) {
				t.Errorf("the log is %s", text)
			}
		})
	}
}

// A dead letter that ends the connection at each delivery hides none before it, and those behind it are seen or counted: repeated, a replay
// leaves that one letter. The error says where it is.
func TestADeadLetterThatTheBrokerCannotDeliver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	const n, bad = 24, 10
	for i := range n {
		id := fmt.Sprint("m-", i)
		if i == bad {
			id = "undeliverable"
		}
		b.sendTo(b.queue.DeadLetters, message(id))
	}
	url, _ := newMine(t, b.url, "undeliverable", true)
	l, err := rabbitonce.DialDeadLetters(t.Context(), url, b.queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // of a test
	all, err := l.List(t.Context(), consume.Filter{})
	// From RabbitMQ 4.3 on a lost connection may give letters back in another order.
	if !errors.Is(err, consume.ErrUnreadable) || len(all) < bad || !slices.ContainsFunc(all, func(l consume.DeadLetter) bool { return strings.Contains(err.Error(), l.ID) }) {
		t.Fatalf("%d dead letters, %v", len(all), err)
	}
	if hidden := fmt.Sprintf("and %d others were not seen", n-1-len(all)); !strings.Contains(err.Error(), hidden) {
		t.Errorf("%v, want %s", err, hidden)
	}
	seen := map[string]bool{}
	for _, letter := range all {
		seen[letter.Message.ID] = true
	}
	if len(seen) != len(all) || seen["undeliverable"] {
		t.Fatalf("%d dead letters, %d different ones: %v", len(all), len(seen), err)
	}
	total := 0
	for try := 0; total < n-1 && try < 10; try++ {
		replayed, err := l.Replay(t.Context(), consume.Filter{})
		if total += replayed; !errors.Is(err, consume.ErrUnreadable) {
			t.Fatalf("replayed %d, %v", replayed, err)
		}
	}
	b.wantLength(b.queue.Name, n-1)
	if d := b.letter(); d.MessageId != "undeliverable" {
		t.Errorf("%s is left", d.MessageId)
	}
}

// A queue with a delivery limit deletes a letter that is delivered too often. There a look goes no further than the first letter that ends the
// connection, and deletes none.
func TestADeadLetterThatTheBrokerCannotDeliverFromALimitedQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const n, limit = 24, 20
	if _, err := b.ch.QueueDeclare(b.queue.DeadLetters, true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(limit)}); err != nil {
		t.Fatal(err)
	}
	b.declare()
	for i := range n - 1 {
		b.sendTo(b.queue.DeadLetters, message(fmt.Sprint("m-", i)))
	}
	b.sendTo(b.queue.DeadLetters, message("undeliverable"))
	url, ended := newMine(t, b.url, "undeliverable", true)
	l, err := rabbitonce.DialDeadLetters(t.Context(), url, b.queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // of a test
	const looks = 4
	for range looks {
		_, err := l.List(t.Context(), consume.Filter{})
		if !errors.Is(err, consume.ErrUnreadable) || !strings.Contains(err.Error(), b.queue.DeadLetters) || !strings.Contains(err.Error(), "delivery limit") {
			t.Fatal(err)
		}
	}
	if ended.Load() != looks {
		t.Errorf("%d looks lost %d connections", looks, ended.Load())
	}
	b.wantLength(b.queue.DeadLetters, n)
}
