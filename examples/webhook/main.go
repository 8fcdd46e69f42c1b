// Command webhook receives events of a provider that sends no Idempotency-Key: the key is the event's ID, which is in
// its body. It sends itself some events and prints the answers.
package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// events returns the handler of the provider's webhook.
func events(receiver *everonce.TxReceiver[*sql.Tx], secret []byte) (http.Handler, error) {
	provider := func(*http.Request) (string, error) { return "provider", nil } // the signature says so
	once, err := httponce.HandleTx(receiver, provider, book, &httponce.Options{Route: httponce.Route{
		Required: true,
		// Other fields of an event may differ when it is sent again, like the time of sending.
		Compare: httponce.Compare{JSON: true, JSONOnly: []string{"/id", "/type"}},
	}})
	if err != nil {
		return nil, err
	}
	return keyed(secret, once), nil
}

// keyed lets through what the provider has signed, with the event's ID as its key, whatever key it came with.
func keyed(secret []byte, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil || !signed(secret, body, r.Header.Get("X-Signature")) {
			http.Error(w, "not signed", http.StatusUnauthorized)
			return
		}
		var event struct{ ID string }
		if err := json.Unmarshal(body, &event); err != nil || event.ID == "" {
			http.Error(w, "no event in the body", http.StatusBadRequest)
			return
		}
		r.Header.Set("Idempotency-Key", event.ID)
		r.Body = io.NopCloser(bytes.NewReader(body)) // the middleware reads it again
		next.ServeHTTP(w, r)
	})
}

func signed(secret, body []byte, signature string) bool {
	sum, err := hex.DecodeString(signature)
	return err == nil && hmac.Equal(sum, sign(secret, body))
}

func sign(secret, body []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write(body)
	return mac.Sum(nil)
}

// book has its effect in the database of the record.
func book(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
	var event struct{ ID, Type string }
	if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
		http.Error(w, "no event in the body", http.StatusBadRequest)
		return nil
	}
	_, err := tx.ExecContext(r.Context(), `INSERT INTO event (id, type) VALUES (?, ?)`, event.ID, event.Type)
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func main() {
	dir, err := os.MkdirTemp("", "everonce-webhook-")
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), os.Stdout, filepath.Join(dir, "events.db"))
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, file string) (err error) {
	store, err := sqlitestore.Open(ctx, file, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	// No unique ID here: what keeps it to one row for each event is the record.
	if _, err := store.DB().ExecContext(ctx, `CREATE TABLE event (id TEXT NOT NULL, type TEXT NOT NULL)`); err != nil {
		return err
	}
	receiver, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		return err
	}
	secret := []byte("whsec_1")
	handler, err := events(receiver, secret)
	if err != nil {
		return err
	}
	for _, e := range []struct{ secret, key, body string }{
		{"whsec_1", "", `{"id":"evt_1","type":"paid","sent":1}`},
		{"whsec_1", "", `{"id":"evt_1","type":"paid","sent":2}`},
		{"whsec_1", "another", `{"id":"evt_1","type":"paid","sent":3}`},
		{"whsec_1", "", `{"id":"evt_1","type":"refunded","sent":4}`},
		{"whsec_1", "", `{"id":"evt_2","type":"paid","sent":5}`},
		{"forged", "", `{"id":"evt_3","type":"paid","sent":6}`},
		{"whsec_1", "", `{"type":"paid"}`},
	} {
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/events", strings.NewReader(e.body))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Signature", hex.EncodeToString(sign([]byte(e.secret), []byte(e.body))))
		if e.key != "" {
			req.Header.Set("Idempotency-Key", e.key)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		fmt.Fprintln(out, e.body, w.Code, w.Header().Get("Idempotent-Replayed"))
	}
	var rows int
	err = store.DB().QueryRowContext(ctx, `SELECT count(*) FROM event`).Scan(&rows)
	fmt.Fprintln(out, "rows:", rows)
	return err
}
