package tested

import (
	"context"
	"database/sql"

	"github.com/everonce/everonce/consume"
)

// Consumer returns the consumer of the payments that come by a queue: each is a charge, in one transaction with its
// record.
func (s *Service) Consumer() (*consume.Consumer, error) {
	return consume.NewTx(s.Tx, consume.TxSpec[Payment, *sql.Tx]{
		Consumer: "payments",
		Key:      consume.Composite("Payment", consume.JSONPointer("/Client"), consume.ProducerID()),
		Handle: func(ctx context.Context, tx *sql.Tx, _ *consume.Message, p Payment) error {
			_, err := s.Bank.Charge(ctx, tx, p)
			return err
		},
	})
}
