package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/drivertest"
	"github.com/everonce/everonce/store/redisstore"
)

// TestKilledServerKeepsWhatItAcknowledged kills the server with SIGKILL again and again while many callers work, each
// of them on keys that others deliver too. With appendfsync always no acknowledged write is lost, and nothing takes
// effect twice.
func TestKilledServerKeepsWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	const (
		kills   = 6
		callers = 16
		shared  = 4 // callers deliver the same key
	)
	p := startServer(t)
	store := newStore(t, p.client(t), &redisstore.Options{})
	r, err := everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{
		Codec: everonce.Raw(), StoreTimeout: 2 * time.Second, CompletionTimeout: time.Minute, Lease: time.Hour,
	})
	noErr(t, err)
	noErr(t, r.Ready(t.Context()))
	var (
		mu      sync.Mutex
		more    = sync.NewCond(&mu)
		effects = make(map[string]int)
		told    = make(map[string]string)
	)
	stop := make(chan struct{})
	var work sync.WaitGroup
	for caller := range callers {
		work.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("%d-%d", caller/shared, n)
				res, err := everonce.Do(t.Context(), r, everonce.Key{Scope: "crash", ID: id}, func(context.Context, *everonce.Attempt) (string, error) {
					mu.Lock()
					defer mu.Unlock()
					effects[id]++
					return fmt.Sprintf("effect %d of %s", effects[id], id), nil
				})
				switch {
				case err == nil:
					mu.Lock()
					told[id] = res.Value
					mu.Unlock()
					more.Broadcast()
				case !errors.Is(err, driver.ErrStore) && !errors.Is(err, everonce.ErrInProgress):
					t.Errorf("%s: %v, %v", id, res.Outcome, err)
				}
			}
		})
	}
	progress := func() {
		mu.Lock()
		defer mu.Unlock()
		for want := len(told) + 100; len(told) < want; {
			more.Wait()
		}
	}
	for range kills {
		progress()
		p.kill(t)
		p.restart(t)
	}
	progress()
	close(stop)
	work.Wait()

	for id, value := range told {
		res, err := everonce.Do(t.Context(), r, everonce.Key{Scope: "crash", ID: id}, func(context.Context, *everonce.Attempt) (string, error) {
			t.Errorf("%s ran again, though its result had been acknowledged", id)
			return "", nil
		})
		if err != nil || res.Outcome != everonce.Replayed || res.Value != value {
			t.Errorf("%s: %v %q, %v; want the replay of %q", id, res.Outcome, res.Value, err, value)
		}
	}
	for id, n := range effects {
		if n > 1 {
			t.Errorf("%s took effect %d times", id, n)
		}
	}
	t.Logf("%d operations, %d of them acknowledged, %d kills", len(effects), len(told), kills)
}

// TestConformanceAfterACrash holds the store to the suite on a server that was killed: it knows no script any more, and
// has read its records from the disk.
func TestConformanceAfterACrash(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	client, peer := p.client(t), p.client(t)
	before := newStore(t, client, &redisstore.Options{KeyPrefix: "before:"})
	rec := claimed(t, before, testKey)
	_, err := before.SaveStep(t.Context(), stepOf(&rec, "mail"))
	noErr(t, err)
	p.kill(t)
	p.restart(t)
	reconnected(t, client)
	reconnected(t, peer)
	_, err = before.Complete(t.Context(), completionOf(&rec, "receipt"))
	noErr(t, err)
	res, err := before.Claim(t.Context(), claimOf(testKey))
	if got := decided(t, res, err, driver.DecideReplay).Record; string(got.Result.Data) != "receipt" || got.Token != rec.Token {
		t.Errorf("replayed %q of token %d", got.Result.Data, got.Token)
	}
	drivertest.Run(t, factory(t, client, peer, redisstore.Options{}), variant())
}
