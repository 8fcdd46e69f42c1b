package service

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/everonce/everonce/cmd/everonce/internal/demo/payment"
)

// OpenWithout opens the service with everonce taken out. It knows nothing of keys.
func OpenWithout(path string, mails mailer) (*Service, error) {
	db, err := OpenBooks(path)
	if err != nil {
		return nil, err
	}
	return newService(&without{db: db, mails: mails}, func(h http.Handler) http.Handler { return h }), nil
}

// without pays whenever it is asked to.
type without struct {
	db    *sql.DB
	mails mailer
}

func (s *without) close() error { return s.db.Close() }

func (s *without) pay(ctx context.Context, p payment.Payment) (receipt payment.Receipt, err error) {
	receipt.Order = p.Order
	if receipt.Charge, err = s.charge(ctx, p); err != nil {
		return receipt, err
	}
	receipt.Mail, err = s.mails.Send(ctx, ReceiptMail(p, p.Order))
	return receipt, err
}

func (s *without) charge(ctx context.Context, p payment.Payment) (int64, error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	id, err := charge(ctx, tx, p)
	if err != nil {
		return 0, err
	}
	return id, tx.Commit()
}
