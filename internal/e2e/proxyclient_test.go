package e2e

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce/client"
	"github.com/everonce/everonce/store/sqlitestore"
)

// answer is what a client of a proxy has got.
type answer struct {
	status                 int
	location, marker, body string
}

// unknown reports whether the answer says that the outcome is unknown.
func (a answer) unknown() bool {
	return a.status == http.StatusConflict && strings.Contains(a.body, "outcome-unknown")
}

// same reports whether a replay is the same, but for its marker.
func (a answer) same(replay answer) bool {
	return a.status == replay.status && a.location == replay.location && a.body == replay.body
}

// post sends an order of some thousand bytes, whose key is the order's name.
func post(ctx context.Context, sender *http.Client, addr, order string) (a answer, err error) {
	body := order + "\n" + strings.Repeat("an item of the order\n", orderItems)
	req, err := http.NewRequestWithContext(client.WithKey(ctx, order), http.MethodPost, "http://"+addr+"/orders", strings.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Host = "shop.example" // one and the same, wherever the proxy listens after it was killed
	res, err := sender.Do(req)
	if err != nil {
		return a, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header.Get("Location"), res.Header.Get("Idempotent-Replayed"), string(text)}, err
}

const orderItems = 200

// clients returns one that sends a request once, and one that sends it until it has a final answer.
func clients(t *testing.T, patience time.Duration) (once, until *http.Client) {
	t.Helper()
	newClient := func(opts client.Options) *http.Client {
		opts.Backoff, opts.MaxBackoff = 2*time.Millisecond, 20*time.Millisecond
		tr, err := client.NewTransport(nil, &opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr}
	}
	return newClient(client.Options{MaxAttempts: 1, AttemptTimeout: patience}), newClient(client.Options{MaxAttempts: 1000, AttemptTimeout: time.Minute})
}

// settleOrder is the operator, who has looked into the upstream's ledger.
func settleOrder(t *testing.T, path, order string, done bool) {
	t.Helper()
	store, err := sqlitestore.Open(t.Context(), path, &sqlitestore.Options{NoMigrate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	page, err := store.List(t.Context(), driver.ListRequest{States: []driver.State{driver.StateAbandoned}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range page.Records {
		if page.Records[i].Name != order {
			continue
		}
		s := everonce.Settlement{Verdict: everonce.SettleNotDone, By: "e2e"}
		if done {
			s.Verdict = everonce.SettleDone
		}
		if err := everonce.Settle(t.Context(), store, page.Records[i].ID, s); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("%s is not among what is unknown", order)
}
