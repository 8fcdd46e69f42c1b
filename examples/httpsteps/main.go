// Command httpsteps is an HTTP API whose handler has several effects: a ride in the database, a charge at a gateway, a
// mail. A gateway loses an answer, the client never comes back, and the ride is finished all the same.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// outside is what is not in the database.
type outside interface {
	// charge takes the money, once for each key. A card that is declined is an everonce.PermanentError.
	charge(ctx context.Context, key string, cents int64) (receipt string, err error)
	// mail knows no keys.
	mail(ctx context.Context, account, text string) error
}

type service struct {
	store    *sqlitestore.Store
	receiver *everonce.Receiver
	steps    *everonce.TxReceiver[*sql.Tx] // for the steps that are in the database
	outside  outside
	protects http.Handler // place, inside the middleware
}

func newService(store *sqlitestore.Store, out outside) (*service, error) {
	s := &service{store: store, outside: out}
	var err error
	if s.steps, err = everonce.NewTxReceiver(store, nil); err != nil {
		return nil, err
	}
	receiver, err := everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{EffectsInSteps: true})
	if err != nil {
		return nil, err
	}
	protect, err := httponce.Middleware(receiver, account, &httponce.Options{Route: httponce.Route{
		Required: true,
		// This service finishes the operation by a request that it makes itself, which has no host name.
		Compare: httponce.Compare{IgnoreHost: true},
	}})
	if err != nil {
		return nil, err
	}
	s.receiver, s.protects = receiver, protect(http.HandlerFunc(s.place))
	return s, nil
}

// api is what clients reach: authentication, and within it the middleware.
func (s *service) api() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /rides", authenticated(s.protects))
	return mux
}

type accountKey struct{}

// authenticated stands for your authentication.
func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, ok := r.BasicAuth()
		if !ok {
			http.Error(w, "sign in", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(as(r.Context(), name)))
	})
}

func as(ctx context.Context, account string) context.Context {
	return context.WithValue(ctx, accountKey{}, account)
}

func account(r *http.Request) (string, error) {
	name, ok := r.Context().Value(accountKey{}).(string)
	if !ok {
		return "", errors.New("no user has signed in")
	}
	return name, nil
}

func (s *service) place(w http.ResponseWriter, r *http.Request) {
	var order struct{ Cents int64 }
	body, err := io.ReadAll(r.Body)
	if err = errors.Join(err, json.Unmarshal(body, &order)); err != nil {
		http.Error(w, "no ride in the body", http.StatusBadRequest)
		return
	}
	ride, err := s.ride(r, body, order.Cents)
	var refused *everonce.PermanentError
	switch {
	case errors.As(err, &refused):
		http.Error(w, refused.Message, http.StatusPaymentRequired) // for good: every repetition gets it
	case err != nil:
		log.Print(err)
		http.Error(w, "not finished yet", http.StatusServiceUnavailable) // released or unknown, as the steps say
	default:
		w.Header().Set("Location", fmt.Sprintf("/rides/%d", ride))
		w.WriteHeader(http.StatusCreated)
	}
}

// ride has all effects, each in a step. Another attempt goes on where this one ends.
func (s *service) ride(r *http.Request, body []byte, cents int64) (ride int64, err error) {
	ctx := r.Context()
	a, ok := everonce.AttemptFrom(ctx)
	if !ok {
		return 0, errors.New("this handler needs the middleware, and a key")
	}
	who, err := account(r)
	if err != nil {
		return 0, err
	}
	// The request is kept with the ride, so that it can be finished without its client.
	ride, err = everonce.StepTx(ctx, a, s.steps, "ride", func(ctx context.Context, tx *sql.Tx) (id int64, err error) {
		err = tx.QueryRowContext(ctx, `INSERT INTO ride (scope, name, account, key, body) VALUES (?, ?, ?, ?, ?) RETURNING id`,
			a.Key().Scope, a.Key().ID, who, r.Header.Get("Idempotency-Key"), body).Scan(&id)
		return id, err
	})
	if err != nil {
		return 0, err
	}
	// The gateway drops a key that it has: when in doubt, again.
	receipt, err := everonce.Step(ctx, a, "charge", func(ctx context.Context) (string, error) {
		return s.outside.charge(ctx, a.DownstreamKey("charge"), cents)
	}, everonce.WithPolicy(everonce.Reexecute))
	if err != nil {
		return 0, err
	}
	// A mail has no key: never twice. That is the receiver's policy.
	_, err = everonce.Step(ctx, a, "mail", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.outside.mail(ctx, who, receipt)
	})
	return ride, err
}

func main() {
	dir, err := os.MkdirTemp("", "everonce-httpsteps-")
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), os.Stdout, filepath.Join(dir, "rides.db"))
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		log.Fatal(err)
	}
}
