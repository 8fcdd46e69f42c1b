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
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

type txSpec = consume.TxSpec[order, *ledgerTx]

// booking is a consumer that counts each message once, in the row of its ID.
func booking(t *testing.T, l *ledger, change func(*txSpec)) *consume.Consumer {
	t.Helper()
	recv, err := everonce.NewTxReceiver[*ledgerTx](l, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec := txSpec{
		Consumer: "billing", Key: consume.ProducerID(),
		Handle: func(_ context.Context, tx *ledgerTx, m *consume.Message, _ order) error { return tx.Add(m.ID) },
	}
	if change != nil {
		change(&spec)
	}
	c, err := consume.NewTx(recv, spec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func messages(ids ...string) []*consume.Message {
	ms := make([]*consume.Message, len(ids))
	for i, id := range ids {
		ms[i] = message(id).m
	}
	return ms
}

func dispositions(decisions []consume.Decision) string {
	said := make([]string, len(decisions))
	for i, v := range decisions {
		if said[i] = v.Disposition.String(); v.Disposition == consume.SetAside {
			said[i] += " " + string(v.Death.Reason)
		}
	}
	return strings.Join(said, ", ")
}

// A batch is one commit, and at the next delivery nothing of it is done again.
func TestABatchIsOneTransaction(t *testing.T) {
	l := newLedger()
	observed := 0
	c := booking(t, l, func(s *txSpec) {
		s.Observe = func(context.Context, *consume.Message, consume.Decision) { observed++ }
	})
	for range 2 {
		if got := dispositions(c.HandleBatch(t.Context(), messages("a", "b", "c", "b"))); got != "ack, ack, ack, ack" {
			t.Error(got)
		}
	}
	if l.row("a") != 1 || l.row("b") != 1 || l.row("c") != 1 || l.commits != 1 || observed != 8 {
		t.Errorf("booked %d, %d and %d times in %d commits; %d decisions were observed", l.row("a"), l.row("b"), l.row("c"), l.commits, observed)
	}
}

// Each message of a batch gets its own decision: bad messages leave the batch first, and a failure does not fail the
// neighbours. Handling them one by one gives the same decisions.
func TestEachMessageOfABatchHasItsVerdict(t *testing.T) {
	fails := func(m *consume.Message) error {
		switch m.ID {
		case "fails":
			return everonce.NotDone(errors.New("later"))
		case "exhausted":
			return errors.New("again")
		case "refused":
			return everonce.Permanent("no_such_account", nil, nil)
		case "panics":
			panic("no")
		}
		return nil
	}
	for name, change := range map[string]func(*txSpec){
		"one after the other": func(s *txSpec) {
			s.Handle = func(_ context.Context, tx *ledgerTx, m *consume.Message, _ order) error {
				return errors.Join(tx.Add(m.ID), fails(m))
			}
		},
		"together": func(s *txSpec) {
			s.Handle = nil
			s.HandleAll = func(_ context.Context, tx *ledgerTx, batch []consume.Received[order]) error {
				for _, r := range batch {
					if err := errors.Join(tx.Add(r.Message.ID), fails(r.Message)); err != nil {
						return err
					}
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			c := booking(t, l, func(s *txSpec) { s.MaxBody = 100; change(s) })
			if v := c.Handle(t.Context(), &consume.Message{ID: "used", Body: []byte(`{"ID":"1"}`)}); v.Disposition != consume.Ack {
				t.Fatal(v.Disposition, v.Err)
			}
			ms := messages("a", "", "fails", "b", "refused", "garbage", "large", "used", "panics", "exhausted", "c")
			ms[5].Body = []byte("{")
			ms[6].Body = make([]byte, 101)
			ms[9].Retries = 10
			decisions := c.HandleBatch(t.Context(), ms)
			const want = "ack, set_aside no_key, retry, ack, set_aside rejected, set_aside undecodable, set_aside too_large, set_aside mismatch, retry, set_aside exhausted, ack"
			if got := dispositions(decisions); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			for i, m := range ms {
				if key, err := c.KeyOf(m); err == nil && m.ID != "large" && decisions[i].KeyHash != key.RecordID().Short() {
					t.Errorf("the decision on %q names the key %q", m.ID, decisions[i].KeyHash)
				}
				wantRow := 0
				if decisions[i].Disposition == consume.Ack || m.ID == "used" {
					wantRow = 1
				}
				if got := l.row(m.ID); got != wantRow {
					t.Errorf("%q was booked %d times, want %d", m.ID, got, wantRow)
				}
			}
			if l.commits > 8 {
				t.Errorf("%d commits: the batch fell apart", l.commits)
			}
		})
	}
}

// A message that another consumer has is in progress in the batch: it is deferred, without using up a retry.
func TestABusyMessageLeavesTheBatch(t *testing.T) {
	l := newLedger()
	c := booking(t, l, nil)
	other := booking(t, l, func(s *txSpec) {
		s.Handle = func(ctx context.Context, tx *ledgerTx, m *consume.Message, _ order) error {
			if got := dispositions(c.HandleBatch(context.WithoutCancel(t.Context()), messages("a", "busy", "b"))); got != "ack, defer, ack" {
				t.Error(got)
			}
			return tx.Add(m.ID)
		}
	})
	if v := other.Handle(t.Context(), messages("busy")[0]); v.Disposition != consume.Ack {
		t.Error(v.Disposition, v.Err)
	}
	if l.row("busy") != 1 || l.row("a") != 1 {
		t.Errorf("booked %d and %d times", l.row("busy"), l.row("a"))
	}
}

// Nothing is acknowledged that the store could not take, and a guarded consumer handles a batch one by one.
func TestABatchWhileTheStoreIsDown(t *testing.T) {
	l := newLedger()
	l.down.Store(true)
	c := booking(t, l, nil)
	if got := dispositions(c.HandleBatch(t.Context(), messages("a", "", "b"))); got != "hold, set_aside no_key, hold" {
		t.Error(got)
	}
	l.down.Store(false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := dispositions(c.HandleBatch(ctx, messages("a", "b"))); got != "hold, hold" {
		t.Error(got)
	}
	guarded := serving(t, memstore.New(nil), func(_ context.Context, m *consume.Message, _ order) error {
		if m.ID == "panics" {
			panic("no")
		}
		return nil
	})
	if got := dispositions(guarded.HandleBatch(t.Context(), messages("a", "panics", "a"))); got != "ack, set_aside unknown, ack" {
		t.Error(got)
	}
}

func TestBatchOptionsAreChecked(t *testing.T) {
	c := booking(t, newLedger(), nil)
	for _, w := range []consume.Workers{{Batch: -1}, {Batch: driver.MaxBatch + 1}, {BatchDelay: -1}} {
		if err := c.CheckWorkers(&w); !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("%+v: %v", w, err)
		}
	}
	guarded := serving(t, memstore.New(nil), func(context.Context, *consume.Message, order) error { return nil })
	if err := guarded.Serve(t.Context(), nil, &consume.Workers{Batch: 2}); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Errorf("a batch of a guarded consumer: %v", err)
	}
	if err := errors.Join(c.CheckWorkers(&consume.Workers{Batch: driver.MaxBatch}), guarded.CheckWorkers(nil)); err != nil {
		t.Error(err)
	}
	recv, err := everonce.NewTxReceiver[*ledgerTx](newLedger(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := consume.NewTx(recv, txSpec{Consumer: "billing", Key: consume.ProducerID()}); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Error(err)
	}
	spec := txSpec{Consumer: "billing", Key: consume.ProducerID(), Handle: func(context.Context, *ledgerTx, *consume.Message, order) error { return nil }}
	if _, err := consume.NewTx(nil, spec); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Errorf("no receiver: %v", err)
	}
}

// The workers take the available messages, up to a batch, wait a little for more, and answer each delivery separately.
func TestWorkersCollectBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		var mu sync.Mutex
		var sizes []int
		batches := func() []int {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(sizes)
		}
		c := booking(t, l, func(s *txSpec) {
			s.HandleAll = func(_ context.Context, tx *ledgerTx, batch []consume.Received[order]) error {
				mu.Lock()
				sizes = append(sizes, len(batch))
				mu.Unlock()
				for _, r := range batch {
					if err := tx.Add(r.Message.ID); err != nil {
						return err
					}
				}
				return nil
			}
		})
		in := make(chan consume.Delivery)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := c.Serve(t.Context(), in, &consume.Workers{Batch: 10, BatchDelay: time.Second, Concurrency: 3, Log: quiet}); err != nil {
				t.Error(err)
			}
		}()
		var sent []*delivery
		send := func(n int) {
			for range n {
				d := message(fmt.Sprint("m-", len(sent)))
				sent = append(sent, d)
				in <- d
			}
		}
		send(10)
		synctest.Wait()
		if got := batches(); !slices.Equal(got, []int{10}) {
			t.Errorf("batches of %v, want one of 10 at once", got)
		}
		send(4)
		synctest.Wait()
		if got := batches(); len(got) != 1 {
			t.Errorf("batches of %v before the time is over", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := batches(); !slices.Equal(got, []int{10, 4}) {
			t.Errorf("batches of %v, want 10 and 4", got)
		}
		send(1)
		close(in)
		<-done
		for i, d := range sent {
			if !slices.Equal(d.ended, []string{"ack"}) || l.row(d.m.ID) != 1 {
				t.Errorf("delivery %d ended as %v, booked %d times", i, d.ended, l.row(d.m.ID))
			}
		}
	})
}

// While the store is down a batch is held; wrong messages in it are still answered.
func TestABatchIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		l.down.Store(true)
		c := booking(t, l, nil)
		in := make(chan consume.Delivery, 3)
		ds := []*delivery{message("a"), message(""), message("b")}
		for _, d := range ds {
			in <- d
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := c.Serve(t.Context(), in, &consume.Workers{Batch: 10, Log: quiet}); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := l.begun.Load(); n > 16 { // after 1, 3, 7, 15, 31 and 63 seconds, and then every minute
			t.Errorf("the store was asked %d times: the pauses do not grow", n)
		}
		if len(ds[0].ended) != 0 || len(ds[2].ended) != 0 || !slices.Equal(ds[1].ended, []string{"set_aside no_key"}) {
			t.Errorf("they ended as %v, %v and %v", ds[0].ended, ds[1].ended, ds[2].ended)
		}
		l.down.Store(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		close(in)
		<-done
		if !slices.Equal(ds[0].ended, []string{"ack"}) || !slices.Equal(ds[2].ended, []string{"ack"}) || l.commits != 1 {
			t.Errorf("they ended as %v and %v, in %d commits", ds[0].ended, ds[2].ended, l.commits)
		}
	})
}

// A handler that ends its goroutine, and one that panics, end their own message only.
func TestAHandlerThatEndsItsGoroutineInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		c := booking(t, l, func(s *txSpec) {
			s.Handle = func(_ context.Context, tx *ledgerTx, m *consume.Message, _ order) error {
				switch m.ID {
				case "exits":
					runtime.Goexit()
				case "panics":
					panic("no")
				}
				return tx.Add(m.ID)
			}
		})
		in := make(chan consume.Delivery, 6)
		ds := []*delivery{message("a"), message("exits"), message("b"), message("exits"), message("panics"), message("c")}
		for _, d := range ds {
			in <- d
		}
		close(in)
		if err := c.Serve(t.Context(), in, &consume.Workers{Batch: 10, Concurrency: 1, Log: quiet}); err != nil {
			t.Fatal(err)
		}
		for _, d := range ds {
			want := []string{"ack"}
			if d.m.ID == "exits" || d.m.ID == "panics" {
				want = []string{"retry true"}
			}
			if !slices.Equal(d.ended, want) {
				t.Errorf("%s ended as %v, want %v", d.m.ID, d.ended, want)
			}
		}
		if l.row("a") != 1 || l.row("b") != 1 || l.row("c") != 1 {
			t.Errorf("booked %d, %d and %d times", l.row("a"), l.row("b"), l.row("c"))
		}
	})
}

// Batches keep the order of messages with equal names.
func TestOrderInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		seen := map[string][]string{}
		var all [][]string
		c := booking(t, l, func(s *txSpec) {
			s.Handle = func(_ context.Context, tx *ledgerTx, m *consume.Message, _ order) error {
				l.mu.Lock()
				defer l.mu.Unlock()
				seen[m.Source] = append(seen[m.Source], m.ID)
				return tx.Add(m.ID)
			}
		})
		in := make(chan consume.Delivery, 60)
		want := map[string][]string{}
		for i := range 60 {
			d := message(fmt.Sprint("m-", 99-i))
			d.m.Source = fmt.Sprint("customer-", i%7)
			want[d.m.Source] = append(want[d.m.Source], d.m.ID)
			in <- d
		}
		close(in)
		err := c.Serve(t.Context(), in, &consume.Workers{Batch: 5, Concurrency: 3, Order: func(m *consume.Message) string { return m.Source }, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		for source, ids := range want {
			all = append(all, seen[source])
			if !slices.Equal(seen[source], ids) {
				t.Errorf("%s: %v, want %v", source, seen[source], ids)
			}
		}
		if len(all) != 7 {
			t.Errorf("%d customers", len(all))
		}
	})
}

// A lane in which nothing comes holds up no batch of another's.
func TestOrderInBatchesWithoutWaitingForOtherLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := booking(t, newLedger(), nil)
		in := make(chan consume.Delivery)
		served := make(chan error, 1)
		go func() { served <- c.Serve(t.Context(), in, &consume.Workers{Batch: 3, Order: bySource, Log: quiet}) }()
		for i := range 16 {
			d := from(fmt.Sprint("customer-", i), fmt.Sprint("m-", i))
			in <- d
			time.Sleep(time.Minute)
			synctest.Wait()
			if !slices.Equal(d.how(), []string{"ack"}) {
				t.Fatalf("%s ended as %v", d.m.ID, d.how())
			}
		}
		close(in)
		if err := <-served; err != nil {
			t.Fatal(err)
		}
	})
}

// More messages than a batch has are handled in several, and each has its own decision.
func TestMoreThanOneBatch(t *testing.T) {
	l := newLedger()
	ids := make([]string, driver.MaxBatch+2)
	for i := range ids {
		ids[i] = fmt.Sprint("m-", i)
	}
	ids[0], ids[driver.MaxBatch+1] = "", "m-1" // the same as before
	decisions := booking(t, l, nil).HandleBatch(t.Context(), messages(ids...))
	for i, v := range decisions {
		want := everonce.Executed
		switch i {
		case 0:
			want = 0
		case driver.MaxBatch + 1:
			want = everonce.Replayed
		}
		if v.Outcome != want {
			t.Fatalf("message %d: %v after %v, %v; want %v", i, v.Disposition, v.Outcome, v.Err, want)
		}
	}
	if l.row("m-1") != 1 || l.commits != 2 {
		t.Errorf("%d times in %d commits", l.row("m-1"), l.commits)
	}
}

// A handled message is acknowledged although the broker does not accept the dead letter of an earlier message in the
// batch.
func TestAcknowledgementsOfABatchGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		poison, good := message(""), message("a")
		poison.fails = []error{errDown, errDown, errDown}
		in := make(chan consume.Delivery, 2)
		in <- poison
		in <- good
		close(in)
		served := make(chan error, 1)
		go func() {
			served <- booking(t, newLedger(), nil).Serve(t.Context(), in, &consume.Workers{Batch: 2, Log: quiet})
		}()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if len(poison.how()) != 0 || !slices.Equal(good.how(), []string{"ack"}) {
			t.Errorf("ended as %v and %v", poison.how(), good.how())
		}
		if err := <-served; err != nil || !slices.Equal(poison.ended, []string{"set_aside no_key"}) {
			t.Errorf("the poison ended as %v, %v", poison.ended, err)
		}
	})
}

// A batch that panics outside of a handler, in a store, has failed, and the process goes on: only the log shows the
// panic.
func TestABatchThatPanics(t *testing.T) {
	l := newLedger()
	l.fails = func(string) error { panic("no") }
	in := make(chan consume.Delivery, 2)
	ds := []*delivery{message("a"), message("b")}
	in <- ds[0]
	in <- ds[1]
	close(in)
	var logs bytes.Buffer
	if err := booking(t, l, nil).Serve(t.Context(), in, &consume.Workers{Batch: 2, Concurrency: 1, Log: slog.New(slog.NewTextHandler(&logs, nil))}); err != nil {
		t.Fatal(err)
	}
	if text := logs.String(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "panic=no") || !strings.Contains(text, "TestABatchThatPanics") {
		t.Errorf("the log is %s", text)
	}
	for _, d := range ds {
		if !slices.Equal(d.how(), []string{"retry true"}) {
			t.Errorf("%s ended as %v", d.m.ID, d.how())
		}
	}
}
