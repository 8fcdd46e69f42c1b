package network

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// rig is a network between a client and a service that counts requests.
type rig struct {
	network *Network
	url     string
	client  *http.Client
	served  atomic.Int64
	taken   chan struct{} // gets a value when the network has taken a request in
}

// newRig makes a rig. serve may be nil.
func newRig(t *testing.T, m Model, serve http.HandlerFunc) *rig {
	t.Helper()
	r := &rig{client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, taken: make(chan struct{}, 16)}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.served.Add(1)
		if serve != nil {
			serve(w, req)
		}
	}))
	t.Cleanup(service.Close)
	key := func(req *http.Request) string {
		r.taken <- struct{}{}
		return req.Header.Get("Key")
	}
	r.network = New(m, key, func(h http.Header) bool { return h.Get("Replayed") != "" })
	r.network.Connect(strings.TrimPrefix(service.URL, "http://"))
	proxy := httptest.NewServer(r.network)
	t.Cleanup(r.network.Wait)
	t.Cleanup(proxy.Close)
	r.url = proxy.URL
	return r
}

func (r *rig) send(t *testing.T, key, body string) (string, error) {
	t.Helper()
	return r.sendUnder(t.Context(), t, key, body)
}

func (r *rig) sendUnder(ctx context.Context, t *testing.T, key, body string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/payments?a=b", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Key", key)
	res, err := r.client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	return fmt.Sprintf("%d %s %s", res.StatusCode, res.Header.Get("Answer"), answer), err
}

func TestPassesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, Model{}, func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Answer", "yes")
		w.Header().Set("Replayed", "true")
		w.WriteHeader(http.StatusConflict)
		fmt.Fprintf(w, "%s %s %s %s %s", req.Method, req.Host, req.URL.RequestURI(), req.Header.Get("Key"), body)
	})
	got, err := r.send(t, "k", "what was sent")
	if want := "409 yes POST " + strings.TrimPrefix(r.url, "http://") + " /payments?a=b k what was sent"; got != want || err != nil {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if got, want := r.network.Stats(), (Stats{Deliveries: 1, Replayed: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestLosesRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t, Model{LoseRequests: 1}, nil)
	if got, err := r.send(t, "k", ""); err == nil {
		t.Errorf("answered %q", got)
	}
	if got, want := r.network.Stats(), (Stats{RequestsLost: 1}); got != want || r.served.Load() != 0 {
		t.Errorf("%+v and %d served, want %+v and none", got, r.served.Load(), want)
	}
}

func TestLosesAnswers(t *testing.T) {
	t.Parallel()
	r := newRig(t, Model{LoseAnswers: 1}, nil)
	if got, err := r.send(t, "k", ""); err == nil {
		t.Errorf("answered %q", got)
	}
	if got, want := r.network.Stats(), (Stats{Deliveries: 1, AnswersLost: 1}); got != want || r.served.Load() != 1 {
		t.Errorf("%+v and %d served, want %+v and one", got, r.served.Load(), want)
	}
}

// TestDuplicates: the second copy arrives too, and the client gets one answer.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	r := newRig(t, Model{Duplicate: 1, MaxDelay: time.Millisecond}, nil)
	if _, err := r.send(t, "k", ""); err != nil {
		t.Error(err)
	}
	r.network.Wait()
	if got, want := r.network.Stats(), (Stats{Deliveries: 2, Duplicated: 1}); got != want || r.served.Load() != 2 {
		t.Errorf("%+v and %d served, want %+v and two", got, r.served.Load(), want)
	}
}

// TestArrivesWithoutItsClient: what was sent arrives, though the client has given up before.
func TestArrivesWithoutItsClient(t *testing.T) {
	t.Parallel()
	r := newRig(t, Model{Seed: 1, Delay: 1, MaxDelay: 300 * time.Millisecond}, nil)
	ctx, giveUp := context.WithCancel(t.Context())
	go func() {
		<-r.taken
		giveUp()
	}()
	if got, err := r.sendUnder(ctx, t, "k", ""); err == nil {
		t.Errorf("answered %q", got)
	}
	for r.network.Stats().Delayed == 0 { // the client is gone; the packet is not
		runtime.Gosched()
	}
	r.network.Wait()
	if got := r.network.Stats(); got.Deliveries != 1 || got.Delayed != 1 || r.served.Load() != 1 {
		t.Errorf("%+v, %d served", got, r.served.Load())
	}
}

// TestInFlight: operations are counted, not deliveries, and only while the service works on them.
func TestInFlight(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}, 3), make(chan struct{})
	r := newRig(t, Model{}, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	done := make(chan error, 3)
	for _, key := range []string{"a", "a", "b"} {
		go func() {
			_, err := r.send(t, key, "")
			done <- err
		}()
	}
	for range 3 {
		<-arrived
	}
	for r.network.Stats().Deliveries < 3 { // the service may have a request before its sender knows
		runtime.Gosched()
	}
	if got := r.network.InFlight(); got != 2 {
		t.Errorf("%d in flight, want 2", got)
	}
	close(release)
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	r.network.Wait()
	if got := r.network.InFlight(); got != 0 {
		t.Errorf("%d in flight at the end", got)
	}
}

// TestNoService: a service that is down is no loss of the network's, and no delivery.
func TestNoService(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	r := newRig(t, Model{}, nil)
	r.network.Connect(strings.TrimPrefix(gone.URL, "http://"))
	if got, err := r.send(t, "k", ""); err == nil {
		t.Errorf("answered %q", got)
	}
	if got := r.network.Stats(); got != (Stats{}) {
		t.Errorf("%+v, want nothing", got)
	}
}
