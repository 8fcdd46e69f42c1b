// Package settle is the demo's operator: it finds the payments whose mail is unknown, looks each up in the
// gateway's ledger, and tells everonce what it found.
package settle

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/gateway"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/service"
	"github.com/everonce/everonce/store/sqlitestore"
)

// Settled counts the mails that were unknown, by what the ledger said of them.
type Settled struct {
	Sent    int
	NotSent int
}

// Unknown returns how many there were.
func (s Settled) Unknown() int { return s.Sent + s.NotSent }

// operator is who stands in the records as having settled them.
const operator = "demo operator"

// Mails settles every unknown mail of the records at path. The order that a payment's key stands for is told by order.
//
// A mail that is not in the ledger must not come into it later: so the ledger is read when the gateway has
// nothing more in work, and when the process that would have sent the mail is long gone, which is why
// its record is abandoned.
func Mails(ctx context.Context, path string, gw *gateway.Client, ledger string, order func(key string) string) (Settled, error) {
	var done Settled
	store, err := sqlitestore.Open(path, &sqlitestore.Options{NoMigrate: true})
	if err != nil {
		return done, err
	}
	defer store.Close() //nolint:errcheck // what was settled is durable
	if err := untilIdle(ctx, gw); err != nil {
		return done, err
	}
	sent, err := mailsByOrder(ledger)
	if err != nil {
		return done, err
	}
	list := everonce.ListRequest{States: []everonce.State{everonce.StateAbandoned}}
	for {
		page, err := store.List(ctx, list)
		if err != nil {
			return done, err
		}
		for i := range page.Records {
			if page.Records[i].UnknownStep != service.StepMail {
				continue
			}
			if err := settleMail(ctx, store, &page.Records[i], sent[order(page.Records[i].Name)], &done); err != nil {
				return done, err
			}
		}
		if page.Next == (everonce.RecordID{}) {
			return done, nil
		}
		list.After = page.Next
	}
}

func settleMail(ctx context.Context, store everonce.Store, rec *everonce.Record, mail string, done *Settled) error {
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
		done.Sent++
	} else {
		done.NotSent++
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

// untilIdle waits until the gateway has nothing in work.
func untilIdle(ctx context.Context, gw *gateway.Client) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		busy, err := gw.Busy(ctx)
		if err != nil || busy == 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
