package consume_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
)

// A custom adapter gets its decisions even if Observe panics: without them the broker would redeliver for ever.
func TestAPanicOfObserveCostsNoVerdict(t *testing.T) {
	var logs bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&logs, nil)))
	observe := func(context.Context, *consume.Message, consume.Decision) { panic("no") }
	r := rigged(t, done, func(s *consume.Spec[order]) { s.Observe = observe })
	r.wants(first(), everonce.Executed, consume.Ack)
	r.wants(first(), everonce.Replayed, consume.Ack)
	c := booking(t, newLedger(), func(s *txSpec) { s.Observe = observe })
	for _, v := range c.HandleBatch(t.Context(), []*consume.Message{first(), first()}) {
		if v.Disposition != consume.Ack {
			t.Errorf("in a batch: %+v", v)
		}
	}
	if n := strings.Count(logs.String(), "Observe panicked"); n != 4 {
		t.Errorf("%d panics in the log: %s", n, logs.String())
	}
}

// Observe may end its goroutine, as t.FailNow does in a test: the handled message is still answered, and handled once.
// An adapter that calls HandleBatch or Handle directly goes on.
func TestAnObserveThatEndsItsGoroutineChangesNothing(t *testing.T) {
	observe := func(context.Context, *consume.Message, consume.Decision) { runtime.Goexit() }
	for name, c := range map[string]struct {
		consumer *consume.Consumer
		workers  consume.Workers
	}{
		"guarded":    {rigged(t, done, func(s *consume.Spec[order]) { s.Observe = observe }).c, consume.Workers{Concurrency: 1}},
		"in batches": {booking(t, newLedger(), func(s *txSpec) { s.Observe = observe }), consume.Workers{Concurrency: 1, Batch: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			c.workers.Log = quiet
			ds := []*delivery{message("a"), message("b"), message("")}
			in := make(chan consume.Delivery, len(ds))
			for _, d := range ds {
				in <- d
			}
			close(in)
			if err := c.consumer.Serve(t.Context(), in, &c.workers); err != nil {
				t.Fatal(err)
			}
			if a, b, none := ds[0].how(), ds[1].how(), ds[2].how(); !slices.Equal(a, []string{"ack"}) || !slices.Equal(b, a) || !slices.Equal(none, []string{"set_aside no_key"}) {
				t.Errorf("they ended as %v, %v and %v", a, b, none)
			}
			var adapter sync.WaitGroup
			goesOn := false
			adapter.Go(func() {
				c.consumer.Handle(t.Context(), first())
				c.consumer.HandleBatch(t.Context(), []*consume.Message{first()})
				c.consumer.ObserveSetAside(t.Context(), first(), consume.Death{Reason: "broker_delivery_limit"})
				goesOn = true
			})
			if adapter.Wait(); !goesOn {
				t.Error("the adapter's goroutine has ended")
			}
		})
	}
}
