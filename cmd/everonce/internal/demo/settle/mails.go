package settle

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/gateway"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/service"
	"github.com/everonce/everonce/driver"
)

// Mails settles every unknown mail of the service's own records, at path. The order that a payment's key
// stands for is told by order.
//
// A mail that is not in the ledger must not come into it later: so the ledger is read when the gateway has
// nothing more in work, and when the process that would have sent the mail is long gone, which is why
// its record is abandoned.
func Mails(ctx context.Context, path string, gw *gateway.Client, ledger string, order func(key string) string) (done Settled, err error) {
	if err := untilIdle(ctx, gw.Busy); err != nil {
		return done, err
	}
	sent, err := mailsByOrder(ledger)
	if err != nil {
		return done, err
	}
	err = abandoned(ctx, path, func(store everonce.Store, rec *driver.Record) error {
		if rec.UnknownStep != service.StepMail {
			return nil
		}
		return settleMail(ctx, store, rec, sent[order(rec.Name)], &done)
	})
	return done, err
}

func settleMail(ctx context.Context, store everonce.Store, rec *driver.Record, mail string, done *Settled) error {
	s := everonce.Settlement{Step: service.StepMail, Verdict: everonce.SettleNotDone, By: operator}
	if mail != "" {
		encoded, err := json.Marshal(mail)
		if err != nil {
			return err
		}
		s.Verdict, s.Encoded = everonce.SettleDone, encoded
	}
	if err := everonce.Settle(ctx, store, rec.ID, s); err != nil {
		return fmt.Errorf("settle a mail: %w", err)
	}
	if mail != "" {
		done.Done++
	} else {
		done.NotDone++
	}
	return nil
}

func mailsByOrder(ledger string) (map[string]string, error) {
	entries, err := gateway.ReadLedger(ledger)
	if err != nil {
		return nil, err
	}
	sent := make(map[string]string, len(entries))
	for _, e := range entries {
		sent[e.Order] = e.ID
	}
	return sent, nil
}
