package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
	orders := make(map[string]string, len(s.payments))
	for _, p := range s.payments {
		orders[p.Key] = p.Order
	}
	done, err := settle.Mails(ctx, s.books(), s.mailer, s.mails(), func(key string) string { return orders[key] })
	s.result.Settled = settle.Settled{Sent: s.result.Settled.Sent + done.Sent, NotSent: s.result.Settled.NotSent + done.NotSent}
	return err
}
