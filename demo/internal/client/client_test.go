package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/everonce/everonce/demo/internal/shop"
	"github.com/everonce/everonce/httponce"
)

// script answers the deliveries of each key in their order, and the last answer again and again.
type script struct {
	mu      sync.Mutex
	answers map[string][]http.HandlerFunc
	sent    map[string]int
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, err := httponce.ParseKey(r.Header.Get("Idempotency-Key"))
	if err != nil {
		panic(err)
	}
	s.mu.Lock()
	s.sent[key]++
	answers := s.answers[key]
	next := answers[min(s.sent[key], len(answers))-1]
	s.mu.Unlock()
	next(w, r)
}

func says(status int, body any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
}

func breaks(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func receipt(order string) http.HandlerFunc {
	return says(http.StatusOK, shop.Receipt{Order: order, Charge: 1, Mail: "mail-1"})
}

// problem answers with a problem document, as the middleware does.
func problem(status int, name string) http.HandlerFunc {
	say := says(status, map[string]any{"type": "https://example.org/problems/" + name + ".md", "status": status})
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		say(w, r)
	}
}

var (
	inProgress = problem(http.StatusConflict, "in-progress")
	unsettled  = problem(http.StatusConflict, "outcome-unknown")
	notDone    = problem(http.StatusServiceUnavailable, "not-done")
	fails      = says(http.StatusInternalServerError, "oops")
)

// pay lets a client pay one payment for each list of answers.
func pay(t *testing.T, answers ...[]http.HandlerFunc) (s *script, final int, unknown []shop.Payment, err error) {
	t.Helper()
	s = &script{answers: make(map[string][]http.HandlerFunc), sent: make(map[string]int)}
	payments := make(chan shop.Payment, len(answers))
	for i, a := range answers {
		p := shop.Payment{Key: fmt.Sprintf("payment-%d", i), Order: fmt.Sprintf("order-%d", i), Account: "a", Amount: 1}
		s.answers[p.Key] = a
		payments <- p
	}
	close(payments)
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	c, err := New(srv.URL, 2)
	if err != nil {
		t.Fatal(err)
	}
	unknown, err = c.Pay(t.Context(), payments)
	if n := c.Counts(); n.Waiting != 0 || n.Begun != len(answers) {
		t.Errorf("at the end: %+v", n)
	}
	return s, c.Counts().Final, unknown, err
}

// TestRetries: until there is a final answer, and not after it.
func TestRetries(t *testing.T) {
	t.Parallel()
	s, final, unknown, err := pay(t,
		[]http.HandlerFunc{receipt("order-0")},
		[]http.HandlerFunc{breaks, breaks, receipt("order-1")},
		[]http.HandlerFunc{inProgress, fails, notDone, receipt("order-2")},
	)
	if err != nil || final != 3 || len(unknown) != 0 {
		t.Errorf("%d final, %v unknown, %v", final, unknown, err)
	}
	if s.sent["payment-0"] != 1 || s.sent["payment-1"] != 3 || s.sent["payment-2"] != 4 {
		t.Errorf("sent %v", s.sent)
	}
}

// TestUnknown: what is unknown is left, and the others go on.
func TestUnknown(t *testing.T) {
	t.Parallel()
	s, final, unknown, err := pay(t,
		[]http.HandlerFunc{breaks, unsettled},
		[]http.HandlerFunc{receipt("order-1")},
	)
	if err != nil || final != 1 || len(unknown) != 1 || unknown[0].Key != "payment-0" || s.sent["payment-0"] != 2 {
		t.Errorf("%d final, %v unknown, %v, sent %v", final, unknown, err, s.sent)
	}
}

// TestSettledWithoutAnswer: what an operator has settled as done has no answer, and is final.
func TestSettledWithoutAnswer(t *testing.T) {
	t.Parallel()
	_, final, unknown, err := pay(t, []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(ReplayedHeader, "elided")
	}})
	if err != nil || final != 1 || len(unknown) != 0 {
		t.Errorf("%d final, %v unknown, %v", final, unknown, err)
	}
}

// TestImpossibleAnswers end the run: they are faults of the demo.
func TestImpossibleAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"the receipt of another order": {receipt("order-7"), "the answer to the payment of order-0"},
		"a receipt without a charge":   {says(http.StatusOK, shop.Receipt{Order: "order-0", Mail: "m"}), "the answer to the payment of order-0"},
		"a refusal that is not known":  {problem(http.StatusUnprocessableEntity, "key-reused"), "the service answers 422"},
		"no JSON":                      {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "oops", http.StatusNotFound) }, "the service answers 404"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, _, _, err := pay(t, []http.HandlerFunc{c.answer}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
