package httponce_test

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/memsession"
)

// balances is what the example's handlers act on, at the same time.
type balances struct {
	mu sync.Mutex
	of map[string]int
}

// Clients number their requests. The host here is one in memory, and the handlers act on a map; with sqlsession the
// handler gets a transaction of the database, and effect and answer are one commit.
func ExampleHandleSession() {
	bank := &balances{of: map[string]int{"alice": 100}}
	host, err := memsession.New(bank, session.Config{Lease: 10 * time.Minute, PerPrincipal: 10}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	sender := func(r *http.Request) (string, error) {
		name, password, _ := r.BasicAuth()
		if name != "alice" || subtle.ConstantTimeCompare([]byte(password), []byte("her-password")) == 0 {
			return "", errors.New("not authenticated")
		}
		return name, nil
	}
	withdraw, err := httponce.HandleSession(host, sender, func(w http.ResponseWriter, r *http.Request, bank *balances) error {
		name, _, _ := r.BasicAuth()
		bank.mu.Lock()
		defer bank.mu.Unlock()
		bank.of[name] -= 10
		fmt.Fprint(w, bank.of[name])
		return nil // in memory, nothing is taken back after an error
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	register, err := httponce.Sessions(host, sender, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("POST /withdrawals", withdraw)
	mux.Handle("/sessions", register)

	account, secret := []string{"Authorization", "Basic YWxpY2U6aGVyLXBhc3N3b3Jk"}, []string{"Idempotency-Session-Secret", `"c2VjcmV0LW9mLXR1dG9yaWFs"`}
	registered := send(mux, http.MethodPost, "/sessions", "", append(account, secret...)...)
	id := registered.Header.Get("Idempotency-Session")
	for _, request := range []struct{ number, mark string }{{"1", "0"}, {"1", "0"}, {"2", "1"}, {"1", "0"}} {
		res := send(mux, http.MethodPost, "/withdrawals", "", account[0], account[1], secret[0], secret[1],
			"Idempotency-Session", id, "Idempotency-Session-Request", request.number, "Idempotency-Session-Mark", request.mark)
		fmt.Printf("%s %d %q\n", request.number, res.StatusCode, res.Header.Get("Idempotent-Replayed"))
	}
	fmt.Println("balance:", bank.of["alice"])
	// Output:
	// 1 200 ""
	// 1 200 "true"
	// 2 200 ""
	// 1 410 ""
	// balance: 80
}

// A session is registered with a secret, renewed, and ended. client.Session does all of this.
func ExampleSessions() {
	host, err := memsession.New(struct{}{}, session.Config{Lease: 10 * time.Minute}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	sessions, err := httponce.Sessions(host, httponce.Unscoped(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	secret := []string{"Idempotency-Session-Secret", `"c2VjcmV0LW9mLXR1dG9yaWFs"`}
	registered := send(sessions, http.MethodPost, "/sessions", "", secret...)
	id := registered.Header.Get("Idempotency-Session")
	fmt.Println(registered.Status, id, registered.Header.Get("Idempotency-Session-Lease"))
	mine := append(secret, "Idempotency-Session", id, "Idempotency-Session-Mark", "7")
	fmt.Println(send(sessions, http.MethodPut, "/sessions", "", mine...).Status)
	fmt.Println(send(sessions, http.MethodDelete, "/sessions", "", mine...).Status)
	// Output:
	// 201 Created 1 600
	// 204 No Content
	// 204 No Content
}
