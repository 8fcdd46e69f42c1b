package kafkaonce_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/store/memstore"
)

// Trap: a rebalance in mid-batch runs again what was in hand. The first consumer has done the work, and is away from its group before it has
// committed: the second one gets the message. Without everonce the work is done twice, with it once.
func TestTrapARebalanceRunsAgainWhatWasInHand(t *testing.T) {
	t.Parallel()
	for _, guarded := range []bool{false, true} {
		t.Run(fmt.Sprint("guarded=", guarded), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1)
			store, effects := memstore.New(nil), make(chan string, 10)
			run := func() *running {
				work := func(_ context.Context, _ *consume.Message, o order) error {
					effects <- o.ID
					return nil
				}
				opts := short()
				opts.CommitEvery = time.Hour // only a rebalance would commit
				if guarded {
					return b.runOn(store, specOf(work), opts)
				}
				r := &running{t: t, verdicts: make(chan consume.Verdict, 10)}
				h, err := consume.NewNatural(consume.NaturalSpec[order]{Consumer: "naive", Key: consume.ProducerID(), Handle: func(ctx context.Context, m *consume.Message, o order) (bool, error) {
					return true, work(ctx, m, o)
				}, Observe: func(_ context.Context, _ *consume.Message, v consume.Verdict) { r.verdicts <- v }})
				if err != nil {
					t.Fatal(err)
				}
				return b.runWith(r, h, opts)
			}
			first := run()
			b.send(record("m-1", "a"))
			first.wants(everonce.Executed)
			b.evict()
			first.event(b, kafkaonce.Lost)
			first.stop()
			second := run()
			want := everonce.Executed
			if guarded {
				want = everonce.Replayed
			}
			for await(t, second.verdicts, "a verdict").Outcome != want {
			}
			n := len(effects)
			if guarded && n != 1 || !guarded && n < 2 {
				t.Errorf("the work was done %d times", n)
			}
		})
	}
}

// Trap: topic, partition and offset name a place in a log, not an operation. A producer that sends again gets another offset; a retry and a
// replay keep the first.
func TestTrapAnOffsetIsNoKeyOfAnOperation(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	spec := specOf(nothing)
	spec.Key = consume.BrokerID()
	r := b.run(spec, nil)
	b.send(record("m-1", "a"))
	b.send(record("m-1", "a"))
	r.wants(everonce.Executed, everonce.Executed)
}

// Trap: the record key names an entity. Alone, it takes the next event of the entity for a duplicate, or for a wrong use of the key.
func TestTrapARecordKeyIsAnEntity(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	spec := specOf(nothing)
	spec.Key = kafkaonce.RecordKey()
	r := b.run(spec, nil)
	b.send(record("placed", "order-7"), record("paid", "order-7"))
	r.wants(everonce.Executed, everonce.Mismatch)
	r.stop()
	b.group = newName()
	spec.Key = consume.Composite("order", kafkaonce.RecordKey(), consume.ProducerID())
	r = b.run(spec, nil)
	r.wants(everonce.Executed, everonce.Executed)
}

func TestRecordKeys(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]string{"order-7": "order-7", "\xff\x00": "hex:ff00", "hex:ff00": "hex:6865783a66663030", "": ""} {
		key, err := kafkaonce.RecordKey()(&consume.Message{Subject: subject})
		if key != want || errors.Is(err, consume.ErrNoKey) != (want == "") {
			t.Errorf("%q: %q, %v", subject, key, err)
		}
	}
}

// brokenStore is down until it is mended.
type brokenStore struct {
	everonce.Store
	mended chan struct{}
}

func (s brokenStore) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	select {
	case <-s.mended:
		return s.Store.Claim(ctx, req)
	default:
		return driver.ClaimResult{}, errors.New("the store is down")
	}
}

// While the store is down, for longer than the session's timeout, the consumer stays in its group, and nothing is committed.
func TestWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	opts := short()
	opts.SessionTimeout, opts.CommitEvery = time.Second, 10*time.Millisecond
	store := brokenStore{memstore.New(nil), make(chan struct{})}
	r := b.runOn(store, specOf(nothing), opts)
	b.send(record("m-1", "a"), record("m-2", "b"))
	for since := time.Now(); time.Since(since) < 3*opts.SessionTimeout; {
		if v := await(t, r.verdicts, "a verdict"); v.Disposition != consume.Keep {
			t.Fatalf("%v, %v", v.Outcome, v.Disposition)
		}
	}
	close(store.mended)
	for handled := 0; handled < 2; {
		if v := await(t, r.verdicts, "a verdict"); v.Outcome == everonce.Executed {
			handled++
		}
	}
	r.stop()
	for len(r.events) > 0 {
		if e := <-r.events; e.Kind == kafkaonce.Lost || e.Kind == kafkaonce.CommitFailed {
			t.Errorf("%+v", e)
		}
	}
	if at := b.committed(0); at != 2 {
		t.Errorf("%d is committed, want 2", at)
	}
}

// A consumer goes on when its broker was killed and is there again, and so do its retries.
func TestABrokerThatIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a broker of its own, twice")
	}
	t.Parallel()
	server := testserver.Start(t, "kafka")
	b := newBenchOn(t, server.URL, 1)
	var mu sync.Mutex
	tried := map[string]bool{}
	r := b.run(specOf(func(_ context.Context, _ *consume.Message, o order) error {
		mu.Lock()
		defer mu.Unlock()
		if !tried[o.ID] {
			tried[o.ID] = true
			return everonce.NotDone(errors.New("not yet"))
		}
		return nil
	}), short())
	b.send(record("m-1", "a"))
	r.wants(everonce.Failed, everonce.Executed)
	server.Restart()
	b.send(record("m-2", "a"))
	for executed := 0; executed < 1; {
		if v := await(t, r.verdicts, "a verdict"); v.Outcome == everonce.Executed {
			executed++
		}
	}
}
