package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/examples/internal/program"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// api is a payment API that protects itself. Once, it calls pause: before its effect, or after it.
type api struct {
	*httptest.Server
	mu     sync.Mutex
	ledger []string
}

func newAPI(t *testing.T, when string, pause func()) *api {
	t.Helper()
	store, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "api.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	receiver, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	protect, err := httponce.Middleware(receiver, httponce.Unscoped(), nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &api{}
	a.Server = httptest.NewServer(protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if when == "before the charge" {
			pause()
		}
		a.ledger = append(a.ledger, r.URL.Path+" "+string(body))
		if when == "after the charge" {
			pause()
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "receipt %d", len(a.ledger))
	})))
	t.Cleanup(a.Close)
	return a
}

func (a *api) entries() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger
}

// TestKeySurvivesKill kills the shop while its payment is at the API, before and after the charge, and starts it again.
func TestKeySurvivesKill(t *testing.T) {
	shop := program.Build(t, ".")
	for _, when := range []string{"before the charge", "after the charge"} {
		t.Run(when, func(t *testing.T) {
			there, killed := make(chan struct{}), make(chan struct{})
			a := newAPI(t, when, sync.OnceFunc(func() {
				close(there)
				<-killed
			}))
			file := filepath.Join(t.TempDir(), "shop.db")
			first := exec.CommandContext(t.Context(), shop, file, a.URL, "order-7", "1200")
			if err := first.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- first.Wait() }()
			select {
			case <-there:
			case err := <-ended:
				t.Fatalf("the first process never asked the API: %v", err)
			}
			if err := first.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err == nil {
				t.Fatal("the first process was not killed")
			}
			close(killed)
			// The API may still be at it: then it says "in progress", and the client asks again.
			if got := program.Run(t.Context(), t, "", shop, file, a.URL); got != "order-7 is paid\n" {
				t.Errorf("the second process wrote %q", got)
			}
			if got := program.Run(t.Context(), t, "", shop, file, a.URL); got != "" {
				t.Errorf("the third process wrote %q", got)
			}
			if got, want := a.entries(), []string{`/charges {"order": "order-7", "cents": 1200}`}; !slices.Equal(got, want) {
				t.Errorf("the ledger has %q, want %q", got, want)
			}
		})
	}
}

// TestKeysOfOrders: each order has its own key, which is a row's and does not change; a refund's key is its order's.
func TestKeysOfOrders(t *testing.T) {
	a := newAPI(t, "", nil)
	store, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "shop.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := store.DB().ExecContext(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	client, err := newClient()
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{db: store.DB(), client: client, api: a.URL, out: io.Discard}
	for _, id := range []string{"order-1", "order-2"} {
		if err := s.take(t.Context(), id, 500); err != nil {
			t.Fatal(err)
		}
	}
	orders, err := s.unpaid(t.Context())
	if err != nil || len(orders) != 2 || orders[0].key == orders[1].key {
		t.Fatalf("taken: %v, %v", orders, err)
	}
	for range 3 {
		for _, o := range orders {
			if err := s.pay(t.Context(), o); err != nil {
				t.Error(err)
			}
			if err := s.refund(t.Context(), o.id); err != nil {
				t.Error(err)
			}
		}
	}
	if got := a.entries(); len(got) != 4 {
		t.Errorf("the ledger has %q, want two charges and two refunds", got)
	}
}

// TestARefusedOrderHoldsUpNoOther: the API refuses the first of two orders, and the second is paid.
func TestARefusedOrderHoldsUpNoOther(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || strings.Contains(string(body), "order-1") {
			http.Error(w, "the card was declined", http.StatusPaymentRequired)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(api.Close)
	file := filepath.Join(t.TempDir(), "shop.db")
	var out strings.Builder
	for _, order := range []string{"order-1", "order-2"} {
		if err := run(t.Context(), &out, []string{file, api.URL, order, "500"}); err == nil {
			t.Errorf("%s: the refused order was not reported", order)
		}
	}
	if out.String() != "order-2 is paid\n" {
		t.Errorf("it wrote %q, want that order-2 is paid", out.String())
	}
}
