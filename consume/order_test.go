package consume_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/store/memstore"
)

func bySource(m *consume.Message) string { return m.Source }

func from(source, id string) *delivery {
	d := message(id)
	d.m.Source = source
	return d
}

// A slow ordering key delays only its own messages, also if several of them come in a row.
func TestASlowNameHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		skipFailed := make(chan struct{})
		c := serving(t, memstore.New(nil), func(_ context.Context, m *consume.Message, _ order) error {
			if m.Source == "slow" {
				<-skipFailed
			}
			return nil
		})
		in := make(chan consume.Delivery, 30)
		slow, others := []*delivery{}, []*delivery{}
		for i := range 4 {
			slow = append(slow, from("slow", fmt.Sprint("slow-", i)))
			in <- slow[i]
		}
		for i := range 20 {
			others = append(others, from(fmt.Sprint("other-", i), fmt.Sprint("m-", i)))
			in <- others[i]
		}
		close(in)
		served := make(chan error)
		go func() { served <- c.Serve(t.Context(), in, &consume.Workers{Order: bySource, Log: quiet}) }()
		synctest.Wait()
		handled := 0
		for _, d := range others {
			handled += len(d.ended)
		}
		if handled == 0 { // names share lanes by chance: not all of them do
			t.Error("none of the other names was handled")
		}
		close(skipFailed)
		if err := <-served; err != nil {
			t.Fatal(err)
		}
		for _, d := range append(slow, others...) {
			if !slices.Equal(d.ended, []string{"ack"}) {
				t.Errorf("%s ended as %v", d.m.ID, d.ended)
			}
		}
	})
}

// A message for which Order panics, or ends its goroutine, is handled like any other, and Serve goes on.
func TestAnOrderThatPanics(t *testing.T) {
	for name, givesUp := range map[string]func(){"by a panic": func() { panic("no") }, "by Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			c := serving(t, memstore.New(nil), done)
			in := make(chan consume.Delivery, 2)
			first, second := message("m-1"), message("m-2")
			in <- first
			in <- second
			close(in)
			order := func(m *consume.Message) string {
				if m.ID == "m-1" {
					givesUp()
				}
				return m.ID
			}
			var logs bytes.Buffer
			if err := c.Serve(t.Context(), in, &consume.Workers{Order: order, Log: slog.New(slog.NewTextHandler(&logs, nil))}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(first.ended, []string{"ack"}) || !slices.Equal(second.ended, []string{"ack"}) {
				t.Errorf("they ended as %v and %v", first.ended, second.ended)
			}
			if n := strings.Count(logs.String(), "level=ERROR"); n != 1 {
				t.Errorf("%d errors in the log: %s", n, logs.String())
			}
		})
	}
}

// Messages with an empty ordering key are handled like those with the same key: one after the other, as they came.
func TestMessagesWithoutANameAreHandledInOrder(t *testing.T) {
	for name, givesUp := range map[string]func(){"by a panic": func() { panic("no") }, "by Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var seen []string
				c := serving(t, memstore.New(nil), func(_ context.Context, m *consume.Message, _ order) error {
					time.Sleep(time.Second)
					mu.Lock()
					defer mu.Unlock()
					seen = append(seen, m.ID)
					return nil
				})
				in := make(chan consume.Delivery, 8)
				var sent []string
				for i := range cap(in) {
					sent = append(sent, fmt.Sprint("m-", i))
					in <- message(sent[i])
				}
				close(in)
				began := time.Now()
				order := func(*consume.Message) string { givesUp(); return "" }
				if err := c.Serve(t.Context(), in, &consume.Workers{Order: order, Log: quiet}); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took != 8*time.Second || !slices.Equal(seen, sent) {
					t.Errorf("handled in %v: %v", took, seen)
				}
			})
		})
	}
}

// A batch whose handler ended its goroutine is handled before later messages.
func TestOrderAfterAHandlerThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []string
		l := newLedger()
		c := booking(t, l, func(s *txSpec) {
			s.Handle = func(_ context.Context, _ *ledgerTx, m *consume.Message, _ order) error {
				if m.ID == "m-1" {
					runtime.Goexit()
				}
				mu.Lock()
				defer mu.Unlock()
				if !slices.Contains(seen, m.ID) { // the first run of the batch was rolled back
					seen = append(seen, m.ID)
				}
				return nil
			}
		})
		in := make(chan consume.Delivery, 12)
		var want []string
		for i := range 12 {
			d := from("customer", fmt.Sprint("m-", i))
			if in <- d; i != 1 {
				want = append(want, d.m.ID)
			}
		}
		close(in)
		if err := c.Serve(t.Context(), in, &consume.Workers{Batch: 3, Order: bySource, Log: quiet}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(seen, want) {
			t.Errorf("%v, want %v", seen, want)
		}
	})
}

// A message that failed waits at the broker, and holds up none of its name: they overtake it.
func TestAMessageThatFailedIsOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serving(t, memstore.New(nil), func(_ context.Context, m *consume.Message, _ order) error {
			if m.ID == "m-1" {
				return everonce.NotDone(errors.New("not yet"))
			}
			return nil
		})
		in := make(chan consume.Delivery, 2)
		first, second := from("customer", "m-1"), from("customer", "m-2")
		in <- first
		in <- second
		close(in)
		start := time.Now()
		if err := c.Serve(t.Context(), in, &consume.Workers{Order: bySource, Log: quiet}); err != nil {
			t.Fatal(err)
		}
		if len(first.ended) != 1 || !strings.HasPrefix(first.ended[0], "retry") || !slices.Equal(second.ended, []string{"ack"}) || time.Since(start) != 0 {
			t.Errorf("they ended as %v and %v, after %v", first.ended, second.ended, time.Since(start))
		}
	})
}

// At its end a consumer does not wait for room in a lane: the broker gets messages without room back.
func TestTheEndWhileALaneIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		c := serving(t, memstore.New(nil), func(context.Context, *consume.Message, order) error {
			time.Sleep(time.Second) // until the lane is full
			end()
			return nil
		})
		in := make(chan consume.Delivery, 40)
		first := from("customer", "m-0")
		in <- first
		for i := 1; i < 40; i++ {
			in <- from("customer", fmt.Sprint("m-", i))
		}
		if err := c.Serve(ctx, in, &consume.Workers{Order: bySource, Log: quiet}); err != nil {
			t.Fatal(err)
		}
		const taken = 1 + 16 + 1 // one is handled, its lane is full, and one waits for room in it
		if !slices.Equal(first.ended, []string{"ack"}) || len(in) != cap(in)-taken {
			t.Errorf("the first ended as %v, and %d were not taken", first.ended, len(in))
		}
	})
}
