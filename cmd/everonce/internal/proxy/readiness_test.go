package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// discard is the log of who does not look at it.
var discard = slog.New(slog.DiscardHandler)

// downStore cannot be reached.
type downStore struct{ *memstore.Store }

func (downStore) Get(context.Context, driver.GetRequest) (driver.GetResult, error) {
	return driver.GetResult{}, fmt.Errorf("%w: postgres://proxy:hunter2@db", everonce.ErrStore)
}

func TestReadiness(t *testing.T) {
	up, down := newReadiness(memstore.New(nil), discard), newReadiness(downStore{memstore.New(nil)}, discard)
	if err := up.check(t.Context()); err != nil {
		t.Error(err)
	}
	if err := down.check(t.Context()); err == nil {
		t.Error("ready without a store")
	}
	up.draining.Store(true)
	if err := up.check(t.Context()); err == nil {
		t.Error("ready while draining")
	}
}

// /readyz does not reveal the store's error, which may contain an address or more.
func TestReadinessHidesWhatTheStoreSays(t *testing.T) {
	s := &Server{metrics: newMetrics(nil), ready: newReadiness(downStore{memstore.New(nil)}, discard)}
	w := httptest.NewRecorder()
	s.admin().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody))
	if got := w.Body.String(); w.Code != http.StatusServiceUnavailable || got != "the store cannot be reached\n" {
		t.Errorf("%d %q", w.Code, got)
	}
}

// fullStore takes no writes while it is full.
type fullStore struct {
	*memstore.Store
	full   bool
	writes int
}

func (f *fullStore) CheckWrite(ctx context.Context, _ driver.CheckWriteRequest) (res driver.CheckWriteResult, err error) {
	f.writes++
	if f.full {
		return res, fmt.Errorf("%w: %w: disk I/O error", everonce.ErrStore, driver.ErrStoreFull)
	}
	return res, ctx.Err()
}

// Ready is who can write a claim: a store that only answers reads is not enough. While it takes writes, one is tried
// now and then; once it has refused one, at each question, and the log says why, once.
func TestReadyIsWhoCanWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		store := &fullStore{Store: memstore.New(nil)}
		s := &Server{metrics: newMetrics(nil), ready: newReadiness(store, slog.New(slog.NewTextHandler(&log, nil)))}
		ask := func(wantStatus int, wantBody string, wantWrites int) {
			t.Helper()
			w := httptest.NewRecorder()
			s.admin().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody))
			if w.Code != wantStatus || w.Body.String() != wantBody || store.writes != wantWrites {
				t.Errorf("%d %q after %d writes, want %d %q after %d", w.Code, w.Body, store.writes, wantStatus, wantBody, wantWrites)
			}
		}
		ask(200, "ok\n", 1)
		store.full = true
		time.Sleep(writeEvery - time.Nanosecond)
		ask(200, "ok\n", 1)
		time.Sleep(time.Nanosecond)
		ask(503, "the store accepts no writes\n", 2)
		ask(503, "the store accepts no writes\n", 3)
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "disk I/O error") {
			t.Errorf("the log has %q, want why, once", got)
		}
		store.full = false
		ask(200, "ok\n", 4)
		ask(200, "ok\n", 4)
		if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "ready again") {
			t.Errorf("the log has %q, want that it is ready again", got)
		}
	})
}

// hungWrites answers what is read, and no write.
type hungWrites struct{ *memstore.Store }

func (hungWrites) CheckWrite(ctx context.Context, _ driver.CheckWriteRequest) (res driver.CheckWriteResult, err error) {
	<-ctx.Done()
	return res, ctx.Err()
}

// A caller of /readyz may have less time than the store needs. The log says why all the same, once, whether the store
// does not answer or cannot be reached.
func TestWhyItIsNotReadyIsInTheLog(t *testing.T) {
	for want, store := range map[error]everonce.Store{errNoWrites: hungWrites{memstore.New(nil)}, errUnreachable: hungStore{memstore.New(nil)}} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			ready := newReadiness(store, slog.New(slog.NewTextHandler(&log, nil)))
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), readyTimeout/2)
				if err := ready.check(ctx); !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
				cancel()
			}
			if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want.Error()) {
				t.Errorf("the log has %q, want %q, once", got, want)
			}
		})
	}
}

// While one asks a store that hangs, another waits, within its own time.
func TestReadinessIsAskedOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready := newReadiness(hungWrites{memstore.New(nil)}, discard)
		go ready.check(t.Context()) //nolint:errcheck // the other one is looked at
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), readyTimeout/2)
		defer cancel()
		if err := ready.check(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(readyTimeout)
	})
}

// farStore is well, and takes its time.
type farStore struct {
	*memstore.Store
	reads int
}

func (f *farStore) Get(ctx context.Context, r driver.GetRequest) (driver.GetResult, error) {
	f.reads++
	time.Sleep(time.Second) // in a synctest bubble
	return f.Store.Get(ctx, r)
}

// Many who ask at once do not queue up: those who came while the store was asked are answered by what is asked next.
func TestReadinessIsAskedOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, begun := &farStore{Store: memstore.New(nil)}, time.Now()
		ready := newReadiness(store, discard)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := ready.check(t.Context()); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if took := time.Since(begun); store.reads != 2 || took != 2*time.Second {
			t.Errorf("%d reads, the last was answered after %v", store.reads, took)
		}
	})
}

// A caller that leaves before the store has answered does not make the store unreachable, in the log or for others.
func TestWhoGoesMakesNoStoreUnready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		ready := newReadiness(&farStore{Store: memstore.New(nil)}, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if err := ready.check(ctx); err != nil || log.Len() > 0 {
			t.Errorf("%v, log: %q", err, log.String())
		}
	})
}

// A store that is closed while it is asked, since the proxy ends, is no fault of it.
func TestReadinessSeesTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		ready := newReadiness(hungStore{memstore.New(nil)}, slog.New(slog.NewTextHandler(&log, nil)))
		time.AfterFunc(readyTimeout/2, func() { ready.draining.Store(true) })
		if err := ready.check(t.Context()); !errors.Is(err, errDraining) || log.Len() > 0 {
			t.Errorf("%v, log: %q", err, log.String())
		}
	})
}

// hungStore does not answer.
type hungStore struct{ *memstore.Store }

func (hungStore) Get(ctx context.Context, _ driver.GetRequest) (driver.GetResult, error) {
	<-ctx.Done()
	return driver.GetResult{}, ctx.Err()
}

// A store that does not answer is unreachable, and /readyz says so in time.
func TestReadinessWaitsForNoStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready, begun := newReadiness(hungStore{memstore.New(nil)}, discard), time.Now()
		if err := ready.check(t.Context()); err == nil || time.Since(begun) != readyTimeout {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}
