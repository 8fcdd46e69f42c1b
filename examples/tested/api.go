package tested

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/everonce/everonce/httponce"
)

// API returns the handler of POST /payments: each is a charge, in one transaction with its record and its answer.
func (s *Service) API() (http.Handler, error) {
	return httponce.HandleTx(s.Tx, client, func(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
		var p Payment
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			http.Error(w, "no payment in the body", http.StatusBadRequest)
			return nil
		}
		p.Client, _, _ = r.BasicAuth() // the user who has signed in, whatever the body says
		balance, err := s.Bank.Charge(r.Context(), tx, p)
		if err != nil {
			return err
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "balance %d", balance)
		return nil
	}, &httponce.Options{Route: httponce.Route{Required: true}})
}

// client tells whose request it is.
func client(r *http.Request) (string, error) {
	name, _, ok := r.BasicAuth()
	if !ok {
		return "", errors.New("no user has signed in")
	}
	return name, nil
}
