package demo

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/demo/internal/process"
	"github.com/everonce/everonce/demo/internal/shop"
	"github.com/everonce/everonce/store/sqlitestore"
)

// settled counts what was unknown, by what the ledgers said of it: mails, or whole payments where a proxy keeps the
// records.
type settled struct {
	done, notDone int
	// finished are those of done that a crash had left half done, charged and without a mail: the operator sent it.
	finished int
}

// unknown returns how many there were.
func (s settled) unknown() int { return s.done + s.notDone }

// operator is the demo's operator: it finds what is unknown, looks it up in the ledgers, and tells everonce what it found.
type operator struct {
	store    *sqlitestore.Store
	viaProxy bool
	payments map[string]shop.Payment // by key
	charges  map[string]int          // by order
	mails    map[string][]string     // by order
	mailer   *shop.Mailer
	settled  *settled
}

// settle settles all that is unknown.
//
// What is not in the ledgers must not come into them later. So they are read when neither the service nor the gateway
// is working on anything, and the process that would go on is gone, which is why its record is abandoned.
func (r *run) settle(ctx context.Context) (err error) {
	o := &operator{viaProxy: r.viaProxy(), payments: make(map[string]shop.Payment), mailer: shop.NewMailer(r.gateway.Addr()), settled: &r.outcome.settled}
	for _, p := range r.payments {
		o.payments[p.Key] = p
	}
	if o.viaProxy {
		if err := untilIdle(ctx, r.service); err != nil {
			return err
		}
	}
	if err := untilIdle(ctx, r.gateway); err != nil {
		return err
	}
	books, err := shop.OpenBooks(r.books())
	if err != nil {
		return err
	}
	defer books.Close() //nolint:errcheck // it was only read
	if o.charges, err = shop.Charges(ctx, books); err != nil {
		return err
	}
	if o.mails, err = shop.ReadMails(r.mails()); err != nil {
		return err
	}
	if o.store, err = sqlitestore.Open(r.records(), &sqlitestore.Options{NoMigrate: true}); err != nil {
		return err
	}
	defer o.store.Close() //nolint:errcheck // what was settled is durable
	list := everonce.ListRequest{States: []everonce.State{everonce.StateAbandoned}}
	for {
		page, err := o.store.List(ctx, list)
		if err != nil {
			return err
		}
		for i := range page.Records {
			if err := o.settle(ctx, &page.Records[i]); err != nil {
				return fmt.Errorf("settle %s: %w", page.Records[i].Name, err)
			}
		}
		if list.After = page.Next; list.After == (everonce.RecordID{}) {
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

// settle settles a record: a mail of the service's own records, or a payment of the proxy's.
//
// The service's own crash may have left a payment half done, charged and without its mail. No proxy can know of
// that: the operator sends the mail, and settles the payment as done. Duplicates learn that it is done, and not
// with which answer.
func (o *operator) settle(ctx context.Context, rec *everonce.Record) error {
	p := o.payments[rec.Name]
	mails := o.mails[p.Order]
	s := everonce.Settlement{Verdict: everonce.SettleNotDone, By: "demo operator"}
	done := len(mails) > 0
	switch {
	case o.viaProxy:
		done = o.charges[p.Order] > 0
		if done && len(mails) == 0 {
			if _, err := o.mailer.Send(ctx, shop.ReceiptMail(p, p.Order)); err != nil {
				return err
			}
			o.settled.finished++
		}
	case rec.UnknownStep != shop.StepMail:
		return nil
	default:
		s.Step = shop.StepMail
		if done {
			var err error
			if s.Encoded, err = json.Marshal(mails[len(mails)-1]); err != nil {
				return err
			}
		}
	}
	if done {
		s.Verdict = everonce.SettleDone
	}
	if err := everonce.Settle(ctx, o.store, rec.ID, s); err != nil {
		return err
	}
	if done {
		o.settled.done++
	} else {
		o.settled.notDone++
	}
	return nil
}
