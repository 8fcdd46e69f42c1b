package routers

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// routers are the routers of this package.
var routers = map[string]func(*everonce.Receiver, http.HandlerFunc) (http.Handler, error){
	"chi": Chi, "gin": Gin,
	"echo": func(receiver *everonce.Receiver, pay http.HandlerFunc) (http.Handler, error) {
		return Echo(receiver, echo.WrapHandler(pay))
	},
}

// TestOnceBehindEachRouter sends one payment three times, the same key for another order, and the same key of
// another account.
func TestOnceBehindEachRouter(t *testing.T) {
	gin.SetMode(gin.TestMode)
	for name, router := range routers {
		t.Run(name, func(t *testing.T) {
			receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
			if err != nil {
				t.Fatal(err)
			}
			payments := 0
			handler, err := router(receiver, func(w http.ResponseWriter, r *http.Request) {
				payments++
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				w.Header().Set("Content-Type", "text/plain")
				w.WriteHeader(http.StatusCreated)
				fmt.Fprintf(w, "payment %d of %s", payments, body)
			})
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(handler)
			defer server.Close()
			for _, step := range []struct {
				account, path string
				status        int
				replayed      string
				body          string
			}{
				{"alice", "/orders/7/payments", 201, "", "payment 1 of 12 EUR"},
				{"alice", "/orders/7/payments", 201, "true", "payment 1 of 12 EUR"},
				{"alice", "/orders/7/payments", 201, "true", "payment 1 of 12 EUR"},
				{"alice", "/orders/8/payments", 422, "", ""},
				{"bob", "/orders/7/payments", 201, "", "payment 2 of 12 EUR"},
				{"", "/orders/7/payments", 403, "", ""},
			} {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+step.path, strings.NewReader("12 EUR"))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Idempotency-Key", "k-1")
				req.Header.Set("X-Account", step.account)
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(res.Body)
				if err != nil {
					t.Fatal(err)
				}
				if err := res.Body.Close(); err != nil {
					t.Fatal(err)
				}
				if res.StatusCode != step.status || res.Header.Get("Idempotent-Replayed") != step.replayed || step.body != "" && string(body) != step.body {
					t.Errorf("%s %s: %d %q %s", step.account, step.path, res.StatusCode, res.Header.Get("Idempotent-Replayed"), body)
				}
			}
			if payments != 2 {
				t.Errorf("%d payments, want 2", payments)
			}
		})
	}
}

// TestErrorsOfEcho: what a handler of echo returns is an answer as any other, saved or unknown by its status, and no
// empty 200.
func TestErrorsOfEcho(t *testing.T) {
	for want, failed := range map[string]error{
		"402 402": echo.NewHTTPError(http.StatusPaymentRequired, "no money"),
		"500 409": errors.New("broken"),
	} {
		receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		handler, err := Echo(receiver, func(*echo.Context) error { calls++; return failed })
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for range 2 {
			r := httptest.NewRequest(http.MethodPost, "/orders/7/payments", http.NoBody)
			r.Header.Set("Idempotency-Key", "k-1")
			r.Header.Set("X-Account", "alice")
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			got = append(got, strconv.Itoa(w.Code))
		}
		if answers := strings.Join(got, " "); answers != want || calls != 1 {
			t.Errorf("%v: answered %s, called %d times; want %s, and once", failed, answers, calls, want)
		}
	}
}
