package proxy

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce/cmd/everonce/internal/storeurl"
	"github.com/everonce/everonce/driver"
)

// largeStore has so many records that it takes a while to count them.
type largeStore struct {
	storeurl.Store
	takes  time.Duration
	notes  []string
	err    error
	counts int
	spent  time.Duration
}

func (s *largeStore) Health(ctx context.Context, _ driver.HealthRequest) (driver.HealthResult, error) {
	began := time.Now()
	defer func() { s.counts++; s.spent += time.Since(began) }()
	select {
	case <-time.After(s.takes):
		return driver.HealthResult{Abandoned: 5, Notes: s.notes}, s.err
	case <-ctx.Done():
		return driver.HealthResult{}, ctx.Err()
	}
}

// shows reports whether /metrics has this line.
func shows(m *metrics, line string) bool {
	w := httptest.NewRecorder()
	m.page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	return strings.Contains(w.Body.String(), "\n"+line+"\n")
}

// Records are counted however many they are, and counting takes at most a tenth of the time.
func TestManyRecordsAreCounted(t *testing.T) {
	for _, takes := range []time.Duration{time.Millisecond, 5 * time.Second, 20 * time.Second, 4 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			store := &largeStore{takes: takes}
			s := &Server{metrics: newMetrics(nil), log: slog.New(slog.DiscardHandler), store: store}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Hour)
			defer cancel()
			s.census(ctx)
			if !shows(s.metrics, `everonce_records{state="abandoned"} 5`) || !shows(s.metrics, "everonce_count_errors_total 0") {
				t.Errorf("records that take %v to count are not shown", takes)
			}
			if least := int(10 * time.Hour / max(time.Minute+takes, 11*takes)); store.counts < least {
				t.Errorf("%d counts of %v in ten hours, want %d at least", store.counts, takes, least)
			}
			if share := store.spent.Seconds() / (10 * time.Hour).Seconds(); share > 0.11 {
				t.Errorf("counts of %v took %.2f of the time", takes, share)
			}
		})
	}
}

// After a failed count the old figure is no longer shown, and the failure is counted and logged.
func TestACountThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		store := &largeStore{}
		s := &Server{metrics: newMetrics(nil), log: slog.New(slog.NewTextHandler(&log, nil)), store: store}
		s.count(t.Context(), store)
		store.takes = 5*time.Minute + time.Second // longer than a count may take
		s.count(t.Context(), store)
		if shows(s.metrics, `everonce_records{state="abandoned"} 5`) {
			t.Error("an old figure is still shown")
		}
		if !shows(s.metrics, "everonce_count_errors_total 1") || !strings.Contains(log.String(), "could not be counted") {
			t.Errorf("a failed count is not logged; the log: %s", log.String())
		}
		store.takes = 0
		s.count(t.Context(), store)
		if !shows(s.metrics, `everonce_records{state="abandoned"} 5`) {
			t.Error("the next count is not shown")
		}
	})
}

// Notes that the store reports about its durability are logged at the start, and again when they change.
func TestNotesOfTheStoreAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		store := &largeStore{}
		s := &Server{metrics: newMetrics(nil), log: slog.New(slog.NewTextHandler(&log, nil)), store: store}
		for i, c := range []struct {
			notes []string
			lines int
		}{{[]string{"a", "b"}, 2}, {[]string{"a", "b"}, 2}, {[]string{"a", "c"}, 3}, {[]string{"a", "b"}, 4}} {
			store.notes = c.notes
			s.count(t.Context(), store)
			if got := strings.Count(log.String(), "the store's durability"); got != c.lines || !strings.Contains(log.String(), "note="+c.notes[1]) {
				t.Errorf("after count %d there are %d lines, want %d: %s", i+1, got, c.lines, log.String())
			}
		}
	})
}

// A proxy that ends does not wait for a count, and does not call it a failure.
func TestACountEndsWithTheProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{metrics: newMetrics(nil), log: slog.New(slog.DiscardHandler), store: &largeStore{takes: time.Hour}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		s.census(ctx)
		if took := time.Since(began); took != time.Second || !shows(s.metrics, "everonce_count_errors_total 0") {
			t.Errorf("the count ended after %v", took)
		}
	})
}
