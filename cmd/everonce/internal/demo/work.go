package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/everonce/everonce/cmd/everonce/internal/demo/gateway"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/payment"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/service"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/settle"
)

// settleRounds bounds how often unknown mails are settled. Nobody is killed any more then, so that the
// first round is the only one unless the machine itself is in trouble.
const settleRounds = 5

// errDone ends the supervisor.
var errDone = errors.New("all payments are final")

// work lets the client pay everything, under supervision.
func (s *scenario) work(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	supervised := make(chan error, 1)
	go func() {
		err := s.supervise(ctx)
		cancel(err)
		supervised <- err
	}()
	err := s.pay(ctx)
	cancel(errDone)
	if supervisor := <-supervised; supervisor != nil && !errors.Is(supervisor, errDone) {
		return supervisor
	}
	return err
}

// pay pays everything. What is unknown then is settled, and paid on.
func (s *scenario) pay(ctx context.Context) error {
	left, err := s.client.Pay(ctx, s.gate.through(ctx, s.payments))
	for round := 0; err == nil && len(left) > 0; round++ {
		if round == settleRounds {
			return fmt.Errorf("%d payments are unknown still", len(left))
		}
		if err = s.settle(ctx); err == nil {
			left, err = s.client.Pay(ctx, slices.Values(left))
		}
	}
	return err
}

func (s *scenario) settle(ctx context.Context) error {
	payments := make(map[string]payment.Payment, len(s.payments))
	for _, p := range s.payments {
		payments[p.Key] = p
	}
	var done settle.Settled
	var err error
	if s.viaProxy() {
		done, err = s.settlePayments(ctx, payments)
	} else {
		done, err = settle.Mails(ctx, s.books(), s.mailer, s.mails(), func(key string) string { return payments[key].Order })
	}
	s.result.Settled = s.result.Settled.Plus(done)
	return err
}

func (s *scenario) settlePayments(ctx context.Context, payments map[string]payment.Payment) (settle.Settled, error) {
	books, err := service.OpenBooks(s.books())
	if err != nil {
		return settle.Settled{}, err
	}
	defer books.Close() //nolint:errcheck // it was only read
	up := settle.Upstream{Books: books, Busy: gateway.NewClient("http://" + s.service.Addr()).Busy, Mails: s.mailer, MailLedger: s.mails()}
	return settle.Payments(ctx, s.records(), up, func(key string) payment.Payment { return payments[key] })
}
