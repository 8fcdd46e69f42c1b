package wire

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"
)

// Stripe's SDKs take an answer without the member error for a success: no problem may lack it.
func TestEveryProblemInStripesForm(t *testing.T) {
	for name, p := range everyProblem(t) {
		w := httptest.NewRecorder()
		p.Send(w, Form{Base: DefaultProblemBase, Stripe: true}, 0)
		var d document
		if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
			t.Fatal(err)
		}
		if d.Error == nil || d.Error.Type == "" || d.Error.Code == "" || d.Error.Message == "" || !d.Is(p) {
			t.Errorf("%s: %s", name, w.Body)
		}
		if h := w.Result().Header; h.Get(StripeShouldRetry) == "true" || h.Get(ShouldRetry) != h.Get(StripeShouldRetry) {
			t.Errorf("%s without a Retry-After: %v", name, h)
		}
	}
}

func TestStripesForm(t *testing.T) {
	reused := StripeError{"idempotency_error", "key_reused", KeyReused.Title + ". " + KeyReused.Detail}
	for _, c := range []struct {
		p          Problem
		retryAfter time.Duration
		error      StripeError
		retry      string
	}{
		{KeyReused, 0, reused, "false"},
		{InProgress, time.Second, StripeError{"idempotency_error", "idempotency_key_in_use", InProgress.Title + ". " + InProgress.Detail}, "true"},
		{Unknown, 0, StripeError{"idempotency_error", "outcome_unknown", Unknown.Title + ". " + Unknown.Detail}, "false"},
		{Unavailable, time.Second, StripeError{"api_error", "store_unavailable", Unavailable.Title + ". " + Unavailable.Detail}, "true"},
		{Lost, 0, StripeError{"api_error", "upstream_lost", Lost.Title + ". " + Lost.Detail}, ""},
		{BodyTooLarge, 0, StripeError{"invalid_request_error", "body_too_large", BodyTooLarge.Title + "."}, "false"},
	} {
		h, text := c.p.Answer(Form{Base: "https://a.example/", Stripe: true}, "", c.retryAfter)
		var d document
		if err := json.Unmarshal(text, &d); err != nil || d.Error == nil || *d.Error != c.error {
			t.Errorf("%s: %s, want %+v", c.p.Name, text, c.error)
		}
		if got := h.Get(StripeShouldRetry); got != c.retry || h.Get(ShouldRetry) != c.retry {
			t.Errorf("%s: %v, want %q", c.p.Name, h, c.retry)
		}
	}
}
