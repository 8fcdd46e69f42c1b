package consume_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// delivery is a delivery that notes how it ended.
type delivery struct {
	m *consume.Message
	// fails are the errors of the next answers.
	fails []error

	mu    sync.Mutex
	ended []string
}

func (d *delivery) Message() *consume.Message { return d.m }

func (d *delivery) end(format string, args ...any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.fails) > 0 {
		err := d.fails[0]
		d.fails = d.fails[1:]
		return err
	}
	d.ended = append(d.ended, fmt.Sprintf(format, args...))
	return nil
}

// how returns how it has ended so far.
func (d *delivery) how() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.ended)
}

func (d *delivery) Ack(context.Context) error { return d.end("ack") }

func (d *delivery) Retry(_ context.Context, _ time.Duration, counts bool) error {
	return d.end("retry %v", counts)
}

func (d *delivery) SetAside(_ context.Context, l consume.Death) error {
	return d.end("set_aside %s", l.Reason)
}

// downStore is a store that is down while its flag is set.
type downStore struct {
	everonce.Store
	down  atomic.Bool
	calls atomic.Int64
}

var errDown = errors.New("the store is down")

func (s *downStore) Claim(ctx context.Context, r driver.ClaimRequest) (driver.ClaimResult, error) {
	s.calls.Add(1)
	if s.down.Load() {
		return driver.ClaimResult{}, errDown
	}
	return s.Store.Claim(ctx, r)
}

func serving(t *testing.T, store everonce.Store, handle func(context.Context, *consume.Message, order) error) *consume.Consumer {
	t.Helper()
	recv, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := consume.New(recv, consume.Spec[order]{Consumer: "billing", Key: consume.ProducerID(), Handle: handle})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var quiet = slog.New(slog.DiscardHandler)

func message(id string) *delivery {
	return &delivery{m: &consume.Message{ID: id, Body: []byte(`{}`)}}
}

// While the store is down a message is held, handled again after a growing pause, and acknowledged when the store is
// back. A broker would not redeliver it on an open channel.
func TestHeldWhileTheStoreIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &downStore{Store: memstore.New(nil)}
		store.down.Store(true)
		c := serving(t, store, func(context.Context, *consume.Message, order) error { return nil })
		in := make(chan consume.Delivery)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := c.Serve(t.Context(), in, &consume.Workers{Concurrency: 1, Log: quiet}); err != nil {
				t.Error(err)
			}
		}()
		d := message("m-1")
		in <- d
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(d.ended) != 0 {
			t.Errorf("it ended as %v while the store was down", d.ended)
		}
		if n := store.calls.Load(); n > 100 {
			t.Errorf("%d calls of the store in ten minutes: a busy loop", n)
		}
		store.down.Store(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if !slices.Equal(d.ended, []string{"ack"}) {
			t.Errorf("it ended as %v, want ack", d.ended)
		}
		close(in)
		<-done
	})
}

// At the end no message is started, started messages are finished and acknowledged, and held messages are left to the
// broker.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		begun := make(chan struct{}, 10)
		c := serving(t, memstore.New(nil), func(ctx context.Context, _ *consume.Message, _ order) error {
			begun <- struct{}{}
			select {
			case <-time.After(10 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		in := make(chan consume.Delivery, 2)
		first, second := message("m-1"), message("m-2")
		in <- first
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := c.Serve(ctx, in, &consume.Workers{Concurrency: 1, Log: quiet}); err != nil {
				t.Error(err)
			}
		}()
		<-begun
		in <- second
		end()
		<-done
		if !slices.Equal(first.ended, []string{"ack"}) || len(second.ended) != 0 {
			t.Errorf("the first ended as %v, want ack; the second as %v, want not at all", first.ended, second.ended)
		}
	})
}

// The context of a handler ends if it takes longer than the drain allows, and its message is not acknowledged as done.
func TestDrainIsBounded(t *testing.T) {
	for within, want := range map[time.Duration]time.Duration{5 * time.Second: 5 * time.Second, 0: 30 * time.Second} {
		t.Run(want.String(), func(t *testing.T) { drainIsBounded(t, within, want) })
	}
}

func drainIsBounded(t *testing.T, within, want time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		begun := make(chan struct{}, 1)
		var cause error
		c := serving(t, memstore.New(nil), func(ctx context.Context, _ *consume.Message, _ order) error {
			close(begun)
			<-ctx.Done()
			cause = context.Cause(ctx)
			return everonce.NotDone(ctx.Err())
		})
		in := make(chan consume.Delivery, 1)
		d := message("m-1")
		in <- d
		go func() {
			<-begun
			end()
		}()
		start := time.Now()
		if err := c.Serve(ctx, in, &consume.Workers{DrainTimeout: within, Log: quiet}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != want || !slices.Equal(d.ended, []string{"retry true"}) {
			t.Errorf("after %v it ended as %v, want a retry after %v", took, d.ended, want)
		}
		if cause == nil || !strings.Contains(cause.Error(), "after the consumer was stopped") {
			t.Errorf("the handler's cause was %v", cause)
		}
	})
}

// A handler that ignores its context delays the drain until it returns: its effect is recorded and acknowledged.
func TestDrainWaitsForAHandlerThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		c := serving(t, memstore.New(nil), func(context.Context, *consume.Message, order) error {
			end()
			time.Sleep(time.Hour)
			return nil
		})
		in := make(chan consume.Delivery, 1)
		d := message("m-1")
		in <- d
		start := time.Now()
		if err := c.Serve(ctx, in, &consume.Workers{DrainTimeout: 5 * time.Second, Log: quiet}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != time.Hour || !slices.Equal(d.ended, []string{"ack"}) {
			t.Errorf("after %v it ended as %v, want ack after an hour", took, d.ended)
		}
	})
}

// An answer that the broker did not take is given again, and the message is not handled again for that.
func TestAnswersAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handled := 0
		c := serving(t, memstore.New(nil), func(context.Context, *consume.Message, order) error {
			handled++
			return everonce.NotDone(errors.New("later"))
		})
		d := message("m-1")
		d.fails = []error{errDown, errDown}
		gone := message("m-2")
		gone.fails = []error{fmt.Errorf("closed: %w", consume.ErrGone)}
		in := make(chan consume.Delivery, 2)
		in <- d
		in <- gone
		close(in)
		if err := c.Serve(t.Context(), in, &consume.Workers{Concurrency: 1, Log: quiet}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(d.ended, []string{"retry true"}) || len(gone.ended) != 0 || handled != 2 {
			t.Errorf("ended as %v and %v, handled %d times", d.ended, gone.ended, handled)
		}
	})
}

// A message whose dead letter the broker does not accept, because it is short of memory, waits, and later messages do
// not.
func TestAnAnswerThatIsNotTakenHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serving(t, memstore.New(nil), func(context.Context, *consume.Message, order) error {
			time.Sleep(time.Millisecond)
			return nil
		})
		poison := message("")
		for range 10 {
			poison.fails = append(poison.fails, errDown)
		}
		in := make(chan consume.Delivery, 200)
		in <- poison
		var good []*delivery
		for i := range 100 {
			good = append(good, message(fmt.Sprint("m-", i)))
			in <- good[i]
		}
		done := make(chan error)
		go func() { done <- c.Serve(t.Context(), in, &consume.Workers{Concurrency: 2, Log: quiet}) }()
		time.Sleep(time.Second) // and the poison is tried for the second time now
		synctest.Wait()
		for _, d := range good {
			if !slices.Equal(d.ended, []string{"ack"}) {
				t.Fatalf("%s ended as %v", d.m.ID, d.ended)
			}
		}
		if how := poison.how(); len(how) != 0 {
			t.Errorf("the poison ended as %v", how)
		}
		close(in)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(poison.ended, []string{"set_aside no_key"}) {
			t.Errorf("the poison ended as %v", poison.ended)
		}
	})
}

// A dead letter that its queue refuses is deferred, at once and without using up a retry.
func TestARefusedDeadLetterComesAgainLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serving(t, memstore.New(nil), done)
		refused := fmt.Errorf("%w: the queue is full", consume.ErrRefused)
		poison, again, behind := message(""), message(""), message("m-1")
		poison.fails = []error{refused}
		again.fails = []error{refused, refused, refused} // and then the queue of its delay is full
		in := make(chan consume.Delivery, 3)
		for _, d := range []*delivery{poison, again, behind} {
			in <- d
		}
		close(in)
		began := time.Now()
		if err := c.Serve(t.Context(), in, &consume.Workers{Concurrency: 1, Log: quiet}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(poison.ended, []string{"retry false"}) || !slices.Equal(again.ended, []string{"retry false"}) || !slices.Equal(behind.ended, []string{"ack"}) {
			t.Errorf("they ended as %v, %v and %v", poison.ended, again.ended, behind.ended)
		}
		if took := time.Since(began); took != 3*time.Second { // for the full queue of the second's delay
			t.Errorf("it took %v", took)
		}
	})
}

// A panic of a handler ends its attempt, and not the consumer: under Refuse the message is a dead letter, at each
// delivery.
func TestAPanicIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serving(t, memstore.New(nil), func(context.Context, *consume.Message, order) error { panic("no") })
		first, second := message("m-1"), message("m-1")
		second.m.Retries = 1
		in := make(chan consume.Delivery, 2)
		in <- first
		in <- second
		close(in)
		if err := c.Serve(t.Context(), in, &consume.Workers{Concurrency: 1, Log: quiet}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(first.ended, []string{"set_aside unknown"}) || !slices.Equal(second.ended, []string{"set_aside unknown"}) {
			t.Errorf("ended as %v, then as %v", first.ended, second.ended)
		}
	})
}

// Messages with the same ordering key are handled in their order, without delaying other keys.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		seen := map[string][]string{}
		c := serving(t, memstore.New(nil), func(_ context.Context, m *consume.Message, _ order) error {
			time.Sleep(time.Duration(len(m.ID)) * time.Second)
			mu.Lock()
			defer mu.Unlock()
			seen[m.Source] = append(seen[m.Source], m.ID)
			return nil
		})
		in := make(chan consume.Delivery, 40)
		want := map[string][]string{}
		for i := range 40 {
			d := message(fmt.Sprintf("m-%d", 200-i*5))
			d.m.Source = fmt.Sprint("customer-", i%7)
			want[d.m.Source] = append(want[d.m.Source], d.m.ID)
			in <- d
		}
		close(in)
		if err := c.Serve(t.Context(), in, &consume.Workers{Order: bySource, Log: quiet}); err != nil {
			t.Fatal(err)
		}
		for source, ids := range want {
			if !slices.Equal(seen[source], ids) {
				t.Errorf("%s: %v, want %v", source, seen[source], ids)
			}
		}
	})
}

// Nothing is begun in the pause after the store could not be written to, by a worker neither that was waiting for a message when
// the pause began.
func TestNothingIsBegunInAPause(t *testing.T) {
	for name, workers := range map[string]consume.Workers{
		"unordered": {Concurrency: 4},
		"ordered":   {Concurrency: 4, Order: func(m *consume.Message) string { return m.ID }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &downStore{Store: memstore.New(nil)}
				store.down.Store(true)
				c := serving(t, store, func(context.Context, *consume.Message, order) error { return nil })
				nothingIsBegunInAPause(t, c, workers, store.calls.Load, func() { store.down.Store(false) })
			})
		})
	}
	t.Run("in batches", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLedger()
			l.down.Store(true)
			nothingIsBegunInAPause(t, booking(t, l, nil), consume.Workers{Concurrency: 4, Batch: 2}, l.begun.Load, func() { l.down.Store(false) })
		})
	})
}

// nothingIsBegunInAPause holds one message, and delivers others during the pause. begun counts started messages, and
// back ends the failure.
func nothingIsBegunInAPause(t *testing.T, c *consume.Consumer, workers consume.Workers, begun func() int64, back func()) {
	t.Helper()
	in := make(chan consume.Delivery)
	done := make(chan struct{})
	go func() {
		defer close(done)
		workers.Backoff.Min, workers.Log = time.Minute, quiet
		if err := c.Serve(t.Context(), in, &workers); err != nil {
			t.Error(err)
		}
	}()
	in <- message("m-1")
	time.Sleep(time.Second)
	before := begun()
	more := []*delivery{message("m-2"), message("m-3"), message("m-4"), message("m-5")}
	go func() {
		for _, d := range more {
			in <- d
		}
		close(in)
	}()
	time.Sleep(10 * time.Second)
	if n := begun() - before; n != 0 {
		t.Errorf("%d were begun in the pause", n)
	}
	back()
	<-done
	for _, d := range more {
		if !slices.Equal(d.how(), []string{"ack"}) {
			t.Errorf("%s ended as %v", d.m.ID, d.how())
		}
	}
}

// Observe does not affect the decision: if it panics, the message is still acknowledged, once, and the consumer goes
// on.
func TestAPanicOfObserveChangesNothing(t *testing.T) {
	observe := func(_ context.Context, m *consume.Message, v consume.Decision) {
		if v.Disposition == consume.Ack || m.ID == "always" {
			panic("no")
		}
	}
	l := newLedger()
	for name, c := range map[string]struct {
		consumer *consume.Consumer
		workers  consume.Workers
	}{
		"guarded":    {rigged(t, done, func(s *consume.Spec[order]) { s.Observe = observe }).c, consume.Workers{Concurrency: 1}},
		"in batches": {booking(t, l, func(s *txSpec) { s.Observe = observe }), consume.Workers{Concurrency: 1, Batch: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			var logs bytes.Buffer
			c.workers.Log = slog.New(slog.NewTextHandler(&logs, nil))
			ds := []*delivery{message("a"), message("always"), message("")}
			in := make(chan consume.Delivery, len(ds))
			for _, d := range ds {
				in <- d
			}
			close(in)
			if err := c.consumer.Serve(t.Context(), in, &c.workers); err != nil {
				t.Fatal(err)
			}
			if a, always, none := ds[0].how(), ds[1].how(), ds[2].how(); !slices.Equal(a, []string{"ack"}) || !slices.Equal(always, a) || !slices.Equal(none, []string{"set_aside no_key"}) {
				t.Errorf("they ended as %v, %v and %v", a, always, none)
			}
			if n := strings.Count(logs.String(), "Observe panicked"); n != 2 {
				t.Errorf("%d panics in the log: %s", n, logs.String())
			}
		})
	}
}
