package httponce_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/memsession"
)

// Clients number their requests. The host here is one in memory, and the handlers act on a map; with sqlsession the handler
// gets a transaction of the database, and effect and answer are one commit.
func ExampleHandleSession() {
	balances := map[string]int{"alice": 100}
	host, err := memsession.New(balances, session.Config{Lease: 10 * time.Minute}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	sender := func(r *http.Request) (string, error) { return r.Header.Get("X-Account"), nil }
	withdraw, err := httponce.HandleSession(host, sender, func(w http.ResponseWriter, r *http.Request, balances map[string]int) error {
		balances["alice"] -= 10
		_, err := fmt.Fprint(w, balances["alice"])
		return err
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

	account, secret := []string{"X-Account", "alice"}, []string{"Idempotency-Session-Secret", `"c2VjcmV0LW9mLXR1dG9yaWFs"`}
	registered := send(mux, http.MethodPost, "/sessions", "", append(account, secret...)...)
	id := registered.Header.Get("Idempotency-Session")
	for _, request := range []struct{ number, mark string }{{"1", "0"}, {"1", "0"}, {"2", "1"}, {"1", "0"}} {
		res := send(mux, http.MethodPost, "/withdrawals", "", "X-Account", "alice", secret[0], secret[1],
			"Idempotency-Session", id, "Idempotency-Session-Request", request.number, "Idempotency-Session-Mark", request.mark)
		fmt.Printf("%s %d %q\n", request.number, res.StatusCode, res.Header.Get("Idempotent-Replayed"))
	}
	fmt.Println("balance:", balances["alice"])
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
