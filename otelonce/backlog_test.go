package otelonce

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/otelonce/scrape"
)

// scraped returns an observer, and a function that returns its page and the time that a scrape took.
func scraped(t *testing.T) (*Observer, func() (page string, took time.Duration)) {
	t.Helper()
	provider, page, err := scrape.New()
	if err != nil {
		t.Fatal(err)
	}
	o, err := NewObserver(provider, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return o, func() (string, time.Duration) {
		w, began := httptest.NewRecorder(), time.Now()
		page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
		return w.Body.String(), time.Since(began)
	}
}

// A table that does not answer does not delay a scrape. The last count is shown until the new one has failed, or, if
// that does not end, until it is too old.
func TestATableThatHangs(t *testing.T) {
	for name, heeds := range map[string]bool{"until its deadline": true, "for ever": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, scrape := scraped(t)
				var hangs atomic.Bool
				back := make(chan struct{})
				err := o.backlog(t.Context(), "outbox", func(ctx context.Context) (backlog.Stats, error) {
					switch {
					case hangs.Load() && heeds:
						<-ctx.Done()
						return backlog.Stats{}, ctx.Err()
					case hangs.Load():
						<-back
						return backlog.Stats{}, errors.New("too late")
					}
					return backlog.Stats{Blocked: 3}, nil
				})
				if err != nil {
					t.Fatal(err)
				}
				const blocked = `everonce_backlog_entries{state="blocked",table="outbox"} 3`
				shows := func(line string, want bool) {
					t.Helper()
					page, took := scrape()
					if strings.Contains(page, "\n"+line+"\n") != want || took > time.Second {
						t.Errorf("after %v the page has %s: %v, want %v", took, line, !want, want)
					}
				}
				shows(blocked, true)
				hangs.Store(true)
				shows(blocked, true)
				time.Sleep(10 * time.Second)
				shows(blocked, !heeds)
				if heeds {
					shows(`everonce_count_errors_total{table="outbox"} 1`, true)
				}
				time.Sleep(5 * time.Minute)
				shows(blocked, false)
				hangs.Store(false)
				close(back)
				time.Sleep(askTimeout)
				shows(blocked, true)
			})
		})
	}
}

// stuck is a store that answers once.
type stuck struct{ asked int }

func (s *stuck) Health(ctx context.Context, _ driver.HealthRequest) (driver.HealthResult, error) {
	if s.asked++; s.asked == 1 {
		return driver.HealthResult{Completed: 7}, nil
	}
	<-ctx.Done()
	return driver.HealthResult{}, ctx.Err()
}

// A count of the records has a deadline, and old counts are not shown: neither after a failed count nor after the end.
func TestOldCountsAreNotShown(t *testing.T) {
	const completed = `everonce_records{state="completed"} 7`
	synctest.Test(t, func(t *testing.T) {
		o, scrape := scraped(t)
		shows := func(line string, want bool) {
			t.Helper()
			if page, _ := scrape(); strings.Contains(page, "\n"+line+"\n") != want {
				t.Errorf("the page has %s: %v, want %v", line, !want, want)
			}
		}
		ctx, end := context.WithCancel(t.Context())
		go o.CountRecords(ctx, &stuck{}, time.Minute)
		synctest.Wait()
		shows(completed, true)
		time.Sleep(time.Minute + countTimeout + time.Second)
		shows(completed, false)
		shows("everonce_count_errors_total 1", true)
		end()
		synctest.Wait()

		ctx, end = context.WithCancel(t.Context())
		go o.CountRecords(ctx, &stuck{}, time.Minute)
		synctest.Wait()
		shows(completed, true)
		end()
		synctest.Wait()
		shows(completed, false)

		o.Counted(driver.HealthResult{Completed: 7}, nil) // and never again
		time.Sleep(59 * time.Minute)
		shows(completed, true)
		time.Sleep(2 * time.Minute)
		shows(completed, false)
	})
}
