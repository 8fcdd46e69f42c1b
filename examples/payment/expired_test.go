package main

import (
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// TestExpired: a day later neither the receipt nor the text of the refusal is kept; but a declined customer never gets
// the answer that the charge was made.
func TestExpired(t *testing.T) {
	start, passed := time.Now(), new(atomic.Int64)
	store := memstore.New(&memstore.Options{Now: func() time.Time { return start.Add(time.Duration(passed.Load())) }})
	receiver, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &service{receiver: receiver, gateway: new(gateway).charge}
	send := func(card string) string {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/charges", strings.NewReader(`{"card":"`+card+`","cents":1200}`))
		r.Header.Set("Idempotency-Key", "order-"+card)
		w := httptest.NewRecorder()
		s.charge(w, r)
		return w.Result().Status[:4] + strings.TrimSpace(w.Body.String())
	}
	for _, want := range []map[string]string{
		{"good": `200 {"number":"receipt-`, "empty": "402 card_declined: the card is empty"},
		{"good": "410 the charge was made; its receipt is no longer kept", "empty": "402 card_declined"},
	} {
		for card, answer := range want {
			if got := send(card); !strings.HasPrefix(got, answer) {
				t.Errorf("after %v, a %s card: %q, want %q", time.Duration(passed.Load()), card, got, answer)
			}
		}
		passed.Add(int64(25 * time.Hour))
	}
}
