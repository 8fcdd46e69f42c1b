package consume_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/janitor"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/store/memstore"
)

// The requirements of the practice list on message handlers and consumers, line by line, each with a test of that
// name. The same tests on every store, against its real server, are in internal/e2e/consumers; tests of SQL's natural
// shapes are in examples/natural, and tests of Redis in store/redisstore. docs/reference/proofs.md has the whole list.

// bank counts bookings, by the producer's ID.
type bank struct {
	mu     sync.Mutex
	booked map[string]int
	before func(ctx context.Context, id string) error // may be nil
}

func (b *bank) book(ctx context.Context, id string) error {
	b.mu.Lock()
	before := b.before
	b.mu.Unlock()
	if before != nil {
		if err := before(ctx, id); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.booked[id]++
	return nil
}

func (b *bank) count(id string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.booked[id]
}

// practised is a consumer, in the mode of its name.
type practised struct {
	c     *consume.Consumer
	bank  *bank
	count func(id string) int
}

// inBothModes runs a test of the practice list on a guarded consumer, and on a transactional one. before is called by the
// handler before it books.
func inBothModes(t *testing.T, before func(ctx context.Context, id string) error, test func(t *testing.T, p *practised)) {
	t.Helper()
	t.Run("guarded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &bank{booked: map[string]int{}, before: before}
			c := rigged(t, func(ctx context.Context, m *consume.Message, _ order) error { return b.book(ctx, m.ID) }, nil).c
			test(t, &practised{c, b, b.count})
		})
	})
	t.Run("transactional", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLedger()
			b := &bank{booked: map[string]int{}, before: before}
			c := booking(t, l, func(s *txSpec) {
				s.Handle = func(ctx context.Context, tx *ledgerTx, m *consume.Message, _ order) error {
					if err := b.book(ctx, m.ID); err != nil {
						return err
					}
					return tx.Add(m.ID)
				}
			})
			test(t, &practised{c, b, l.row})
		})
	})
}

func (p *practised) handle(t *testing.T, id string) consume.Decision {
	t.Helper()
	return p.c.Handle(t.Context(), message(id).m)
}

func (p *practised) wantBooked(t *testing.T, id string, want int) {
	t.Helper()
	if got := p.count(id); got != want {
		t.Errorf("%s was booked %d times, want %d", id, got, want)
	}
}

// Message handlers: the tests.

func TestPracticeOnceForThreeSends(t *testing.T) {
	inBothModes(t, nil, func(t *testing.T, p *practised) {
		for range 3 {
			if v := p.handle(t, "m-1"); v.Disposition != consume.Ack {
				t.Error(v)
			}
		}
		p.wantBooked(t, "m-1", 1)
		if n := p.bank.count("m-1"); n != 1 {
			t.Errorf("the handler ran %d times", n)
		}
	})
}

// A message has no response except its decision: the duplicate gets the same one as the first, marked as replayed.
func TestPracticeSameResultOnTheDuplicateMarked(t *testing.T) {
	refuse := func(_ context.Context, id string) error {
		if id == "refused" {
			return everonce.Permanent("no_such_account", nil, nil)
		}
		return nil
	}
	inBothModes(t, refuse, func(t *testing.T, p *practised) {
		for id, want := range map[string][2]everonce.Outcome{
			"m-1": {everonce.Executed, everonce.Replayed}, "refused": {everonce.Rejected, everonce.Rejected},
		} {
			first, second := p.handle(t, id), p.handle(t, id)
			if first.Outcome != want[0] || second.Outcome != want[1] {
				t.Errorf("%s: %v, then %v; want %v", id, first.Outcome, second.Outcome, want)
			}
			if first.Disposition != second.Disposition || first.Death.Reason != second.Death.Reason || first.Death.Detail != second.Death.Detail || first.KeyHash != second.KeyHash {
				t.Errorf("%s: %+v, then %+v", id, first, second)
			}
		}
	})
}

// A failure removes the lock: the retry is neither in progress nor a duplicate.
func TestPracticeRetryAfterFailureRunsAgain(t *testing.T) {
	tries := 0
	fail := func(context.Context, string) error {
		if tries++; tries%3 != 0 { // two failures, in each mode
			return everonce.NotDone(errors.New("the bank is closed"))
		}
		return nil
	}
	inBothModes(t, fail, func(t *testing.T, p *practised) {
		for _, want := range []consume.Disposition{consume.Retry, consume.Retry, consume.Ack, consume.Ack} {
			if v := p.handle(t, "m-1"); v.Disposition != want {
				t.Errorf("%v (%v), want %v", v.Disposition, v.Err, want)
			}
		}
		p.wantBooked(t, "m-1", 1)
	})
}

// atOnce handles a message several times while the first is in its handler, and returns the decisions, the first's at last.
func (p *practised) atOnce(t *testing.T, n int, begun <-chan struct{}, end chan<- struct{}) []consume.Decision {
	t.Helper()
	decisions := make(chan consume.Decision, n)
	go func() { decisions <- p.handle(t, "m-1") }()
	<-begun
	for range n - 1 {
		go func() { decisions <- p.handle(t, "m-1") }()
	}
	synctest.Wait()
	close(end)
	all := make([]consume.Decision, 0, n)
	for range n {
		all = append(all, <-decisions)
	}
	return all
}

// concurrently wants one of n deliveries at once processed, and the others to come again, without counting.
func concurrently(t *testing.T, n int) {
	t.Helper()
	var begun, end chan struct{}
	slow := func(context.Context, string) error {
		close(begun)
		<-end
		time.Sleep(time.Second)
		return nil
	}
	inBothModes(t, func(ctx context.Context, id string) error { return slow(ctx, id) }, func(t *testing.T, p *practised) {
		begun, end = make(chan struct{}), make(chan struct{})
		said := map[consume.Disposition]int{}
		for _, v := range p.atOnce(t, n, begun, end) {
			said[v.Disposition]++
			if v.Disposition == consume.Defer && v.After <= 0 {
				t.Errorf("it is to come again after %v", v.After)
			}
		}
		if want := map[consume.Disposition]int{consume.Ack: 1, consume.Defer: n - 1}; !maps.Equal(said, want) {
			t.Errorf("%v, want %v", said, want)
		}
		if v := p.handle(t, "m-1"); v.Outcome != everonce.Replayed {
			t.Errorf("it came again and was %v", v.Outcome)
		}
		p.wantBooked(t, "m-1", 1)
	})
}

func TestPracticeThreeConcurrentOneEffect(t *testing.T) { concurrently(t, 3) }

func TestPracticeFiveConcurrentDuplicatesOfASlowHandlerOneProcessed(t *testing.T) { concurrently(t, 5) }

func TestPracticeDifferentMessagesBothRun(t *testing.T) {
	inBothModes(t, nil, func(t *testing.T, p *practised) {
		for _, id := range []string{"m-1", "m-2", "m-1", "m-2"} {
			p.handle(t, id)
		}
		p.wantBooked(t, "m-1", 1)
		p.wantBooked(t, "m-2", 1)
	})
}

// The store fails at 30 % of its calls and the gateway at 20 %, before or after they took hold; of a hundred attempts, one
// has the effect.
func TestPracticeChaosOneHundredAttemptsEffectOnce(t *testing.T) {
	const attempts = 100
	for seed := range uint64(20) {
		for _, policy := range []everonce.Policy{everonce.Reexecute, everonce.Reconcile} {
			synctest.Test(t, func(t *testing.T) {
				gateway := oncetest.NewGateway(&oncetest.GatewayOptions{Plan: oncetest.Seeded(seed, 0.2), Deduplicates: policy == everonce.Reexecute})
				recv, err := everonce.NewReceiver(oncetest.FaultStore(memstore.New(nil), oncetest.Seeded(seed, 0.3)), policy, nil)
				if err != nil {
					t.Fatal(err)
				}
				spec := consume.Spec[order]{
					Consumer: "billing", Key: consume.ProducerID(),
					Handle: func(ctx context.Context, m *consume.Message, _ order) error {
						a, _ := everonce.AttemptFrom(ctx)
						_, err := gateway.Call(ctx, a.DownstreamKey("charge"), m.ID)
						return err
					},
				}
				if policy == everonce.Reconcile {
					spec.Reconcile = isCharged(gateway)
				}
				c, err := consume.New(recv, spec)
				if err != nil {
					t.Fatal(err)
				}
				acks := 0
				for range attempts {
					v := c.Handle(t.Context(), message("m-1").m)
					if v.Disposition == consume.Ack {
						acks++
					} else {
						time.Sleep(max(v.After, time.Second))
					}
					if acks > 0 != (v.Disposition == consume.Ack) && v.Disposition != consume.Hold {
						t.Errorf("seed %d, %v: after %d acknowledgements %v (%v)", seed, policy, acks, v.Disposition, v.Err)
					}
				}
				if n := len(gateway.Requested("m-1")); n != 1 || acks < attempts/4 {
					t.Errorf("seed %d, %v: %d effects in %d attempts, %d of them acknowledged", seed, policy, n, attempts, acks)
				}
			})
		}
	}
}

// Message handlers: states, and the template.

// A message is absent, processing, and completed; or absent again after a failure. A look does not claim.
func TestPracticeStatesProcessingAndCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, end := make(chan struct{}), make(chan error)
		r := rigged(t, func(context.Context, *consume.Message, order) error { begun <- struct{}{}; return <-end }, nil)
		key, err := r.c.KeyOf(first())
		if err != nil {
			t.Fatal(err)
		}
		state := func(want error) {
			t.Helper()
			if _, err := everonce.Lookup[struct{}](t.Context(), r.recv, key); !errors.Is(err, want) && err != want { //nolint:errorlint // nil is one
				t.Errorf("%v, want %v", err, want)
			}
		}
		decisions := make(chan consume.Decision)
		handle := func() { decisions <- r.c.Handle(t.Context(), first()) }
		state(everonce.ErrNotFound)
		go handle()
		<-begun
		state(everonce.ErrInProgress)
		end <- everonce.NotDone(errors.New("the bank is closed"))
		<-decisions
		state(everonce.ErrReleased)
		go handle()
		<-begun
		end <- nil
		<-decisions
		if rec, err := r.store.Get(t.Context(), driver.GetRequest{ID: r.recv.RecordID(key)}); err != nil || rec.Record.State != driver.StateCompleted {
			t.Errorf("%v, %v; want completed", rec.Record.State, err)
		}
	})
}

// The handler's template: a known message is skipped and marked, a message in progress is reported as such, a new one
// is completed. A failure releases the key, and is retried if that can help, else kept as the answer.
func TestPracticeHandlerTemplate(t *testing.T) {
	for name, tc := range map[string]struct {
		err           error
		first, second string
	}{
		"processed":         {nil, "executed ack", "replayed ack"},
		"retryable":         {everonce.NotDone(errors.New("the bank is closed")), "failed retry", "failed retry"},
		"not to be retried": {everonce.Permanent("no_such_account", nil, nil), "rejected set_aside", "rejected set_aside"},
		"unknown (Refuse)":  {errors.New("the line went dead"), "unknown set_aside", "unknown set_aside"},
	} {
		ran := 0
		r := rigged(t, func(context.Context, *consume.Message, order) error { ran++; return tc.err }, nil)
		for i, want := range []string{tc.first, tc.second} {
			v := r.c.Handle(t.Context(), first())
			if got := fmt.Sprint(v.Outcome, " ", v.Disposition); got != want {
				t.Errorf("%s, delivery %d: %s, want %s", name, i+1, got, want)
			}
		}
		if again := name == "retryable"; again != (ran == 2) {
			t.Errorf("%s: it ran %d times", name, ran)
		}
	}
}

// Message handlers: idempotent effects, and effects that need a record.

// Set, upsert, delete by ID and an absolute quantity may be handled any number of times.
func TestPracticeNaturalShapes(t *testing.T) {
	type row = map[string]int
	for name, handle := range map[string]func(db row) bool{
		"set":               func(db row) bool { was := db["7"]; db["7"] = 100; return was != 100 },
		"upsert":            func(db row) bool { _, known := db["8"]; db["8"] = 1; return !known },
		"delete by ID":      func(db row) bool { _, known := db["7"]; delete(db, "7"); return known },
		"absolute quantity": func(db row) bool { was := db["stock"]; db["stock"] = 3; return was != 3 },
	} {
		db := row{"7": 1, "stock": 9}
		c := natural(t, func(context.Context, *consume.Message, order) (bool, error) { return handle(db), nil })
		var after row
		var outcomes []everonce.Outcome
		for range 3 {
			outcomes = append(outcomes, c.Handle(t.Context(), first()).Outcome)
			if after == nil {
				after = maps.Clone(db)
			}
		}
		if !maps.Equal(db, after) || !slices.Equal(outcomes, []everonce.Outcome{everonce.Executed, everonce.Replayed, everonce.Replayed}) {
			t.Errorf("%s: %v, and then %v; outcomes %v", name, after, db, outcomes)
		}
	}
}

// An increment, an append and an external effect are not: each send is one more, unless a record says otherwise.
func TestPracticeIncrementAppendAndExternalEffectNeedARecord(t *testing.T) {
	type world struct {
		balance int
		items   []string
		mails   int
	}
	for name, effect := range map[string]func(*world){
		"increment":       func(w *world) { w.balance += 100 },
		"append":          func(w *world) { w.items = append(w.items, "book") },
		"external effect": func(w *world) { w.mails++ },
	} {
		var bare, guarded world
		without := natural(t, func(context.Context, *consume.Message, order) (bool, error) { effect(&bare); return true, nil })
		with := newConsumer(t, func(context.Context, *consume.Message, order) error { effect(&guarded); return nil })
		for range 3 {
			without.Handle(t.Context(), first())
			with.Handle(t.Context(), first())
		}
		size := func(w world) int { return w.balance/100 + len(w.items) + w.mails }
		if size(bare) != 3 || size(guarded) != 1 {
			t.Errorf("%s: %+v without a record, %+v with one", name, bare, guarded)
		}
	}
}

// Consumers.

// acked is a delivery that looks at the ledger when it is acknowledged.
type acked struct {
	*delivery
	look func()
}

func (a acked) Ack(ctx context.Context) error {
	a.look()
	return a.delivery.Ack(ctx)
}

// Record and effect are one commit, and the acknowledgement (on Kafka: the offset) comes after it. If that is lost,
// the message comes again and is skipped.
func TestPracticeRecordInTheHandlersTransactionAcknowledgedAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		c := booking(t, l, nil)
		lost := message("m-1")
		lost.fails = []error{fmt.Errorf("closed: %w", consume.ErrGone)}
		again := message("m-1")
		looked := 0
		look := func() {
			looked++
			if l.row("m-1") != 1 || len(l.records) != 1 || l.commits != 1 {
				t.Errorf("acknowledged with %d rows and %d records in %d commits", l.row("m-1"), len(l.records), l.commits)
			}
		}
		in := make(chan consume.Delivery, 2)
		in <- acked{lost, look}
		in <- acked{again, look}
		close(in)
		if err := c.Serve(t.Context(), in, &consume.Workers{Concurrency: 1, Log: quiet}); err != nil {
			t.Fatal(err)
		}
		if len(lost.ended) != 0 || !slices.Equal(again.ended, []string{"ack"}) || looked != 2 {
			t.Errorf("ended as %v and %v, looked %d times", lost.ended, again.ended, looked)
		}
	})
}

// The result is "processed" or "skipped"; a skip is counted, and is no error.
func TestPracticeSkipIsCountedAndIsNoError(t *testing.T) {
	counted := map[string]int{}
	c := booking(t, newLedger(), func(s *txSpec) {
		s.Observe = func(_ context.Context, _ *consume.Message, v consume.Decision) {
			if v.Err != nil {
				t.Error(v.Err)
			}
			switch v.Outcome {
			case everonce.Executed:
				counted["processed"]++
			case everonce.Replayed, everonce.Expired, everonce.Elided:
				counted["skipped"]++
			default:
				t.Errorf("%v", v.Outcome)
			}
		}
	})
	for _, id := range []string{"a", "b", "a", "a", "c", "b"} {
		c.Handle(t.Context(), message(id).m)
	}
	if want := map[string]int{"processed": 3, "skipped": 3}; !maps.Equal(counted, want) {
		t.Errorf("%v, want %v", counted, want)
	}
}

// An hourly cleanup removes expired records, and no others.
func TestPracticeHourlyCleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		c := serving(t, store, done)
		ctx, stop := context.WithCancel(t.Context())
		j, err := janitor.New(store, &janitor.Options{Every: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		stopped := make(chan error, 1)
		go func() { stopped <- j.Run(ctx) }()
		records := func() (n int) {
			page, err := store.List(t.Context(), driver.ListRequest{Limit: 100})
			if err != nil {
				t.Error(err)
			}
			return len(page.Records)
		}
		for i := range 20 {
			c.Handle(t.Context(), message(fmt.Sprint("m-", i)).m)
		}
		time.Sleep(everonce.ForQueue().Total() - time.Minute)
		if n := records(); n != 20 {
			t.Errorf("%d records before their time is over, want 20", n)
		}
		time.Sleep(2 * time.Hour)
		if n := records(); n != 0 {
			t.Errorf("%d records an hour after, want none", n)
		}
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

// Memory only, never: after a restart every duplicate is handled again.
func TestPracticeMemoryOnlyNever(t *testing.T) {
	handled := 0
	disk := newLedger()
	for process := range 2 {
		inMemory := newConsumer(t, func(context.Context, *consume.Message, order) error { handled++; return nil })
		onDisk := booking(t, disk, nil)
		inMemory.Handle(t.Context(), first())
		if v := onDisk.Handle(t.Context(), first()); process == 1 && v.Outcome != everonce.Replayed {
			t.Errorf("after the restart: %v", v.Outcome)
		}
	}
	if handled != 2 || disk.row("m-1") != 1 {
		t.Errorf("handled %d times in memory, and %d times with a database", handled, disk.row("m-1"))
	}
}
