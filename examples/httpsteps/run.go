package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// world is the gateway and the mail server, and what they have done.
type world struct {
	out     io.Writer
	charged map[string]string // by key
	lost    string            // whose answer the network loses: "charge" or "mail"
}

var errTimeout = errors.New("timeout")

func (w *world) charge(_ context.Context, key string, cents int64) (string, error) {
	if cents > 10000 {
		return "", everonce.Permanent("declined", errors.New("the card is declined"), nil)
	}
	if w.charged[key] == "" {
		w.charged[key] = fmt.Sprintf("receipt-%d", len(w.charged)+1)
		fmt.Fprintln(w.out, "  gateway: charged", cents)
	} else {
		fmt.Fprintln(w.out, "  gateway: this key is known")
	}
	if w.lost == "charge" {
		return "", errTimeout
	}
	return w.charged[key], nil
}

func (w *world) mail(_ context.Context, account, text string) error {
	fmt.Fprintf(w.out, "  mail to %s: %s\n", account, text)
	if w.lost == "mail" {
		return errTimeout
	}
	return nil
}

func run(ctx context.Context, out io.Writer, file string) (err error) {
	store, err := sqlitestore.Open(ctx, file, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := tables(ctx, store); err != nil {
		return err
	}
	w := &world{out: out, charged: map[string]string{}}
	s, err := newService(store, w)
	if err != nil {
		return err
	}
	server := httptest.NewServer(s.api())
	defer server.Close()

	for _, r := range []struct {
		key   string
		cents int
		lost  string
	}{
		{"ride-1", 1200, "charge"},
		{"", 0, ""},
		{"ride-1", 1200, ""},
		{"ride-1", 1200, ""},
		{"ride-2", 99999, ""},
		{"ride-2", 99999, ""},
		{"ride-3", 1300, "mail"},
		{"ride-3", 1300, ""},
		{"", 0, ""},
	} {
		w.lost = r.lost
		if r.key == "" {
			n, err := s.finish(ctx, 0)
			if err != nil {
				return err
			}
			fmt.Fprintln(out, "the service itself: found", n)
			continue
		}
		if err := send(ctx, out, server.URL, r.key, r.cents); err != nil {
			return err
		}
	}
	return nil
}

func tables(ctx context.Context, store *sqlitestore.Store) error {
	_, err := store.DB().ExecContext(ctx, `CREATE TABLE ride (id INTEGER PRIMARY KEY, scope TEXT NOT NULL, name TEXT NOT NULL,
		account TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL, UNIQUE (scope, name))`)
	return err
}

func send(ctx context.Context, out io.Writer, url, key string, cents int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/rides", strings.NewReader(fmt.Sprintf(`{"cents":%d}`, cents)))
	if err != nil {
		return err
	}
	req.SetBasicAuth("alice", "secret")
	req.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return err
	}
	text := strings.TrimSpace(string(body)) + res.Header.Get("Location")
	if res.Header.Get("Content-Type") == "application/problem+json" {
		text = "(a problem)"
	}
	fmt.Fprintf(out, "alice %s: %d %s\n", key, res.StatusCode, text)
	return nil
}
