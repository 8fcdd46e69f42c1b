package sqlitestore

import (
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// pausedBefore is how long a transaction waits of which n writes have come since the last one, in the time that has gone by. Where it
// pauses another one comes meanwhile.
func (g *gathering) pausedBefore(came *atomic.Int64, since time.Duration, n int64) time.Duration {
	time.Sleep(since)
	came.Add(n)
	start := time.Now()
	next := time.AfterFunc(gatherPause/2, func() { came.Add(1) })
	g.before(came, int(n), 1)
	next.Stop()
	return time.Since(start)
}

func TestOnlyWritesThatComeOftenAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gathering
		var came atomic.Int64
		for _, c := range []struct {
			name  string
			since time.Duration
			came  int64
			want  time.Duration
		}{
			{"the first", time.Hour, 1, 0},
			{"one after a while", time.Millisecond, 1, 0},
			{"some after a while", time.Millisecond, 6, 0},
			{"many", time.Millisecond, 7, gatherPause},
			{"none", time.Microsecond, 0, 0},
			{"one at once", gatherOften, 1, gatherPause},
			{"one, and that of the pause, no longer at once", 2*gatherOften + 1, 1, 0},
		} {
			// The time of the last transaction is that of its beginning, before its pause.
			if got := g.pausedBefore(&came, c.since-time.Since(g.at)%time.Hour, c.came); got != c.want {
				t.Errorf("%s: a pause of %v, want %v", c.name, got, c.want)
			}
		}
	})
}

// Where each write has a commit of its own, to wait for others spares none; and where nobody else writes, nearly none.
func TestAWriteWaitsForNoOthersWhereThereAreNone(t *testing.T) {
	for name, c := range map[string]struct {
		limit, writers, each int
		most                 time.Duration
	}{
		"a commit for each": {1, 8, 8, 0},
		"one writer":        {0, 1, 64, 6 * gatherPause}, // before the writes 2, 4, 7, 12, 21 and 38
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // where time goes by while everybody waits, and then alone
				s, err := Open(t.Context(), filepath.Join(t.TempDir(), "records.db"), &Options{GroupLimit: c.limit})
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				var all sync.WaitGroup
				for i := range c.writers {
					all.Go(func() {
						for n := range c.each {
							key := everonce.Key{Scope: "gather", ID: fmt.Sprint(i, n)}
							_, err := s.Claim(t.Context(), driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Hour})
							if err != nil {
								t.Error(err)
							}
						}
					})
				}
				all.Wait()
				if waited := time.Since(start); waited > c.most {
					t.Errorf("64 writes waited for %v, want at most %v", waited, c.most)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A transaction that has all the writes that it may have begins at once, however often others come.
func TestAFullTransactionWaitsForNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for queued, want := range []time.Duration{gatherPause, gatherPause, 0, 0} {
			g := newGrouper(nil, 2, nil, nil, nil)
			g.queue = make([]*write, queued)
			g.gather.at = time.Now()
			g.came.Add(10)
			start := time.Now()
			g.await(0)
			if got := time.Since(start); got != want {
				t.Errorf("%d are there, of 2 that may share a commit: a pause of %v, want %v", queued, got, want)
			}
		}
	})
}

// A pause that an idle process wakes from too late is not taken again at once, and ever more seldom while that goes on.
func TestPausesThatAreTooLongBecomeRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gathering
		var came atomic.Int64
		g.at = time.Now()
		for _, want := range []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 256} {
			g.judge(2*gatherPause, true)
			for i := range want {
				if got := g.pausedBefore(&came, 0, 10); got != 0 {
					t.Fatalf("a pause of %v before transaction %d of the %d that have none", got, i, want)
				}
			}
			if g.skip != 0 {
				t.Fatalf("%d transactions more have no pause, want %d in all", g.skip, want)
			}
		}
		if got := g.pausedBefore(&came, 0, 10); got != gatherPause {
			t.Errorf("a pause of %v, want one of %v again", got, gatherPause)
		}
		g.judge(2*gatherPause, true)
		if g.skip != 1 {
			t.Errorf("after a pause of the right length and one too long %d transactions have none, want 1", g.skip)
		}
	})
}

// A pause for which one came alone was in vain, though it came while others had been done: it shares its commit with nobody.
func TestAPauseForOneIsInVain(t *testing.T) {
	for name, c := range map[string]struct{ queued, comes, skip int }{
		"one was there":            {1, 0, 1},
		"one came":                 {0, 1, 1},
		"one was there, one came":  {1, 1, 0},
		"two came":                 {0, 2, 0},
		"nobody, who was told of":  {0, 0, 1},
		"two were there, one came": {2, 1, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var came atomic.Int64
			g := gathering{at: time.Now()}
			came.Add(1)
			time.AfterFunc(gatherPause/2, func() { came.Add(int64(c.comes)) })
			g.before(&came, c.queued, 1)
			if g.skip != c.skip {
				t.Errorf("%s: %d transactions have no pause now, want %d", name, g.skip, c.skip)
			}
		})
	}
}

// Those that were just answered are waited for, without a pause, until as many have come.
func TestTheCallersThatWereAnsweredAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no time goes by meanwhile, so that nothing else ends it
		var came atomic.Int64
		var over atomic.Bool
		go func() {
			for ; !over.Load(); runtime.Gosched() {
				came.Add(1)
			}
		}()
		const n = 100
		before := came.Load()
		callers(&came, time.Now(), n)
		over.Store(true)
		if got := came.Load() - before; got < n {
			t.Errorf("%d had come, want %d", got, n)
		}
	})
}

// What comes while the writer goes to rest is not left behind: nobody else would begin it.
func TestAWriteThatComesWhileTheWriterGoesToRest(t *testing.T) {
	g := newGrouper(newTurnstile(time.Second), 2, nil, nil, nil)
	g.running, g.queue = true, []*write{{}}
	if g.rest() || !g.running || len(g.queue) != 1 {
		t.Errorf("it rests: running %v, %d writes in the queue", g.running, len(g.queue))
	}
	g.queue = nil
	if !g.rest() || g.running {
		t.Error("it does not rest with nothing to do")
	}
}
