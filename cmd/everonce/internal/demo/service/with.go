package service

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/payment"
)

// Scope is the scope of the payments' keys.
const Scope everonce.Scope = "shop/payments"

// The steps of a payment.
const (
	StepCharge = "charge"
	StepMail   = "mail"
)

// Store is what the service keeps its records in, together with its books.
type Store interface {
	everonce.TxStore[*sql.Tx]
	Close() error
}

// NewWith returns the service with everonce. lease is how long a payment stays with a process that died.
func NewWith(store Store, mails mailer, lease time.Duration) (*Service, error) {
	opts := &everonce.Options{Lease: lease, EffectsInSteps: true, Owner: "payments:" + strconv.Itoa(os.Getpid())}
	s := &with{store: store, mails: mails}
	var err error
	if s.payments, err = everonce.NewReceiver(store, everonce.Reexecute, opts); err != nil {
		return nil, err
	}
	if s.books, err = everonce.NewTxReceiver(store, opts); err != nil {
		return nil, err
	}
	return newService(s), nil
}

// with pays once for each key: the charge is a step in the transaction of the books, the mail a step
// that is never repeated while nobody knows whether it was sent.
type with struct {
	store    Store
	mails    mailer
	payments *everonce.Receiver
	books    *everonce.TxReceiver[*sql.Tx]
}

func (s *with) close() error { return s.store.Close() }

func (s *with) pay(ctx context.Context, p payment.Payment) (payment.Receipt, bool, error) {
	res, err := everonce.Do(ctx, s.payments, everonce.Key{Scope: Scope, ID: p.Key},
		func(ctx context.Context, a *everonce.Attempt) (payment.Receipt, error) {
			receipt := payment.Receipt{Order: p.Order}
			var err error
			receipt.Charge, err = everonce.StepTx(ctx, a, s.books, StepCharge, func(ctx context.Context, tx *sql.Tx) (int64, error) {
				return charge(ctx, tx, p)
			})
			if err != nil {
				return receipt, err
			}
			receipt.Mail, err = everonce.Step(ctx, a, StepMail, func(ctx context.Context) (string, error) {
				return s.mails.Send(ctx, receiptMail(p, a.DownstreamKey(StepMail)))
			}, everonce.WithPolicy(everonce.Refuse))
			return receipt, err
		}, everonce.FingerprintOf(p.Order, p.Account, p.Amount))
	if err != nil {
		return res.Value, false, refusalOf(err)
	}
	return res.Value, res.Outcome == everonce.Replayed, nil
}

// refusalOf says in the service's words what everonce says.
func refusalOf(err error) error {
	no := &refusal{cause: err}
	no.Message = err.Error()
	var e *everonce.Error
	if errors.As(err, &e) {
		no.RetryAfter = e.RetryAfter.Milliseconds()
	}
	switch {
	case errors.Is(err, everonce.ErrInProgress):
		no.status, no.Code = http.StatusConflict, payment.CodeInProgress
	case errors.Is(err, everonce.ErrOutcomeUnknown):
		no.status, no.Code = http.StatusConflict, payment.CodeUnknown
	case errors.Is(err, everonce.ErrMismatch), errors.Is(err, everonce.ErrInvalidKey):
		no.status, no.Code = http.StatusUnprocessableEntity, "bad_request"
	default:
		no.status, no.Code = http.StatusServiceUnavailable, payment.CodeFailed
	}
	return no
}
