package consume_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/store/memstore"
)

// servedAndEnded serves the channel, ends Serve a second later, and returns how long it took to return.
func servedAndEnded(t *testing.T, c *consume.Consumer, in <-chan consume.Delivery, w consume.Workers, before func()) (took time.Duration) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	w.Log = quiet
	go func() { served <- c.Serve(ctx, in, &w) }()
	time.Sleep(time.Second)
	synctest.Wait()
	if before != nil {
		before()
	}
	asked := time.Now()
	end()
	if err := <-served; err != nil {
		t.Error(err)
	}
	return time.Since(asked)
}

// A message that is held in a pause is left at once when Serve ends, even if the store is back by then.
func TestTheEndInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &downStore{Store: memstore.New(nil)}
		store.down.Store(true)
		in, d := make(chan consume.Delivery, 1), message("m-1")
		in <- d
		var asked int64
		took := servedAndEnded(t, serving(t, store, done), in, consume.Workers{Backoff: consume.Backoff{Min: time.Minute}}, func() {
			store.down.Store(false)
			asked = store.calls.Load()
		})
		if n := store.calls.Load() - asked; took != 0 || asked == 0 || n != 0 || len(d.how()) != 0 {
			t.Errorf("it took %v, the store was asked %d times more, and the message ended as %v", took, n, d.how())
		}
	})
}

// A batch that is still being collected is left then, too.
func TestTheEndWhileABatchIsCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		in, d := make(chan consume.Delivery, 1), message("m-1")
		in <- d
		took := servedAndEnded(t, booking(t, l, nil), in, consume.Workers{Batch: 2, BatchDelay: time.Hour}, nil)
		if took != 0 || l.begun.Load() != 0 || len(d.how()) != 0 {
			t.Errorf("it took %v, %d transactions were begun, and the message ended as %v", took, l.begun.Load(), d.how())
		}
	})
}

// A broker that accepts no answer does not delay the end: it will redeliver the message.
func TestTheEndWithoutTheBrokersAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, d := make(chan consume.Delivery, 1), message("m-1")
		for range 100 {
			d.fails = append(d.fails, errors.New("not now"))
		}
		in <- d
		took := servedAndEnded(t, serving(t, memstore.New(nil), done), in, consume.Workers{Backoff: consume.Backoff{Min: time.Minute}}, nil)
		if took != 0 || len(d.fails) != 99 || len(d.how()) != 0 {
			t.Errorf("it took %v, and after %d answers the message ended as %v", took, 100-len(d.fails), d.how())
		}
	})
}

// deaf is a delivery whose broker never answers.
type deaf struct{ *delivery }

func (d deaf) Ack(ctx context.Context) error {
	<-ctx.Done()
	return d.end("ack")
}

// Nor does it hold up the end by each message of a batch: after DrainTimeout all of them have as long as one answer has.
func TestTheEndOfABatchWithoutTheBrokersAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, asked := make(chan consume.Delivery, 100), 0
		ds := make([]*delivery, cap(in))
		for i := range ds {
			ds[i] = message(fmt.Sprint("m-", i))
			ds[i].fails = []error{errors.New("not now")}
			in <- deaf{ds[i]}
		}
		took := servedAndEnded(t, booking(t, newLedger(), nil), in, consume.Workers{Concurrency: 1, Batch: len(ds)}, nil)
		for _, d := range ds {
			asked += 1 - len(d.fails)
		}
		if took != 40*time.Second || asked > 5 {
			t.Errorf("it took %v, and %d answers were given", took, asked)
		}
	})
}
