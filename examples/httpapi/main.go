// Command httpapi is an HTTP API that charges once, however often a request is sent. It sends itself the same
// request several times and prints the answers.
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
	"path/filepath"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// api returns the service. The lines that name everonce and httponce protect it.
func api(store everonce.Store, charge func(cents int64) (receipt string)) (http.Handler, error) {
	receiver, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		return nil, err
	}
	protect, err := httponce.Middleware(receiver, account, &httponce.Options{Route: httponce.Route{Required: true}})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /charges", protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c struct{ Cents int64 }
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil || c.Cents <= 0 {
			http.Error(w, "no charge in the body", http.StatusBadRequest)
			return
		}
		receipt := charge(c.Cents)
		w.Header().Set("Location", "/charges/"+receipt)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "receipt %s over %d", receipt, c.Cents)
	})))
	return mux, nil
}

// account returns the account of a request. A service uses its authentication; a saved answer is only sent to the same
// account.
func account(r *http.Request) (string, error) {
	name, _, ok := r.BasicAuth()
	if !ok {
		return "", errors.New("no user has signed in")
	}
	return name, nil
}

func main() {
	dir, err := os.MkdirTemp("", "everonce-httpapi-")
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), os.Stdout, filepath.Join(dir, "api.db"))
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
	charges := 0
	handler, err := api(store, func(int64) string { charges++; return fmt.Sprintf("r-%d", charges) })
	if err != nil {
		return err
	}
	server := httptest.NewServer(handler)
	defer server.Close()

	for _, r := range []struct{ account, key, body string }{
		{"alice", "order-1", `{"cents": 1200}`},
		{"alice", "order-1", `{"cents": 1200}`},
		{"alice", "order-1", `{"cents": 9900}`},
		{"bob", "order-1", `{"cents": 1200}`},
		{"bob", "order-2", `{"cents": -1}`},
		{"bob", "order-2", `{"cents": -1}`},
		{"bob", "", `{"cents": 1200}`},
	} {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/charges", strings.NewReader(r.body))
		if err != nil {
			return err
		}
		req.SetBasicAuth(r.account, "secret")
		if r.key != "" {
			req.Header.Set("Idempotency-Key", r.key)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(res.Body)
		if err = errors.Join(err, res.Body.Close()); err != nil {
			return err
		}
		fmt.Fprintf(out, "%-5s %-7s %s → %d replayed=%-4s %s\n", r.account, r.key, r.body, res.StatusCode, res.Header.Get("Idempotent-Replayed"), brief(res, text))
	}
	fmt.Fprintln(out, "charges:", charges)
	return nil
}

// brief returns what a body says: a problem its title, and else all of it.
func brief(res *http.Response, body []byte) string {
	var problem struct{ Title string }
	if res.Header.Get("Content-Type") == "application/problem+json" && json.Unmarshal(body, &problem) == nil {
		return "problem: " + problem.Title
	}
	return strings.TrimSpace(string(body))
}
