package httponce_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/internal/mapdb"
)

// A handler whose effect and answer commit together. The database here is a small one in memory; with pgxstore the
// handler gets a pgx.Tx, with sqlitestore a *sql.Tx.
func ExampleHandleTx() {
	db := mapdb.New()
	receiver, err := everonce.NewTxReceiver[*mapdb.Tx](db, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	account := func(r *http.Request) (string, error) { return r.Header.Get("X-Account"), nil }
	pay, err := httponce.HandleTx(receiver, account, func(w http.ResponseWriter, r *http.Request, tx *mapdb.Tx) error {
		if err := tx.Add("payment"); err != nil {
			return err // rolled back; the client is told to come again
		}
		switch r.URL.Query().Get("amount") {
		case "1000000":
			http.Error(w, "the balance is too low", http.StatusPaymentRequired) // rolled back, and saved: it stays refused
		case "13":
			return errors.New("a bug") // rolled back, and logged: the client does not see the error
		default:
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, "paid")
		}
		return nil
	}, &httponce.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", pay)
	for _, request := range []struct{ key, amount string }{
		{"order-7", "1250"}, {"order-7", "1250"}, {"order-8", "1000000"}, {"order-8", "1000000"}, {"order-9", "13"},
	} {
		res := send(mux, http.MethodPost, "/payments?amount="+request.amount, "", "Idempotency-Key", request.key, "X-Account", "acme")
		fmt.Printf("%s %d %q\n", request.key, res.StatusCode, res.Header.Get("Idempotent-Replayed"))
	}
	fmt.Println("payments:", db.Count("payment"))
	// Output:
	// order-7 201 ""
	// order-7 201 "true"
	// order-8 402 ""
	// order-8 402 "true"
	// order-9 503 ""
	// payments: 1
}
