// Command payment is an HTTP service that charges through a gateway, once per Idempotency-Key. It sends
// itself the same request several times and prints the answers.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// Charge is the body of a request.
type Charge struct {
	Card  string `json:"card"`
	Cents int64  `json:"cents"`
}

// Receipt is the body of an answer.
type Receipt struct {
	Number string `json:"number"`
}

// service holds what a request needs.
type service struct {
	receiver *everonce.Receiver
	gateway  func(ctx context.Context, c Charge, key string) (Receipt, error)
}

func (s *service) charge(w http.ResponseWriter, r *http.Request) {
	var c Charge
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		http.Error(w, "no charge in the body", http.StatusBadRequest)
		return
	}
	// The tenant comes from the authentication, never from the request's own words.
	key := everonce.Key{Scope: everonce.ScopeOf(tenant(r), "POST /charges"), ID: r.Header.Get("Idempotency-Key")}
	res, err := everonce.Do(r.Context(), s.receiver, key, func(ctx context.Context, a *everonce.Attempt) (Receipt, error) {
		return s.gateway(ctx, c, a.DownstreamKey("charge"))
	}, everonce.FingerprintOf(c.Card, c.Cents))
	if err != nil && !errors.Is(err, everonce.ErrNotRecorded) { // there the charge is made, and here is its receipt
		refuse(w, res.Outcome, err)
		return
	}
	if res.Outcome == everonce.Replayed {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	if err := json.NewEncoder(w).Encode(res.Value); err != nil {
		log.Print("an answer is lost; its client will ask again: ", err)
	}
}

// refuse answers what is not a receipt. Nothing of an error goes to the client but what is meant for it.
func refuse(w http.ResponseWriter, o everonce.Outcome, err error) {
	if e, ok := errors.AsType[*everonce.Error](err); ok && e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	} else if ok && o == everonce.Expired && e.Refused() { // rejected, long ago: its code is left
		http.Error(w, string(e.Summary), http.StatusPaymentRequired)
		return
	}
	if failure, ok := errors.AsType[*everonce.PermanentError](err); ok { // rejected: the same words every time
		http.Error(w, failure.Error(), http.StatusPaymentRequired)
		return
	}
	status, text := http.StatusServiceUnavailable, "not done, try again" // failed, store_failed, lease_lost
	switch o {
	case everonce.InProgress:
		status, text = http.StatusConflict, "the charge is being made"
	case everonce.Mismatch:
		status, text = http.StatusUnprocessableEntity, "the key was used with another charge"
	case everonce.Unknown:
		status, text = http.StatusInternalServerError, "it is not yet known whether the charge was made; we look into it"
	case everonce.Expired, everonce.Elided:
		status, text = http.StatusGone, "the charge was made; its receipt is no longer kept"
	case everonce.Invalid:
		status, text = http.StatusBadRequest, "the Idempotency-Key is missing or wrong"
	}
	http.Error(w, text, status)
}

func tenant(*http.Request) string { return "shop-1" }

// gateway is a card processor that is far away.
type gateway struct{ charges int }

func (g *gateway) charge(_ context.Context, c Charge, _ string) (Receipt, error) {
	g.charges++
	switch c.Card {
	case "empty":
		return Receipt{}, everonce.Permanent("card_declined", errors.New("the card is empty"), nil)
	case "busy":
		return Receipt{}, everonce.NotDone(errors.New("the gateway takes no calls"))
	case "timeout":
		return Receipt{}, errors.New("no answer from the gateway")
	}
	return Receipt{Number: fmt.Sprintf("receipt-%d", g.charges)}, nil
}

func main() {
	dir, err := os.MkdirTemp("", "everonce-payment-")
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), os.Stdout, filepath.Join(dir, "payment.db"))
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, file string) (err error) {
	store, err := sqlitestore.Open(ctx, file, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	receiver, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		return err
	}
	var g gateway
	s := &service{receiver: receiver, gateway: g.charge}
	server := httptest.NewServer(http.HandlerFunc(s.charge))
	defer server.Close()

	for _, request := range []struct {
		key string
		Charge
	}{
		{"order-1", Charge{Card: "good", Cents: 1200}},
		{"order-1", Charge{Card: "good", Cents: 1200}},
		{"order-1", Charge{Card: "good", Cents: 9900}},
		{"order-2", Charge{Card: "empty", Cents: 1200}},
		{"order-2", Charge{Card: "empty", Cents: 1200}},
		{"order-3", Charge{Card: "busy", Cents: 1200}},
		{"order-4", Charge{Card: "timeout", Cents: 1200}},
		{"order-4", Charge{Card: "timeout", Cents: 1200}},
		{"", Charge{Card: "good", Cents: 1200}},
	} {
		status, body, err := send(ctx, server.URL, request.key, request.Charge)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%-8q %-9s %d → %d %s\n", request.key, request.Card, request.Cents, status, body)
	}
	fmt.Fprintln(out, "calls of the gateway:", g.charges)
	return nil
}

func send(ctx context.Context, url, key string, c Charge) (int, []byte, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	answer, err := io.ReadAll(res.Body)
	return res.StatusCode, bytes.TrimSpace(answer), errors.Join(err, res.Body.Close())
}
