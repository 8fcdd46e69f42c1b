package service

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/payment"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce"
)

// The steps of a payment.
const (
	StepCharge = "charge"
	StepMail   = "mail"
)

// grace is how much longer than a lease a request waits for another one with the same key: until it has taken
// over from a process that was killed.
const grace = 500 * time.Millisecond

// Store is what the service keeps its records in, together with its books.
type Store interface {
	driver.TxStore[*sql.Tx]
	Close() error
}

// NewWith returns the service with everonce: its handler in the middleware. lease is how long a payment stays
// with a process that died.
func NewWith(store Store, mails mailer, lease time.Duration) (*Service, error) {
	opts := &everonce.Options{Lease: lease, EffectsInSteps: true, Owner: "payments:" + strconv.Itoa(os.Getpid())}
	payments, err := everonce.NewReceiver(store, everonce.Reexecute, opts)
	if err != nil {
		return nil, err
	}
	books, err := everonce.NewTxReceiver(store, opts)
	if err != nil {
		return nil, err
	}
	protect, err := httponce.Middleware(payments, httponce.Unscoped(), &httponce.Options{
		Route: httponce.Route{Required: true, Wait: lease + grace},
	})
	if err != nil {
		return nil, err
	}
	return newService(&with{store: store, mails: mails, books: books}, protect), nil
}

// with pays once for each key: the charge is a step in the transaction of the books, the mail a step
// that is never repeated while nobody knows whether it was sent.
type with struct {
	store Store
	mails mailer
	books *everonce.TxReceiver[*sql.Tx]
}

func (s *with) close() error { return s.store.Close() }

var errNoAttempt = errors.New("the payment came past the middleware")

func (s *with) pay(ctx context.Context, p payment.Payment) (receipt payment.Receipt, err error) {
	a, ok := everonce.AttemptFrom(ctx)
	if !ok {
		return receipt, errNoAttempt
	}
	receipt.Order = p.Order
	receipt.Charge, err = everonce.StepTx(ctx, a, s.books, StepCharge, func(ctx context.Context, tx *sql.Tx) (int64, error) {
		return charge(ctx, tx, p)
	})
	if err != nil {
		return receipt, err
	}
	receipt.Mail, err = everonce.Step(ctx, a, StepMail, func(ctx context.Context) (string, error) {
		return s.mails.Send(ctx, ReceiptMail(p, a.DownstreamKey(StepMail)))
	}, everonce.WithPolicy(everonce.Refuse))
	return receipt, err
}
