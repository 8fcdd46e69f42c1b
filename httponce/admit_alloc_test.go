//go:build !race

package httponce

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// again is a body that can be sent again.
type again struct{ strings.Reader }

func (again) Close() error { return nil }

// The cost of recognising an operation, in allocations: the exchange, the scope and the body. The handler's request is
// one more.
func TestAllocationsOfARequest(t *testing.T) {
	s, err := (*Options)(nil).settings()
	if err != nil {
		t.Fatal(err)
	}
	body := `{"amount":100,"currency":"EUR","pad":"` + strings.Repeat("x", 160) + `"}`
	for name, key := range map[string]string{
		"raw":    "8e03978e-40d5-43dd-bc93-6894a57f9324",
		"quoted": `"8e03978e-40d5-43dd-bc93-6894a57f9324"`,
	} {
		r := request("POST", "/payments", "", "Idempotency-Key", key)
		src := &again{}
		r.Body, r.ContentLength = src, int64(len(body))
		w := httptest.NewRecorder()
		principal := Principal(func(*http.Request) (string, error) { return "account-7", nil })
		ctx := context.Background()
		n := testing.AllocsPerRun(1000, func() {
			src.Reset(body)
			x, _ := s.admit(w, r, principal)
			if x == nil {
				t.Fatal("refused")
			}
			x.request(ctx)
		})
		if n > 4 {
			t.Errorf("%s: %v allocations, want at most 4", name, n)
		}
	}
}
