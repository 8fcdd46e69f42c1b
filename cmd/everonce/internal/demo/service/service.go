// Package service is the demo's payment service: it takes the money in its own database and has the
// customer told by an e-mail. It comes in two builds, with everonce and without, which do the same.
package service

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/everonce/everonce/cmd/everonce/internal/demo/gateway"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/payment"
)

// payer executes payments. Refusals are errors of type *refusal.
type payer interface {
	pay(ctx context.Context, p payment.Payment) (r payment.Receipt, replayed bool, err error)
	close() error
}

// Service answers POST /payments.
type Service struct {
	payer payer
	mux   http.ServeMux
}

func newService(p payer) *Service {
	s := &Service{payer: p}
	s.mux.HandleFunc("POST /payments", s.pay)
	return s
}

func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mux.ServeHTTP(w, r)
}

// Close closes the database.
func (s *Service) Close() error { return s.payer.close() }

// refusal is a refusal with its HTTP status.
type refusal struct {
	status int
	payment.Refusal
	cause error
}

func (r *refusal) Error() string { return r.Message }
func (r *refusal) Unwrap() error { return r.cause }

func (s *Service) pay(w http.ResponseWriter, r *http.Request) {
	p := payment.Payment{Key: r.Header.Get(payment.KeyHeader)}
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		answer(w, http.StatusBadRequest, payment.Refusal{Code: "bad_request", Message: "not a payment"})
		return
	}
	receipt, replayed, err := s.payer.pay(r.Context(), p)
	if err != nil {
		refuse(w, err)
		return
	}
	if replayed {
		w.Header().Set(payment.ReplayedHeader, "true")
	}
	answer(w, http.StatusOK, receipt)
}

func refuse(w http.ResponseWriter, err error) {
	no, ok := err.(*refusal) //nolint:errorlint // never wrapped
	if !ok {
		no = &refusal{status: http.StatusInternalServerError, Refusal: payment.Refusal{Code: payment.CodeFailed, Message: err.Error()}}
	}
	answer(w, no.status, no.Refusal)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) //nolint:errcheck,errchkjson // whoever asked is gone, and will ask again
}

// receiptMail is what the customer is told.
func receiptMail(p payment.Payment, key string) payment.Mail {
	return payment.Mail{Key: key, Order: p.Order, Account: p.Account, Subject: "Your payment for " + p.Order}
}

// mailer sends mails.
type mailer interface {
	Send(ctx context.Context, mail payment.Mail) (string, error)
}

var _ mailer = (*gateway.Client)(nil)
