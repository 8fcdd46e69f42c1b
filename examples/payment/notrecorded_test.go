package main

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// failing is a store that is gone when the end of a charge is to be saved.
type failing struct{ everonce.Store }

func (*failing) Complete(context.Context, driver.CompleteRequest) (driver.CompleteResult, error) {
	return driver.CompleteResult{}, errors.New("connection refused")
}

// TestNotRecorded: what the gateway has said goes to the client: a receipt of a charge that was made, and never one of
// a charge that was declined.
func TestNotRecorded(t *testing.T) {
	receiver, err := everonce.NewReceiver(&failing{memstore.New(nil)}, everonce.Refuse, &everonce.Options{CompletionLimit: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s := &service{receiver: receiver, gateway: new(gateway).charge}
	for card, want := range map[string]string{
		"good":  `200 {"number":"receipt-`,
		"empty": "402 card_declined: the card is empty",
	} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/charges", strings.NewReader(`{"card":"`+card+`","cents":1200}`))
		r.Header.Set("Idempotency-Key", "order-"+card)
		w := httptest.NewRecorder()
		s.charge(w, r)
		if got := w.Result().Status[:4] + w.Body.String(); !strings.HasPrefix(got, want) {
			t.Errorf("a %s card: %q, want %q", card, got, want)
		}
	}
}
