package rabbitonce_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/memstore"
)

// A consumer that is to end while its connection is made again does so at once, and does not wait for a broker that does not answer.
func TestTheEndIsNotWaitedForInAQuestion(t *testing.T) { //nolint:paralleltest // askTimeout is global
	defer rabbitonce.AskWithin(time.Hour)()
	b := newBench(t)
	l := newLine(t, b.url, func() bool { return true })
	var silent atomic.Bool
	asked, proceed := make(chan struct{}, 100), make(chan struct{})
	defer close(proceed)
	l.declaring = func([]byte) bool {
		if silent.Load() {
			asked <- struct{}{}
			<-proceed
		}
		return true
	}
	r := b.runOn(memstore.New(nil), l.url, specOf(nothing), &rabbitonce.Options{Heartbeat: time.Minute})
	b.send(message("m-1"))
	r.wants(everonce.Executed)
	silent.Store(true)
	b.deleteQueue(b.queue.Name) // the consumer is cancelled, and asks for its queues anew
	wait(t, "the question", asked)
	r.stop()
}

// Nor does it wait longer than it may for the broker's word that nothing more is sent; what had been sent ahead is given back all the same.
func TestTheEndWithoutTheBrokersWord(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := newLine(t, b.url, func() bool { return true })
	l.deaf = true
	begun, proceed := make(chan struct{}), make(chan struct{})
	r := b.runOn(memstore.New(nil), l.url, specOf(func(context.Context, *consume.Message, order) error { close(begun); <-proceed; return nil }),
		&rabbitonce.Options{Prefetch: 2, Workers: consume.Workers{Concurrency: 1}})
	b.send(message("m-1"), message("m-2"))
	wait(t, "the first message", begun)
	b.wantLength(b.queue.Name, 0)
	r.end()
	b.wantLength(b.queue.Name, 2) // by the end of the connection, while the first is handled
	close(proceed)
	r.stop()
	l.leaves(t, 0)
}
