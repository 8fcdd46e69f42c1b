package demo

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/demo/internal/process"
	"github.com/everonce/everonce/demo/internal/shop"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/sqlitestore"
)

// settled counts what was unknown, by what the ledgers said of it: mails, or whole payments where a proxy keeps the
// records.
type settled struct {
	done, notDone int
	// finished counts the payments of done that a crash had left charged and without a mail: the operator sent it.
	finished int
}

// unknown returns how many there were.
func (s settled) unknown() int { return s.done + s.notDone }

// ledgers are what the demo's operator looks into.
type ledgers struct {
	charges map[string]int      // by order
	mails   map[string][]string // by order
}

// settle does the operator's work: it finds what is unknown, looks it up in the ledgers, and tells everonce what it
// found.
//
// A ledger must not gain an entry after it was read. So the ledgers are read when neither the service nor the gateway
// is working, and the process that would continue is gone, which is why its record is abandoned.
func (r *run) settle(ctx context.Context) (err error) {
	for _, c := range []*process.Child{r.service, r.gateway} {
		if err := untilIdle(ctx, c); err != nil {
			return err
		}
	}
	books, err := shop.OpenBooks(r.books())
	if err != nil {
		return err
	}
	defer books.Close() //nolint:errcheck // it was only read
	var l ledgers
	if l.charges, err = shop.Charges(ctx, books); err != nil {
		return err
	}
	if l.mails, err = shop.ReadMails(r.mails()); err != nil {
		return err
	}
	store, err := sqlitestore.Open(ctx, r.records(), &sqlitestore.Options{NoMigrate: true})
	if err != nil {
		return err
	}
	defer store.Close() //nolint:errcheck // what was settled is durable
	list := driver.ListRequest{States: []driver.State{driver.StateAbandoned}}
	for {
		page, err := store.List(ctx, list)
		if err != nil {
			return err
		}
		for i := range page.Records {
			if err := r.settleRecord(ctx, store, l, &page.Records[i]); err != nil {
				return fmt.Errorf("settle %s: %w", page.Records[i].Name, err)
			}
		}
		if list.After = page.Next; list.After == (driver.RecordID{}) {
			return nil
		}
	}
}

// untilIdle waits until a program is working on nothing.
func untilIdle(ctx context.Context, c *process.Child) (err error) {
	idle := func() bool {
		var n int
		n, err = c.Busy(ctx)
		return err != nil || n == 0
	}
	if ended := await(ctx, 0, idle); ended != nil {
		return ended
	}
	return err
}

// settleRecord settles a mail of the service's own records, or a payment of the proxy's.
//
// The service's own crash may have left a payment half done, charged and without its mail, and no proxy can detect
// that. The operator sends the mail, and settles the payment as done. Duplicates learn that it is done, but not with
// which answer.
func (r *run) settleRecord(ctx context.Context, store driver.Store, l ledgers, rec *driver.Record) error {
	p := r.payments[slices.IndexFunc(r.payments, func(p shop.Payment) bool { return p.Key == rec.Name })]
	mails := l.mails[p.Order]
	done := len(mails) > 0
	s := everonce.Settlement{Verdict: everonce.SettleNotDone, By: "demo operator"}
	switch {
	case r.viaProxy():
		done = l.charges[p.Order] > 0
		if done && len(mails) == 0 {
			if _, err := shop.NewMailer(r.gateway.Addr()).Send(ctx, shop.ReceiptMail(p, p.Order)); err != nil {
				return err
			}
			r.outcome.settled.finished++
		}
	case rec.UnknownStep != shop.StepMail:
		return nil
	case done:
		s.Encoded = strconv.AppendQuote(nil, mails[len(mails)-1])
		fallthrough
	default:
		s.Step = shop.StepMail
	}
	if done {
		s.Verdict = everonce.SettleDone
	}
	if err := everonce.Settle(ctx, store, rec.ID, s); err != nil {
		return err
	}
	if done {
		r.outcome.settled.done++
	} else {
		r.outcome.settled.notDone++
	}
	return nil
}
