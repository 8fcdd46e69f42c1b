package rabbitonce_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/memstore"
)

// A broker that takes the connection and then says nothing about the queues is waited for no longer than the context allows, and
// the connection is closed.
func TestDialEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h, err := consume.New(newReceiver(t, memstore.New(nil)), specOf(nothing))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	impatient, closed := errors.New("impatient"), make(chan struct{})
	url := relay(t, b.url, func(near, far net.Conn) {
		go func() {
			_, _ = io.Copy(near, far) //nolint:errcheck // of the test
		}()
		go func() {
			defer close(closed)
			defer far.Close() //nolint:errcheck // of the test
			for part := make([]byte, 4096); ; {
				n, err := near.Read(part)
				if err != nil {
					return
				}
				if bytes.Contains(part[:n], []byte("\x00\x32\x00\x0a")) { // queue.declare
					cancel(impatient)
				}
				if ctx.Err() == nil {
					_, _ = far.Write(part[:n]) //nolint:errcheck // of the test
				}
			}
		}()
	})
	began := time.Now()
	if _, err := rabbitonce.Dial(ctx, url, b.queue, h, quick(nil)); !errors.Is(err, impatient) {
		t.Errorf("Dial: %v, want the cause of its context", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("Dial took %v", took)
	}
	<-closed
}

// The result of Dial outlives its context.
func TestAConsumerOutlivesTheContextOfDial(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handled := make(chan struct{}, 1)
	h, err := consume.New(newReceiver(t, memstore.New(nil)), specOf(func(context.Context, *consume.Message, order) error {
		handled <- struct{}{}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	dialing, dialed := context.WithCancel(t.Context())
	c, err := rabbitonce.Dial(dialing, b.url, b.queue, h, quick(nil))
	dialed()
	if err != nil {
		t.Fatal(err)
	}
	running, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()
	b.send(message("m-1"))
	<-handled
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
