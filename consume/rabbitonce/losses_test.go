package rabbitonce_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/memstore"
)

// watched is a way to the broker.
type watched struct {
	t         *testing.T
	url       string
	consuming chan net.Conn // by which the broker has agreed to send messages
	acks      atomic.Int64  // that were passed on
}

func watch(t *testing.T, brokerURL string) *watched {
	t.Helper()
	w := &watched{t: t, consuming: make(chan net.Conn, 1000)}
	pipe := func(to, from net.Conn, seen func(part []byte)) {
		defer to.Close() //nolint:errcheck // the other way ends by it
		part := make([]byte, 64<<10)
		for {
			n, err := from.Read(part)
			if _, failed := to.Write(part[:n]); failed != nil || err != nil {
				return
			}
			seen(part[:n])
		}
	}
	consumeOK, ack := []byte{0, 60, 0, 21}, []byte{0, 60, 0, 80}
	w.url = relay(t, brokerURL, func(near, far net.Conn) {
		go pipe(far, near, func(part []byte) { w.acks.Add(int64(bytes.Count(part, ack))) })
		go pipe(near, far, func(part []byte) {
			if bytes.Contains(part, consumeOK) {
				w.consuming <- near
			}
		})
	})
	return w
}

// current waits until messages are consumed, and returns the newest connection by which they are.
func (w *watched) current() (conn net.Conn) {
	w.t.Helper()
	for conn == nil || len(w.consuming) > 0 {
		select {
		case conn = <-w.consuming:
		case <-time.After(soon):
			w.t.Fatal("the queue is not consumed")
		}
	}
	return conn
}

// cut ends a connection, so many times, as soon as it is consumed by.
func (w *watched) cut(conn net.Conn, times int) net.Conn {
	w.t.Helper()
	for range times {
		conn.Close() //nolint:errcheck // of a test
		conn = w.current()
	}
	return conn
}

// wantAcks waits until so many messages were acknowledged.
func (w *watched) wantAcks(n int64) {
	w.t.Helper()
	for end := time.Now().Add(soon); w.acks.Load() < n; runtime.Gosched() {
		if time.Now().After(end) {
			w.t.Fatalf("%d acknowledgements, want %d", w.acks.Load(), n)
		}
	}
}

// A connection that is lost again and again without a message says nothing about one: messages are still sent ahead.
func TestOrdinaryLossesBlameNoMessage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	w, log := watch(t, b.url), &lines{}
	r := b.runOn(memstore.New(nil), w.url, specOf(nothing), &rabbitonce.Options{Workers: consume.Workers{Log: textTo(log)}})
	conn := w.current()
	b.send(message("m-0"))
	r.wants(everonce.Executed)
	w.wantAcks(1)
	w.cut(conn, 4)
	b.send(message("m-1"))
	r.wants(everonce.Executed)
	if text := log.String(); strings.Contains(text, "one by one") {
		t.Errorf("the log is %s", text)
	}
}

// After a message that could not be delivered, messages come one by one until as many have come as are sent ahead, although the connection is
// lost meanwhile.
func TestOneByOneEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.queue.DeliveryLimit = 3
	b.declare()
	const ahead, behind = 8, 5
	b.send(message("undeliverable"))
	for i := range behind {
		b.send(message(fmt.Sprint("m-", i)))
	}
	mine, _ := newMine(t, b.url, "undeliverable", true)
	w := watch(t, mine)
	var gate atomic.Bool
	end, log := make(chan struct{}), &lines{}
	r := b.runOn(memstore.New(nil), w.url, specOf(func(context.Context, *consume.Message, order) error {
		if gate.Load() {
			<-end
		}
		return nil
	}), &rabbitonce.Options{Prefetch: ahead, Workers: consume.Workers{Concurrency: 1, Log: textTo(log)}})
	defer close(end)
	for range behind {
		r.wants(everonce.Executed)
	}
	b.wantLength(b.queue.DeadLetters, 1)
	if text := log.String(); !strings.Contains(text, "one by one") {
		t.Fatalf("the log is %s", text)
	}
	w.wantAcks(behind)
	conn := w.cut(w.current(), 2)
	for half := range 2 {
		for i := range ahead / 2 {
			b.send(message(fmt.Sprint("n-", half, "-", i)))
			r.wants(everonce.Executed)
		}
		if half == 0 {
			w.wantAcks(behind + ahead/2)
			w.cut(conn, 2)
		}
	}
	gate.Store(true)
	for i := range ahead {
		b.send(message(fmt.Sprint("o-", i)))
	}
	b.wantLength(b.queue.Name, 0) // all were sent ahead
}
