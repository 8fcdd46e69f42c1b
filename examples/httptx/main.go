// Command httptx is an HTTP API on PostgreSQL whose effects and answers commit together (transactional mode): exactly
// once. It takes the database's URL from DATABASE_URL, sends itself the same request several times, and prints the
// answers.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/pgxstore"
)

// bookings returns the handler of POST /bookings.
func bookings(receiver *everonce.TxReceiver[pgx.Tx]) (http.Handler, error) {
	return httponce.HandleTx(receiver, tenant, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
		var b struct {
			Account string
			Cents   int64
		}
		if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
			http.Error(w, "no booking in the body", http.StatusBadRequest)
			return nil
		}
		var balance int64
		err := tx.QueryRow(r.Context(), `UPDATE account SET cents = cents - $1 WHERE id = $2 RETURNING cents`, b.Cents, b.Account).Scan(&balance)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			http.Error(w, "no such account", http.StatusNotFound)
		case err != nil:
			return err // nothing took hold: the client is told to send it again
		case balance < 0:
			http.Error(w, "the balance is too low", http.StatusPaymentRequired) // takes the update back
		default:
			fmt.Fprintf(w, "balance %d", balance)
		}
		return nil
	}, &httponce.Options{Route: httponce.Route{Required: true}})
}

func tenant(*http.Request) (string, error) { return "bank", nil }

func main() {
	if err := run(context.Background(), os.Stdout, os.Getenv("DATABASE_URL")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := pgxstore.New(pool, nil)
	if err != nil {
		return err
	}
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	for _, text := range []string{
		`CREATE TABLE IF NOT EXISTS account (id text PRIMARY KEY, cents bigint NOT NULL)`,
		`INSERT INTO account VALUES ('alice', 5000) ON CONFLICT (id) DO NOTHING`,
	} {
		if _, err := pool.Exec(ctx, text); err != nil {
			return err
		}
	}
	receiver, err := everonce.NewTxReceiver(store, &everonce.Options{Lifetime: everonce.ForFinance()})
	if err != nil {
		return err
	}
	handler, err := bookings(receiver)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /bookings", handler)
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, r := range []struct{ key, body string }{
		{"order-1", `{"account": "alice", "cents": 1200}`},
		{"order-1", `{"account": "alice", "cents": 1200}`},
		{"order-2", `{"account": "alice", "cents": 9900}`},
		{"order-2", `{"account": "alice", "cents": 9900}`},
		{"order-3", `{"account": "alice", "cents": 800}`},
		{"order-1", `{"account": "alice", "cents": 1200}`},
		{"order-4", `{"account": "unknown", "cents": 1}`},
		{"order-4", `{"account": "unknown", "cents": 1}`},
	} {
		status, replayed, text, err := send(ctx, server.URL+"/bookings", r.key, r.body)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s → %d replayed=%-4s %s\n", r.key, status, replayed, text)
	}
	return nil
}

func send(ctx context.Context, url, key, body string) (status int, replayed, text string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, "", "", err
	}
	req.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", "", err
	}
	answer, err := io.ReadAll(res.Body)
	return res.StatusCode, res.Header.Get("Idempotent-Replayed"), strings.TrimSpace(string(answer)), errors.Join(err, res.Body.Close())
}
