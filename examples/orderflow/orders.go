package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/saga"
)

// orderTable has the orders, and how each has ended.
const orderTable = `CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, status TEXT NOT NULL)`

// orders is the order service: it takes orders, and owns their sagas.
type orders struct {
	sagas  *saga.Sagas[*sql.Tx]
	runner *saga.Runner[*sql.Tx]
	http.ServeMux
}

func newOrders(ctx context.Context, d *database, to *services) (*orders, error) {
	fulfil, err := fulfilment(to)
	if err != nil {
		return nil, err
	}
	s := &orders{}
	if s.sagas, err = saga.New(d.receiver); err != nil {
		return nil, err
	}
	if err := s.sagas.Migrate(ctx); err != nil {
		return nil, err
	}
	s.runner, err = s.sagas.Runner(&saga.RunnerOptions{Lease: time.Second, Poll: 100 * time.Millisecond}, fulfil)
	if err != nil {
		return nil, err
	}
	take, err := httponce.HandleTx(d.receiver, shop, func(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
		var o Order
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			http.Error(w, "there is no order in the body", http.StatusBadRequest)
			return nil
		}
		if _, err := tx.ExecContext(r.Context(), `INSERT INTO orders VALUES ($1, 'placed')`, o.ID); err != nil {
			return err
		}
		if err := fulfil.Start(r.Context(), s.sagas, tx, o.ID, o); err != nil {
			return err
		}
		w.WriteHeader(http.StatusAccepted)
		return nil
	}, &httponce.Options{Route: httponce.Route{Required: true}})
	if err != nil {
		return nil, err
	}
	s.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		take.ServeHTTP(w, r)
		s.runner.Wake() // SQLite has no notifications
	})
	s.HandleFunc("POST /retry", s.retry)
	return s, nil
}

func shop(*http.Request) (string, error) { return "shop", nil }

// retry is the operator: it has sagas tried again that were set aside, and answers how many have not ended.
func (s *orders) retry(w http.ResponseWriter, r *http.Request) {
	if _, err := s.sagas.Backlog().Retry(r.Context(), backlog.Filter{States: []backlog.State{backlog.Blocked}}); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	n, err := s.sagas.Backlog().Count(r.Context(), backlog.Filter{States: []backlog.State{backlog.Pending, backlog.InHand, backlog.Blocked}})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, n)
}
