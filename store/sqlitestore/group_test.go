package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
)

func openTest(t testing.TB, opts *Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "test.db"), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func claimOf(id string) driver.ClaimRequest {
	key := everonce.Key{Scope: "test", ID: id}
	return driver.ClaimRequest{
		ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Owner: "test", Lease: time.Minute,
	}
}

// queued waits until n writes are in the queue.
func (g *grouper) queued(n int) {
	for {
		g.mu.Lock()
		have := len(g.queue)
		g.mu.Unlock()
		if have == n {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestWritesAtTheSameTimeShareACommit(t *testing.T) {
	s := openTest(t, nil)
	const n = 64
	s.db.turn.enterUnless(nil) // as another transaction would hold up the writer
	before := s.db.group.commits.Load()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			res, err := s.Claim(context.Background(), claimOf(fmt.Sprint(i)))
			if err != nil || res.Decision != driver.DecideClaimed {
				t.Errorf("%v, %v", res.Decision, err)
			}
		})
	}
	s.db.group.queued(n)
	s.db.turn.leave()
	wg.Wait()
	if got := s.db.group.commits.Load() - before; got != 1 {
		t.Errorf("%d writes took %d commits, want 1", n, got)
	}
}

// Nothing is acknowledged before it is durable: while the commit is held up by the last write of the group, no caller
// of the others has an answer, and no other connection sees their writes.
func TestNothingIsAcknowledgedBeforeTheCommit(t *testing.T) {
	s := openTest(t, nil)
	if _, err := s.Claim(t.Context(), claimOf("warm")); err != nil {
		t.Fatal(err)
	}
	held, let := make(chan struct{}), make(chan struct{})
	last := func(context.Context, sqldb.Conn) error { // of the group: before it the commit cannot come
		close(held)
		<-let
		return nil
	}
	var answered atomic.Int32
	var wg sync.WaitGroup
	const n = 8
	s.db.turn.enterUnless(nil)
	for i := range n {
		wg.Go(func() {
			if _, err := s.Claim(context.Background(), claimOf(fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
			answered.Add(1)
		})
	}
	s.db.group.queued(n)
	wg.Go(func() {
		if err := s.db.group.do(context.Background(), last); err != nil {
			t.Error(err)
		}
	})
	s.db.group.queued(n + 1)
	s.db.turn.leave()
	<-held
	if got := answered.Load(); got != 0 {
		t.Errorf("%d callers were answered before the commit", got)
	}
	for i := range n {
		if got, err := s.Get(t.Context(), driver.GetRequest{ID: claimOf(fmt.Sprint(i)).ID}); err != nil || got.Found {
			t.Errorf("claim %d is seen before the commit: %v, %v", i, got.Found, err)
		}
	}
	close(let)
	wg.Wait()
}

// A write that fails does not fail its neighbours, whose transaction it shared.
func TestAFailingWriteFailsAlone(t *testing.T) {
	s := openTest(t, nil)
	broken := &sqldb.Statement{Name: "broken", Text: "INSERT INTO nowhere VALUES (1)"}
	refusal := errors.New("refused after a write")
	ctx := context.Background()
	s.db.turn.enterUnless(nil)
	var wg sync.WaitGroup
	write := func(name string, op func(context.Context, sqldb.Conn) error, want func(error) bool) {
		wg.Go(func() {
			if err := s.db.group.do(ctx, op); !want(err) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	put := func(name string) func(ctx context.Context, c sqldb.Conn) error {
		return func(ctx context.Context, c sqldb.Conn) error {
			return c.Send(ctx, &sqldb.Call{Statement: s.db.text.Meta.Put, Args: []any{name, "x"}})
		}
	}
	succeeds := func(err error) bool { return err == nil }
	write("a neighbour before", put("one"), succeeds)
	s.db.group.queued(1)
	write("the broken one", func(ctx context.Context, c sqldb.Conn) error {
		if err := put("two")(ctx, c); err != nil {
			return err
		}
		return c.Send(ctx, &sqldb.Call{Statement: broken})
	}, func(err error) bool { return classify(err).Class == sqldb.ClassMissingTable })
	write("the refused one", func(ctx context.Context, c sqldb.Conn) error {
		if err := put("three")(ctx, c); err != nil {
			return err
		}
		return refusal
	}, func(err error) bool { return errors.Is(err, refusal) })
	s.db.group.queued(3)
	write("a neighbour after", put("four"), succeeds)
	s.db.group.queued(4)
	s.db.turn.leave()
	wg.Wait()

	for name, want := range map[string]string{"one": "x", "two": "", "three": "", "four": "x"} {
		var got string
		err := s.db.Read(ctx, &sqldb.Call{Statement: s.db.text.Meta.Get, Args: []any{name}, Each: func(r sqldb.Row) error { return r.Scan(&got) }})
		if err != nil || got != want {
			t.Errorf("%s is %q, %v, want %q", name, got, err, want)
		}
	}
}

// A call returns as soon as its context ends; the others of the group are served.
func TestACallerThatGivesUpIsNotWaitedFor(t *testing.T) {
	s := openTest(t, nil)
	s.db.turn.enterUnless(nil)
	gone, cancel := context.WithCancel(context.Background())
	result := make(chan error, 2)
	go func() { _, err := s.Claim(gone, claimOf("gone")); result <- err }()
	s.db.group.queued(1)
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's end, while the writer is still held", err)
	}
	go func() { _, err := s.Claim(context.Background(), claimOf("b")); result <- err }()
	s.db.group.queued(2)
	s.db.turn.leave()
	if err := <-result; err != nil {
		t.Error(err)
	}
	// It had given up before its turn, so that it was not run.
	if got, err := s.Get(context.Background(), driver.GetRequest{ID: claimOf("gone").ID}); err != nil || got.Found {
		t.Errorf("the claim of the one who gave up: %v, %v", got.Found, err)
	}
}

func TestTurnstileServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := newTurnstile(time.Minute)
		turn.enterUnless(nil)
		var order []int
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				if err := turn.enter(t.Context()); err != nil {
					t.Error(err)
				}
				order = append(order, i)
				turn.leave()
			})
			synctest.Wait()
		}
		turn.leave()
		wg.Wait()
		if got := fmt.Sprint(order); got != "[0 1 2 3 4]" {
			t.Errorf("the order is %s", got)
		}
	})
}

func TestTurnstileWaitsNoLongerThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := newTurnstile(time.Second)
		turn.enterUnless(nil)
		start := time.Now()
		if err := turn.enter(t.Context()); !errors.Is(err, errWriterBusy) || time.Since(start) != time.Second {
			t.Errorf("%v after %v, want errWriterBusy after 1 s", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := turn.enter(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the context's end", err)
		}
		turn.leave()
		if err := turn.enter(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestNoGoroutineIsLeftWhenThereIsNothingToWrite(t *testing.T) {
	s := openTest(t, nil)
	for i := range 20 {
		if _, err := s.Claim(t.Context(), claimOf(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	g := s.db.group
	g.mu.Lock()
	for g.running {
		g.idle.Wait()
	}
	g.mu.Unlock()
}

func TestKeyLocks(t *testing.T) {
	var k keyLocks
	id, other := claimOf("a").ID, claimOf("b").ID
	first, second := new(openTx), new(openTx)
	waiting := new(pendingTx)
	check := func(what string, got, want bool) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	check("a free key", k.lock(id, waiting), true)
	check("a duplicate of one that waits to begin", k.lock(id, new(pendingTx)), false)
	check("handed over to the one that began", k.transfer(id, first), true)
	check("again, by the same", k.transfer(id, first), true)
	check("by another", k.transfer(id, second), false)
	check("another key", k.transfer(other, second), true)
	k.release(id, waiting) // what it waited for has begun: this must not give its key away
	check("locked", k.locked(id), true)
	first.over.Store(true)
	k.releaseAll(first)
	check("after its end", k.locked(id), false)
	check("to the other", k.transfer(id, second), true)
	check("an ended one that still asks", k.transfer(id, first), true)
	for i := range 100 { // holders that end without telling
		over := new(openTx)
		over.over.Store(true)
		check("a key of many", k.lockPolled(claimOf(fmt.Sprint("many", i)).ID, over), true)
	}
	if n := len(k.held); n > 5 {
		t.Errorf("%d keys of holders that have ended are kept", n)
	}
	check("did not get it", k.held[id] == lockHolder(second), true)
}
