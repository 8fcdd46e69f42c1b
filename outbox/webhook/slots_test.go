package webhook

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/everonce/everonce/outbox"
)

// A destination is a host, whatever the path, the query and the way of writing it.
func TestDestinations(t *testing.T) {
	t.Parallel()
	p, err := NewFunc(func(_ context.Context, e *outbox.Event) (Endpoint, error) { return Endpoint{URL: e.ID}, nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	to, ok := p.(outbox.Destinations)
	if !ok {
		t.Fatal("it names no destinations")
	}
	for url, want := range map[string]string{
		"https://example.com/hooks/1?a=b": "https://example.com:443", "https://u:p@EXAMPLE.com:443/2#c": "https://example.com:443",
		"http://example.com/1": "http://example.com:80", "https://example.com:8443/1": "https://example.com:8443", "https://[::1]/": "https://[::1]:443",
		"": noEndpoint, "example.com/1": noEndpoint,
	} {
		if got := to.Destination(t.Context(), &outbox.Event{ID: url}); got != want {
			t.Errorf("%s goes to %s, want %s", url, got, want)
		}
	}
}

// Requests to one host are bounded even if each event has a different URL and a different call; the requests to all
// hosts are bounded too.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	most, now := map[string]int{}, map[string]int{}
	serve := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		note := func(by int) {
			mu.Lock()
			defer mu.Unlock()
			for _, of := range []string{r.Host, "all"} {
				now[of] += by
				most[of] = max(most[of], now[of])
			}
		}
		note(1)
		defer note(-1)
		time.Sleep(20 * time.Millisecond)
	})
	const parallel, hosts, events = 2, 20, 6
	p, err := NewFunc(func(_ context.Context, e *outbox.Event) (Endpoint, error) {
		return Endpoint{URL: e.Type + "/" + e.ID}, nil
	},
		&Options{AllowPrivate: true, Parallel: parallel, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	for range hosts {
		s := httptest.NewServer(serve)
		t.Cleanup(s.Close)
		for i := range events {
			calls.Go(func() {
				e := outbox.Event{ID: fmt.Sprint(i), Type: s.URL}
				if errs := p.Publish(t.Context(), []outbox.Event{e}); len(errs) > 0 && errs[0] != nil {
					t.Error(errs[0])
				}
			})
		}
	}
	calls.Wait()
	for of, n := range most {
		if of == "all" && n > maxDestinations*parallel || of != "all" && n > parallel {
			t.Errorf("%s: %d requests at once", of, n)
		}
	}
	if len(most) != hosts+1 {
		t.Errorf("%d hosts", len(most)-1)
	}
}

// A request that gives up waiting, for its host or for all, takes no slot with it.
func TestSlotsComeBack(t *testing.T) {
	t.Parallel()
	s := newSlots(1, 1)
	ended, end := context.WithCancel(t.Context())
	end()
	for range 10 {
		release, err := s.acquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		for _, destination := range []string{"a", "b"} {
			if _, err := s.acquire(ended, destination); err == nil {
				t.Fatalf("%s has more than its slots", destination)
			}
		}
		release()
	}
	if len(s.lines) != 0 {
		t.Errorf("%d destinations are remembered", len(s.lines))
	}
}
