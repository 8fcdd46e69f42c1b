package webhook_test

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/everonce/everonce/outbox/webhook"
)

// A message has what a request says of its event, and what is asked for. Credentials would stay in an inbox's table.
func TestReadMessageKeepsWhatDescribesTheEvent(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/hooks", strings.NewReader(`{"id":7}`))
	for _, name := range []string{
		"Authorization", "Cookie", "Proxy-Authorization", "Webhook-Signature", "X-Api-Key", "X-Forwarded-For", "Connection",
		"Ce-Type", "Traceparent", "Content-Type", "Webhook-Id", "Idempotency-Key", "Tenant",
	} {
		r.Header.Set(name, "x")
	}
	m, err := webhook.ReadMessage(r, 100, "TENANT")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"ce-type", "content-type", "idempotency-key", "tenant", "traceparent", "webhook-id"}
	if got := slices.Sorted(maps.Keys(m.Headers)); !slices.Equal(got, want) {
		t.Errorf("its headers are %q", got)
	}
	if again, err := io.ReadAll(r.Body); string(again) != `{"id":7}` || string(m.Body) != `{"id":7}` || err != nil {
		t.Errorf("the body is %q, read again %q: %v", m.Body, again, err)
	}
}
