package httponce_test

import (
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/memsession"
	"github.com/everonce/everonce/store/memstore"
)

// payment is 200 bytes of JSON, about.
type payment struct {
	ID       string `json:"id"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Customer string `json:"customer"`
	Note     string `json:"note"`
	Ref      string `json:"ref"`
}

var paymentJSON = `{"id":"pay_1234567890","amount":125000,"currency":"EUR","customer":"cus_abcdefghijklmn",` +
	`"note":"` + strings.Repeat("n", 64) + `","ref":"` + strings.Repeat("r", 24) + `"}`

// pay reads a payment and writes one.
func pay(w http.ResponseWriter, r *http.Request) {
	var p payment
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(&p)
}

// echo reads and writes the same bytes without looking at them.
func echo(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(b)
}

// requester makes and serves requests, as cheaply as net/http/httptest can.
func requester(h http.Handler) func(key string) *httptest.ResponseRecorder {
	return func(key string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(paymentJSON))
		r.Header["Idempotency-Key"] = []string{key}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
}

func protectedBench(b testing.TB, h http.Handler, records int) http.Handler {
	b.Helper()
	recv, err := everonce.NewReceiver(memstore.New(&memstore.Options{MaxRecords: records}), everonce.Refuse, nil)
	if err != nil {
		b.Fatal(err)
	}
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), nil)
	if err != nil {
		b.Fatal(err)
	}
	return protect(h)
}

// BenchmarkSession is BenchmarkHandler's json in a session in memory: numbered requests, each with the mark below it.
func BenchmarkSession(b *testing.B) {
	host, err := memsession.New(struct{}{}, session.Config{Lease: time.Hour}, nil)
	if err != nil {
		b.Fatal(err)
	}
	h, err := httponce.HandleSession(host, httponce.Unscoped(), func(w http.ResponseWriter, r *http.Request, _ struct{}) error {
		pay(w, r)
		return nil
	}, nil)
	if err != nil {
		b.Fatal(err)
	}
	register, err := httponce.Sessions(host, httponce.Unscoped(), nil)
	if err != nil {
		b.Fatal(err)
	}
	for name, step := range map[string]int{"first": 1, "replay": 0} {
		b.Run(name, func(b *testing.B) {
			secret := rand.Text() // its letters are valid base64url
			id := send(register, http.MethodPost, "/sessions", "", "Idempotency-Session-Secret", secret).Header.Get("Idempotency-Session")
			b.ReportAllocs()
			number := 1
			for b.Loop() {
				r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(paymentJSON))
				r.Header["Idempotency-Session"], r.Header["Idempotency-Session-Secret"] = []string{id}, []string{secret}
				r.Header["Idempotency-Session-Request"] = []string{strconv.Itoa(number)}
				r.Header["Idempotency-Session-Mark"] = []string{strconv.Itoa(number - 1)}
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code != http.StatusCreated {
					b.Fatal(w.Code, w.Body)
				}
				number += step
			}
		})
	}
}

// BenchmarkHandler compares a bare handler of 200 bytes of JSON with the same behind the middleware, in memory: a first
// execution at most 2.2 times the bare handler's time and 20 allocations more, a replay no slower.
func BenchmarkHandler(b *testing.B) {
	for name, h := range map[string]http.HandlerFunc{"json": pay, "echo": echo} {
		b.Run(name+"/bare", func(b *testing.B) {
			do := requester(h)
			b.ReportAllocs()
			for b.Loop() {
				do("k")
			}
		})
		b.Run(name+"/first", func(b *testing.B) {
			do := requester(protectedBench(b, h, b.N+1))
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if w := do("k" + strconv.Itoa(i)); w.Code != http.StatusCreated {
					b.Fatal(w.Code)
				}
			}
		})
		b.Run(name+"/replay", func(b *testing.B) {
			do := requester(protectedBench(b, h, 1))
			do("k")
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if w := do("k"); w.Header().Get("Idempotent-Replayed") == "" {
					b.Fatal(w.Code)
				}
			}
		})
	}
}
