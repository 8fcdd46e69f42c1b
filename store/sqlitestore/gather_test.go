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

// Where each write has its own commit, or there is one writer only, waiting for others would save no commit.
func TestAWriteWaitsForNoOthersWhereThereAreNone(t *testing.T) {
	for name, c := range map[string]struct {
		limit, writers, each int
	}{
		"a commit for each": {1, 8, 8},
		"one writer":        {0, 1, 64},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // where time stands still, so that gather would not return
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
				if waited := time.Since(start); waited > 0 {
					t.Errorf("64 writes waited for %v, want no wait", waited)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
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
		gather(&came, n)
		over.Store(true)
		if got := came.Load() - before; got < n {
			t.Errorf("%d had come, want %d", got, n)
		}
	})
}

// A write that comes while the writer goes to rest is not left behind: no later call would begin it.
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
