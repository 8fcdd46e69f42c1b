package consume_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/store/memstore"
)

// Concurrency messages are handled at a time, no more, and no fewer if there are enough.
func TestConcurrency(t *testing.T) {
	for name, c := range map[string]struct {
		workers consume.Workers
		want    int64
	}{
		"unordered": {consume.Workers{Concurrency: 3}, 3},
		"ordered":   {consume.Workers{Concurrency: 3, Order: func(m *consume.Message) string { return m.ID }}, 3},
		"default":   {consume.Workers{}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var now atomic.Int64
				skipFailed := make(chan struct{})
				consumer := serving(t, memstore.New(nil), func(context.Context, *consume.Message, order) error {
					now.Add(1)
					<-skipFailed
					return nil
				})
				in := make(chan consume.Delivery, 100)
				for i := range cap(in) {
					in <- message(fmt.Sprint("m-", i))
				}
				close(in)
				served := make(chan error, 1)
				c.workers.Log = quiet
				go func() { served <- consumer.Serve(t.Context(), in, &c.workers) }()
				synctest.Wait()
				if n := now.Load(); n != c.want {
					t.Errorf("%d at a time, want %d", n, c.want)
				}
				close(skipFailed)
				if err := <-served; err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// Messages that failed together do not come back together: half of the delay is random.
func TestRetriesAreSpread(t *testing.T) {
	r := rigged(t, fails, func(s *consume.Spec[order]) { s.Retry = consume.RetryPolicy{Min: time.Hour, Max: time.Hour} })
	least, most := time.Hour, time.Duration(0)
	for i := range 100 {
		m := first()
		m.ID = fmt.Sprint("m-", i)
		after := r.wants(m, everonce.Failed, consume.Retry).After
		least, most = min(least, after), max(most, after)
	}
	if most-least < 20*time.Minute {
		t.Errorf("from %v to %v", least, most)
	}
}

// By default the first delay is at most a second, and the tenth more than four minutes; each is at least half of its
// maximum.
func TestDelaysByDefault(t *testing.T) {
	r := rigged(t, fails, nil)
	for retries, most := 0, time.Second; retries < 10; retries, most = retries+1, min(2*most, 10*time.Minute) {
		for range 20 {
			m := first()
			m.Retries = retries
			if after := r.wants(m, everonce.Failed, consume.Retry).After; after < most/2 || after > most {
				t.Errorf("retry %d after %v, want %v to %v", retries+1, after, most/2, most)
			}
		}
	}
	m := first()
	m.Retries = 10
	r.wants(m, everonce.Failed, consume.SetAside)
}

// A delay is at most the longest one, after any number of retries.
func TestDelaysAreBounded(t *testing.T) {
	for _, b := range []consume.RetryPolicy{{Limit: 1000, Min: time.Second, Max: time.Hour}, {Limit: 1000, Min: 2 * time.Hour, Max: time.Hour}} {
		r := rigged(t, fails, func(s *consume.Spec[order]) { s.Retry = b })
		for _, retries := range []int{12, 31, 32, 63, 64, 999} {
			m := first()
			m.Retries = retries
			if after := r.wants(m, everonce.Failed, consume.Retry).After; after < 30*time.Minute || after > time.Hour {
				t.Errorf("%+v: retry %d after %v", b, retries, after)
			}
		}
		m := first()
		m.Retries = -1 // as for a broker that has no retry count
		if after := r.wants(m, everonce.Failed, consume.Retry).After; after > time.Hour {
			t.Errorf("%+v: retry -1 after %v", b, after)
		}
	}
}

// The pause doubles while the store cannot be reached, and begins anew once it could be.
func TestAPauseBeginsAnew(t *testing.T) {
	t.Run("one by one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &downStore{Store: memstore.New(nil)}
			pauseBeginsAnew(t, serving(t, store, done), consume.Workers{}, &store.down, func() int64 { return store.calls.Load() / 3 }) // a claim is tried three times
		})
	})
	t.Run("in batches", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLedger()
			pauseBeginsAnew(t, booking(t, l, nil), consume.Workers{Batch: 2}, &l.down, l.begun.Load)
		})
	})
}

func pauseBeginsAnew(t *testing.T, c *consume.Consumer, w consume.Workers, down *atomic.Bool, calls func() int64) {
	t.Helper()
	in := make(chan consume.Delivery)
	served := make(chan error, 1)
	w.Concurrency, w.Backoff.Min, w.Backoff.Max, w.Log = 1, time.Second, time.Hour, quiet
	go func() { served <- c.Serve(t.Context(), in, &w) }()
	for i := range 2 {
		down.Store(true)
		began := calls()
		in <- message(fmt.Sprint("m-", i))
		time.Sleep(10 * time.Second) // at once, and after 1, 3 and 7 seconds
		synctest.Wait()
		if asked := calls() - began; asked != 4 {
			t.Errorf("the store was asked %d times within ten seconds of failure %d, want 4", asked, i+1)
		}
		down.Store(false)
		time.Sleep(time.Hour)
	}
	close(in)
	if err := <-served; err != nil {
		t.Fatal(err)
	}
}

// A least pause that is above the longest by default is the pause.
func TestALongLeastPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &downStore{Store: memstore.New(nil)}
		store.down.Store(true)
		in := make(chan consume.Delivery, 1)
		in <- message("m-1")
		servedAndEnded(t, serving(t, store, done), in, consume.Workers{Backoff: consume.Backoff{Min: time.Hour}}, func() {
			before := store.calls.Load()
			time.Sleep(59 * time.Minute)
			if n := store.calls.Load() - before; before == 0 || n != 0 {
				t.Errorf("the store was asked %d times, and %d times more within an hour", before, n)
			}
		})
	})
}

// A success during a pause does not end the pause: it began before it.
func TestAPauseIsNotCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, begun, skipFailed := &downStore{Store: memstore.New(nil)}, new(atomic.Int64), make(chan struct{})
		c := serving(t, store, func(context.Context, *consume.Message, order) error {
			if begun.Add(1) == 1 {
				<-skipFailed
			}
			return nil
		})
		in := make(chan consume.Delivery)
		served := make(chan error, 1)
		go func() {
			served <- c.Serve(t.Context(), in, &consume.Workers{Concurrency: 3, Backoff: consume.Backoff{Min: time.Minute}, Log: quiet})
		}()
		in <- message("m-1")
		synctest.Wait()
		store.down.Store(true)
		in <- message("m-2")
		time.Sleep(time.Second)
		store.down.Store(false)
		close(skipFailed)
		synctest.Wait()
		go func() { in <- message("m-3"); close(in) }()
		time.Sleep(58 * time.Second)
		if n := begun.Load(); n != 1 {
			t.Errorf("%d were begun in the pause", n-1)
		}
		if err := <-served; err != nil || begun.Load() != 3 {
			t.Errorf("%v, and %d were handled", err, begun.Load())
		}
	})
}

// Each lane buffers a batch beside the one that is handled, if that is more than sixteen messages.
func TestALaneHasRoomForABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		skipFailed := make(chan struct{})
		c := booking(t, newLedger(), func(s *txSpec) {
			s.Handle = func(context.Context, *ledgerTx, *consume.Message, order) error { <-skipFailed; return nil }
		})
		in := make(chan consume.Delivery, 200)
		for i := range cap(in) {
			in <- message(fmt.Sprint("m-", i))
		}
		close(in)
		served := make(chan error, 1)
		go func() {
			served <- c.Serve(t.Context(), in, &consume.Workers{Concurrency: 1, Batch: 40, Order: bySource, Log: quiet})
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := cap(in) - len(in); got < 80 {
			t.Errorf("%d messages were taken, want 80", got)
		}
		close(skipFailed)
		if err := <-served; err != nil {
			t.Fatal(err)
		}
	})
}

// By default the first of a batch waits for a hundredth of a second.
func TestABatchWaitsALittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var waited time.Duration
		c := booking(t, newLedger(), func(s *txSpec) {
			s.Handle = func(context.Context, *ledgerTx, *consume.Message, order) error {
				waited = time.Since(began)
				return nil
			}
		})
		in := make(chan consume.Delivery, 1)
		in <- message("m-1")
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		if err := c.Serve(ctx, in, &consume.Workers{Batch: 2, Log: quiet}); err != nil {
			t.Fatal(err)
		}
		if waited != 10*time.Millisecond {
			t.Errorf("it waited %v", waited)
		}
	})
}

// A message that gets no further than its key says nothing of the store: the pause goes on doubling, however many of them come meanwhile.
func TestAMessageWithoutAKeyEndsNoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked [2]int64
		for i := range asked {
			store := &downStore{Store: memstore.New(nil)}
			store.down.Store(true)
			c := serving(t, store, done)
			ctx, end := context.WithCancel(t.Context())
			in, served := make(chan consume.Delivery), make(chan error, 1)
			go func() {
				served <- c.Serve(ctx, in, &consume.Workers{Concurrency: 2, Backoff: consume.Backoff{Min: time.Second, Max: time.Hour}, Log: quiet})
			}()
			in <- message("m-1")
			if i == 1 {
				go func() {
					for {
						select {
						case in <- message(""):
							time.Sleep(time.Second)
						case <-ctx.Done():
							return
						}
					}
				}()
			}
			time.Sleep(time.Hour)
			asked[i] = store.calls.Load()
			end()
			if err := <-served; err != nil {
				t.Fatal(err)
			}
		}
		if asked[0] == 0 || asked[0] != asked[1] {
			t.Errorf("in an hour the store was asked %d times, and %d times with messages without a key between", asked[0], asked[1])
		}
	})
}

// Messages that find the store away at the same time make one pause, and not one that has doubled for each of them.
func TestAFailureThatManyFindIsOnePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &downStore{Store: memstore.New(nil)}
		store.down.Store(true)
		in := make(chan consume.Delivery, 8)
		for i := range 8 {
			in <- message(fmt.Sprint("m-", i))
		}
		close(in)
		time.AfterFunc(900*time.Millisecond, func() { store.down.Store(false) })
		began := time.Now()
		if err := serving(t, store, done).Serve(t.Context(), in, &consume.Workers{Concurrency: 8, Log: quiet}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 2*time.Second { // the shortest pause, and what the receiver itself has tried before
			t.Errorf("it took %v", took)
		}
	})
}
