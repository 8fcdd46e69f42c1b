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

// Concurrency is how many messages are handled at a time: no fewer where there are enough, and no more.
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
				goOn := make(chan struct{})
				consumer := serving(t, memstore.New(nil), func(context.Context, *consume.Message, order) error {
					now.Add(1)
					<-goOn
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
				close(goOn)
				if err := <-served; err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// What failed together does not come back together: half of the delay is by chance.
func TestRetriesAreSpread(t *testing.T) {
	r := rigged(t, fails, func(s *consume.Spec[order]) { s.Retry = consume.Backoff{Min: time.Hour, Max: time.Hour} })
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

// A delay is at most the longest one, after any number of retries.
func TestDelaysAreBounded(t *testing.T) {
	for _, b := range []consume.Backoff{{Limit: 1000, Min: time.Second, Max: time.Hour}, {Limit: 1000, Min: 2 * time.Hour, Max: time.Hour}} {
		r := rigged(t, fails, func(s *consume.Spec[order]) { s.Retry = b })
		for _, retries := range []int{12, 31, 32, 63, 64, 999} {
			m := first()
			m.Retries = retries
			if after := r.wants(m, everonce.Failed, consume.Retry).After; after < 30*time.Minute || after > time.Hour {
				t.Errorf("%+v: retry %d after %v", b, retries, after)
			}
		}
	}
}

// The pause doubles while the store cannot be reached, and begins anew once it could be.
func TestAPauseBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &downStore{Store: memstore.New(nil)}
		c := serving(t, store, done)
		in := make(chan consume.Delivery)
		served := make(chan error, 1)
		go func() {
			served <- c.Serve(t.Context(), in, &consume.Workers{Concurrency: 1, PauseMin: time.Second, PauseMax: time.Hour, Log: quiet})
		}()
		var asked [2]int64
		for i := range asked {
			store.down.Store(true)
			began := store.calls.Load()
			in <- message(fmt.Sprint("m-", i))
			time.Sleep(10 * time.Second) // at once, and after 1, 3 and 7 seconds
			synctest.Wait()
			asked[i] = store.calls.Load() - began
			store.down.Store(false)
			time.Sleep(time.Hour)
		}
		if asked[0] == 0 || asked[0] != asked[1] {
			t.Errorf("the store was asked %d times within ten seconds of the first failure, and %d times of the second", asked[0], asked[1])
		}
		close(in)
		if err := <-served; err != nil {
			t.Fatal(err)
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
				served <- c.Serve(ctx, in, &consume.Workers{Concurrency: 2, PauseMin: time.Second, PauseMax: time.Hour, Log: quiet})
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
