package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/client"
	"github.com/everonce/everonce/store/memstore"
)

// lossy is a network that loses 30 % of the requests, and 30 % of the answers, some of them in the middle.
type lossy struct {
	base           http.RoundTripper
	requests, lost atomic.Int64
	perAttempt     bool // the trap: another key for each attempt
}

var errLost = errors.New("connection lost")

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	if n := l.requests.Add(1); l.perAttempt {
		r.Header.Set("Idempotency-Key", fmt.Sprint("attempt-", n))
	}
	if rand.N(10) < 3 {
		l.lost.Add(1)
		_ = r.Body.Close()
		return nil, errLost
	}
	resp, err := l.base.RoundTrip(r)
	if err != nil || rand.N(10) >= 3 {
		return resp, err
	}
	l.lost.Add(1)
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || rand.N(2) == 0 {
		return nil, errLost
	}
	resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body[:rand.N(len(body)+1)]), readerFunc(func([]byte) (int, error) { return 0, errLost })))
	return resp, nil
}

// loss sends operations over a lossy network, and returns how many effects each had.
func loss(t *testing.T, operations int, perAttempt bool) map[string]int {
	t.Helper()
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	effects := map[string]int{}
	base, _ := serve(t, protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		order, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		<-time.After(rand.N(20 * time.Millisecond))
		mu.Lock()
		defer mu.Unlock()
		effects[string(order)]++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "%s, %d", order, effects[string(order)])
	})).ServeHTTP)
	base.MaxIdleConnsPerHost = 100
	network := &lossy{base: base, perAttempt: perAttempt}
	sender := over(t, network, &client.Options{MaxAttempts: 100, MaxElapsed: time.Hour, Backoff: 10 * time.Millisecond, MaxBackoff: time.Second})
	orders := make(chan string)
	var workers sync.WaitGroup
	for range 50 {
		workers.Go(func() {
			for order := range orders {
				req, err := http.NewRequestWithContext(client.WithKey(t.Context(), "charge-"+order), http.MethodPost, "http://pay.example/", strings.NewReader(order))
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := sender.Do(req)
				if err != nil {
					t.Errorf("%s: %v", order, err)
					continue
				}
				answer, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if want := order + ", 1"; err != nil || resp.StatusCode != http.StatusCreated || string(answer) != want && !perAttempt {
					t.Errorf("%s: got %d %q, %v; want 201 %q", order, resp.StatusCode, answer, err, want)
				}
			}
		})
	}
	for i := range operations {
		orders <- fmt.Sprint("order-", i)
	}
	close(orders)
	workers.Wait()
	if n := network.lost.Load(); n < network.requests.Load()/3 {
		t.Errorf("%d of %d requests and answers were lost: the network is too good", n, network.requests.Load())
	}
	mu.Lock()
	defer mu.Unlock()
	return effects
}

// 10 000 operations, a tenth of them with -short, over a network that loses 30 % of the requests and of the answers:
// each takes effect once, and every caller gets the answer of that effect.
func TestTransportUnderLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		operations := 10_000
		if testing.Short() {
			operations /= 10
		}
		effects := loss(t, operations, false)
		for order, n := range effects {
			if n != 1 {
				t.Errorf("%s took effect %d times", order, n)
			}
		}
		if len(effects) != operations {
			t.Errorf("%d operations took effect, want %d", len(effects), operations)
		}
	})
}

// The same with another key for each attempt: if no effect is doubled, TestTransportUnderLoss cannot fail.
func TestTransportUnderLossIsNotBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		doubled := 0
		for _, n := range loss(t, 200, true) {
			if n > 1 {
				doubled++
			}
		}
		if doubled == 0 {
			t.Error("no effect was doubled")
		}
	})
}
