package kafkaonce_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/store/memstore"
)

// Trap: after a rebalance in mid-batch, unfinished messages run again. The first consumer has done half of the topic,
// and is cut off before its commit: the second one gets all messages. Without everonce that half is done twice, with
// it once.
func TestTrapARebalanceRunsUnfinishedMessagesAgain(t *testing.T) {
	t.Parallel()
	for _, guarded := range []bool{false, true} {
		name := map[bool]string{false: "without everonce", true: "with everonce"}[guarded]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const messages = 10
			b := newBench(t, 1)
			store := memstore.New(nil)
			var mu sync.Mutex
			done := map[string]int{}
			run := func(most int, line *lines) *running {
				work := func(ctx context.Context, _ *consume.Message, o order) error {
					mu.Lock()
					defer mu.Unlock()
					if len(done) == most {
						mu.Unlock()
						<-ctx.Done() // the rest of the batch
						mu.Lock()
						return everonce.NotDone(context.Cause(ctx))
					}
					done[o.ID]++
					return nil
				}
				opts := short()
				opts.CommitEvery, opts.Workers.Concurrency, opts.Client = time.Hour, 1, []kgo.Opt{kgo.Dialer(line.dial)}
				if guarded {
					return b.runOn(store, specOf(work), opts)
				}
				r := &running{t: t, decisions: make(chan consume.Decision, 100)}
				h, err := consume.NewNatural(consume.NaturalSpec[order]{Consumer: "naive", Key: consume.ProducerID(), Handle: func(ctx context.Context, m *consume.Message, o order) (bool, error) {
					return true, work(ctx, m, o)
				}, Observe: func(_ context.Context, _ *consume.Message, v consume.Decision) { r.decisions <- v }})
				if err != nil {
					t.Fatal(err)
				}
				return b.runWith(r, h, opts)
			}
			var line lines
			first := run(messages/2, &line)
			for i := range messages {
				b.send(record(fmt.Sprint("m-", i), "a"))
			}
			for range messages / 2 {
				first.wants(everonce.Executed)
			}
			line.kill()
			b.evict()
			second := run(-1, &lines{})
			first.stop()
			for all := 0; all < messages; {
				await(t, second.decisions, "a decision")
				mu.Lock()
				all = len(done)
				mu.Unlock()
			}
			second.stop()
			twice := 0
			for _, n := range done {
				if n > 1 {
					twice++
				}
			}
			t.Logf("%s: %d messages, %d of them done twice", name, len(done), twice)
			if len(done) != messages || guarded != (twice == 0) {
				t.Errorf("%v", done)
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
		if v := await(t, r.decisions, "a decision"); v.Disposition != consume.Hold {
			t.Fatalf("%v, %v", v.Outcome, v.Disposition)
		}
	}
	close(store.mended)
	for handled := 0; handled < 2; {
		if v := await(t, r.decisions, "a decision"); v.Outcome == everonce.Executed {
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

// A consumer and its retries go on after its broker was killed and restarted.
func TestABrokerThatIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a separate broker, twice")
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
		if v := await(t, r.decisions, "a decision"); v.Outcome == everonce.Executed {
			executed++
		}
	}
}
