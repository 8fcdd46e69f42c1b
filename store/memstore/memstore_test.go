package memstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

var life = driver.Lifetime{Retention: time.Hour, Remember: time.Hour}

// clock is a store's clock that a test moves.
type clock struct{ ns atomic.Int64 }

func (c *clock) Now() time.Time {
	return time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(c.ns.Load()))
}

func (c *clock) advance(d time.Duration) { c.ns.Add(int64(d)) }

func newStore(t *testing.T, limit int) (*memstore.Store, *clock) {
	t.Helper()
	c := &clock{}
	return memstore.New(&memstore.Options{MaxRecords: limit, Now: c.Now}), c
}

func claimOf(n int) driver.ClaimRequest {
	key := everonce.Key{Scope: "shop", ID: string(binary.BigEndian.AppendUint64([]byte("k"), uint64(n)))}
	return driver.ClaimRequest{
		ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Owner: "test", Lease: time.Minute, Lifetime: life,
	}
}

func claim(t *testing.T, s driver.Store, req driver.ClaimRequest) driver.Record {
	t.Helper()
	res, err := s.Claim(context.Background(), req)
	if err != nil || res.Decision != driver.DecideClaimed {
		t.Fatalf("Claim: %v, %v; want claimed", res.Decision, err)
	}
	return res.Record
}

func complete(t *testing.T, s driver.Store, rec driver.Record) {
	t.Helper()
	_, err := s.Complete(context.Background(), driver.CompleteRequest{
		ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lifetime: life,
		Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte("done")},
	})
	if err != nil {
		t.Fatalf("Complete: %v", err)
	}
}

// Claims of one key that make room in a full store at the same time are one attempt: a claim that has made room looks
// again.
func TestOneClaimIsGrantedWhileRoomIsMade(t *testing.T) {
	const limit, callers = 20_000, 16 // to make room takes long enough for the others to come
	for round := range 3 {
		s, c := newStore(t, limit)
		for n := range limit {
			complete(t, s, claim(t, s, claimOf(n)))
		}
		c.advance(life.Total())
		var granted atomic.Int64
		var all sync.WaitGroup
		start := make(chan struct{})
		for range callers {
			all.Go(func() {
				<-start
				res, err := s.Claim(context.Background(), claimOf(limit+round))
				if err != nil {
					t.Errorf("Claim: %v", err)
				} else if res.Decision == driver.DecideClaimed {
					granted.Add(1)
				}
			})
		}
		close(start)
		all.Wait()
		if n := granted.Load(); n != 1 {
			t.Fatalf("round %d: the key was granted %d times", round, n)
		}
	}
}

func TestFullStoreRefusesAndNeverEvicts(t *testing.T) {
	s, clk := newStore(t, 3)
	done := claim(t, s, claimOf(0))
	complete(t, s, done)
	held := claim(t, s, claimOf(1))
	claim(t, s, claimOf(2))

	if _, err := s.Claim(context.Background(), claimOf(3)); !errors.Is(err, driver.ErrStoreFull) {
		t.Fatalf("a record too many: %v, want ErrStoreFull", err)
	}
	byNonce := driver.ReleaseRequest{ID: driver.RecordID{1}, Nonce: driver.NewNonce(), State: driver.StateReleased, Lifetime: life}
	if _, err := s.Release(context.Background(), byNonce); !errors.Is(err, driver.ErrStoreFull) {
		t.Fatalf("a release that would leave a record too many: %v, want ErrStoreFull", err)
	}
	// Existing records remain usable.
	complete(t, s, held)
	if res, err := s.Claim(context.Background(), claimOf(0)); err != nil || res.Decision != driver.DecideReplay {
		t.Fatalf("a known key in a full store: %v, %v; want replay", res.Decision, err)
	}
	// A lapsed claim makes no room, a tombstone neither; records that are gone do.
	clk.advance(life.Retention)
	if _, err := s.Claim(context.Background(), claimOf(3)); !errors.Is(err, driver.ErrStoreFull) {
		t.Fatalf("with an abandoned record and two tombstones: %v, want ErrStoreFull", err)
	}
	clk.advance(life.Remember)
	claim(t, s, claimOf(3))
	claim(t, s, claimOf(4))
	if _, err := s.Claim(context.Background(), claimOf(5)); !errors.Is(err, driver.ErrStoreFull) {
		t.Fatalf("full again, with an abandoned record: %v, want ErrStoreFull", err)
	}
	if res, err := s.Claim(context.Background(), claimOf(2)); err != nil || res.Decision != driver.DecideAbandoned {
		t.Fatalf("the abandoned record: %v, %v; want abandoned", res.Decision, err)
	}
}

func TestRoomIsCountedThroughPurgeAndDeletion(t *testing.T) {
	const limit = 100
	s, clk := newStore(t, limit)
	for round := range 3 {
		for i := range limit {
			complete(t, s, claim(t, s, claimOf(i)))
		}
		if _, err := s.Claim(context.Background(), claimOf(limit)); !errors.Is(err, driver.ErrStoreFull) {
			t.Fatalf("round %d: %v, want ErrStoreFull", round, err)
		}
		if round == 1 {
			res, err := s.DeleteScope(context.Background(), driver.DeleteScopeRequest{Scope: "shop", Limit: 2 * limit})
			if err != nil || res.Records != limit || res.More {
				t.Fatalf("DeleteScope: %+v, %v; want %d records", res, err, limit)
			}
			continue
		}
		clk.advance(life.Total())
		got := 0
		for more := true; more; {
			res, err := s.Purge(context.Background(), driver.PurgeRequest{Limit: 7})
			if err != nil || res.Records+res.Results > 7 {
				t.Fatalf("Purge: %+v, %v; want at most 7 at a time", res, err)
			}
			got += res.Records
			more = res.More
		}
		if got != limit {
			t.Fatalf("round %d: %d records purged, want %d", round, got, limit)
		}
	}
}

func TestBoundHoldsUnderConcurrentClaims(t *testing.T) {
	const limit, callers = 50, 8
	s, _ := newStore(t, limit)
	var claimed, full atomic.Int64
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range limit {
				switch _, err := s.Claim(context.Background(), claimOf(c*limit+i)); {
				case err == nil:
					claimed.Add(1)
				case errors.Is(err, driver.ErrStoreFull):
					full.Add(1)
				default:
					t.Errorf("Claim: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if claimed.Load() != limit || full.Load() != (callers-1)*limit {
		t.Errorf("%d claimed, %d refused; want %d and %d", claimed.Load(), full.Load(), limit, (callers-1)*limit)
	}
}

func TestDefaultClockRunsOn(t *testing.T) {
	s := memstore.New(nil)
	before := time.Now()
	rec := claim(t, s, claimOf(1))
	after := time.Now()
	if rec.CreatedAt.Before(before.Add(-time.Second)) || rec.CreatedAt.After(after.Add(time.Second)) {
		t.Errorf("created at %v, not between %v and %v", rec.CreatedAt, before, after)
	}
	second, err := s.Get(context.Background(), driver.GetRequest{ID: rec.ID})
	if err != nil || second.Now.Before(rec.CreatedAt) {
		t.Errorf("Get: Now %v, %v; want not before %v", second.Now, err, rec.CreatedAt)
	}
}

func TestAllocations(t *testing.T) {
	s := memstore.New(nil)
	ctx := context.Background()
	const n = 2000
	reqs := make([]driver.ClaimRequest, 0, 2*n)
	for i := range cap(reqs) {
		reqs = append(reqs, claimOf(i))
		reqs[i].Take = driver.TakeAbandoned
	}
	result := driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte("done")}
	i := 0
	newKey := testing.AllocsPerRun(n, func() {
		res, err := s.Claim(ctx, reqs[i])
		if err != nil {
			t.Fatal(err)
		}
		if _, err = s.Complete(ctx, driver.CompleteRequest{ID: reqs[i].ID, Token: res.Record.Token, Nonce: res.Record.Nonce, Result: result, Lifetime: life}); err != nil {
			t.Fatal(err)
		}
		i++
	})
	if newKey > 2 { // the record as claimed, and as completed
		t.Errorf("a new key costs %v allocations, want at most 2", newKey)
	}
	dup := reqs[0]
	dup.Nonce = driver.NewNonce()
	replay := testing.AllocsPerRun(n, func() {
		if res, err := s.Claim(ctx, dup); err != nil || res.Decision != driver.DecideReplay {
			t.Fatalf("%v, %v; want replay", res.Decision, err)
		}
	})
	if replay != 0 {
		t.Errorf("a replay costs %v allocations, want none", replay)
	}
}

func BenchmarkReplay(b *testing.B) {
	s := memstore.New(nil)
	ctx := context.Background()
	req := claimOf(1)
	res, err := s.Claim(ctx, req)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.Complete(ctx, driver.CompleteRequest{ID: req.ID, Token: res.Record.Token, Nonce: req.Nonce, Lifetime: life}); err != nil {
		b.Fatal(err)
	}
	req.Nonce = driver.NewNonce()
	for b.Loop() {
		if res, err := s.Claim(ctx, req); err != nil || res.Decision != driver.DecideReplay {
			b.Fatal(err, res.Decision)
		}
	}
}

func BenchmarkNewKey(b *testing.B) {
	s := memstore.New(&memstore.Options{MaxRecords: 1 << 30})
	ctx := context.Background()
	req := claimOf(1)
	for i := 0; b.Loop(); i++ {
		binary.BigEndian.PutUint64(req.ID[8:], uint64(i)*0x9e3779b97f4a7c15)
		res, err := s.Claim(ctx, req)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Complete(ctx, driver.CompleteRequest{ID: req.ID, Token: res.Record.Token, Nonce: req.Nonce, Lifetime: life}); err != nil {
			b.Fatal(err)
		}
	}
}
