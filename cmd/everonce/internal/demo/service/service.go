// Package service is the demo's payment service: it takes the money in its own database and has the
// customer told by an e-mail. It comes in two builds, with everonce and without, which do the same.
package service

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/everonce/everonce/cmd/everonce/internal/demo/gateway"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/payment"
)

// payer executes payments.
type payer interface {
	pay(ctx context.Context, p payment.Payment) (payment.Receipt, error)
	close() error
}

// route is what the service answers.
const route = "POST /payments"

// Service answers POST /payments, and tells how many payments it is working on (GET /busy).
type Service struct {
	payer payer
	mux   http.ServeMux
	busy  atomic.Int64
}

// newService returns the service. protect stands around its handler.
func newService(p payer, protect func(http.Handler) http.Handler) *Service {
	s := &Service{payer: p}
	s.mux.Handle(route, protect(http.HandlerFunc(s.pay)))
	s.mux.HandleFunc("GET /busy", s.tellBusy)
	return s
}

func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mux.ServeHTTP(w, r)
}

// Close closes the database.
func (s *Service) Close() error { return s.payer.close() }

// pay is the handler, the same in both builds.
func (s *Service) pay(w http.ResponseWriter, r *http.Request) {
	s.busy.Add(1)
	defer s.busy.Add(-1)
	var p payment.Payment
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, "not a payment", http.StatusBadRequest)
		return
	}
	receipt, err := s.payer.pay(r.Context(), p)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(receipt) //nolint:errcheck,errchkjson // whoever asked is gone, and will ask again
}

func (s *Service) tellBusy(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write(strconv.AppendInt(nil, s.busy.Load(), 10)) //nolint:errcheck // the asker is gone
}

// ReceiptMail is what the customer is told. key is the sender's name for it.
func ReceiptMail(p payment.Payment, key string) payment.Mail {
	return payment.Mail{Key: key, Order: p.Order, Account: p.Account, Subject: "Your payment for " + p.Order}
}

// mailer sends mails.
type mailer interface {
	Send(ctx context.Context, mail payment.Mail) (string, error)
}

var _ mailer = (*gateway.Client)(nil)
