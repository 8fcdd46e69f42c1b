package main

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/store/memstore"
)

// TestNotRecorded: what the gateway has said goes to the client: a receipt of a charge that was made, and never one of
// a charge that was declined.
func TestNotRecorded(t *testing.T) {
	store := oncetest.FaultStore(memstore.New(nil), func(c oncetest.Call) oncetest.Fault { // it is gone when the end of a charge is to be saved
		if c.Op == oncetest.OpComplete {
			return oncetest.FailBefore
		}
		return oncetest.Pass
	})
	receiver, err := everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{CompletionTimeout: time.Millisecond})
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
