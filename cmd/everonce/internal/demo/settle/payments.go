package settle

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/gateway"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/payment"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/service"
	"github.com/everonce/everonce/driver"
)

// Upstream is a service that knows nothing of keys, as its operator sees it.
type Upstream struct {
	// Books are its ledger.
	Books *sql.DB
	// Busy tells how many payments it is working on.
	Busy func(context.Context) (int, error)
	// Mails sends mails, and MailLedger is the ledger of those that were sent.
	Mails      *gateway.Client
	MailLedger string
}

// Payments settles every unknown payment of a proxy's records, at path, by what the ledgers behind it say. The
// payment that a key stands for is told by of.
//
// The service's own crash may have left one half done, charged and without its mail. No proxy can know of
// that: the operator sends the mail, and settles the payment as done. Duplicates learn that it is done, and not
// with which answer.
//
// What is not in the ledgers must not come into them later: so they are read when neither the service nor
// the gateway has anything in work, and the proxy that would have sent the request has answered it as unknown, or
// is gone and its lease is over, which is why its record is abandoned.
func Payments(ctx context.Context, path string, up Upstream, of func(key string) payment.Payment) (done Settled, err error) {
	if err := untilIdle(ctx, up.Busy); err != nil {
		return done, err
	}
	if err := untilIdle(ctx, up.Mails.Busy); err != nil {
		return done, err
	}
	charged, err := service.Charged(ctx, up.Books)
	if err != nil {
		return done, err
	}
	sent, err := mailsByOrder(up.MailLedger)
	if err != nil {
		return done, err
	}
	err = abandoned(ctx, path, func(store everonce.Store, rec *driver.Record) error {
		p := of(rec.Name)
		s := everonce.Settlement{Verdict: everonce.SettleNotDone, By: operator}
		half := false
		if charged[p.Order] {
			s.Verdict = everonce.SettleDone
			half = sent[p.Order] == ""
		}
		if half {
			if _, err := up.Mails.Send(ctx, service.ReceiptMail(p, p.Order)); err != nil {
				return fmt.Errorf("send the mail of a payment that was half done: %w", err)
			}
		}
		if err := everonce.Settle(ctx, store, rec.ID, s); err != nil {
			return fmt.Errorf("settle a payment: %w", err)
		}
		switch {
		case half:
			done.Done++
			done.Finished++
		case s.Verdict == everonce.SettleDone:
			done.Done++
		default:
			done.NotDone++
		}
		return nil
	})
	return done, err
}
