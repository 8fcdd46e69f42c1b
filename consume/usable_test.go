package consume_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// boundStore has an answer to the first question of a receiver.
type boundStore struct {
	everonce.Store
	answer atomic.Pointer[error]
}

func (s *boundStore) KeepIdentity(context.Context, driver.KeepIdentityRequest) (res driver.KeepIdentityResult, err error) {
	if err := s.answer.Load(); err != nil {
		return res, *err
	}
	return res, nil
}

// A store without its tables, or that is bound to another identity secret, cannot be waited for: the consumer says so at its
// start, and takes nothing.
func TestAStoreThatNeedsAnOperatorEndsServe(t *testing.T) {
	for _, why := range []error{everonce.ErrSchema, driver.ErrIdentity} {
		store := &boundStore{Store: memstore.New(nil)}
		answer := fmt.Errorf("%w: %w: run Migrate", everonce.ErrStore, why)
		store.answer.Store(&answer)
		in := make(chan consume.Delivery, 1)
		in <- message("m-1")
		close(in)
		err := serving(t, store, done).Serve(t.Context(), in, &consume.Workers{Log: quiet})
		if !errors.Is(err, why) || !strings.Contains(err.Error(), "billing") || !strings.Contains(err.Error(), "run Migrate") {
			t.Errorf("%v: it ended with %v", why, err)
		}
		if len(in) != 1 {
			t.Errorf("%v: a message was taken", why)
		}
	}
}

// tableless is a database without the tables of its records.
type tableless struct{ *ledger }

func (tableless) KeepIdentity(context.Context, driver.KeepIdentityRequest) (res driver.KeepIdentityResult, err error) {
	return res, everonce.ErrSchema
}

// So does a consumer in transactional mode.
func TestADatabaseThatNeedsAnOperatorEndsRun(t *testing.T) {
	recv, err := everonce.NewTxReceiver[*ledgerTx](tableless{newLedger()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := consume.NewTx(recv, txSpec{
		Consumer: "billing", Key: consume.ProducerID(),
		Handle: func(context.Context, *ledgerTx, *consume.Message, order) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	in := make(chan consume.Delivery)
	close(in)
	if err := c.Serve(t.Context(), in, &consume.Workers{Log: quiet}); !errors.Is(err, everonce.ErrSchema) {
		t.Errorf("it ended with %v", err)
	}
	both(t, c, consume.Hold, everonce.StoreFailed) // who calls it without Serve acknowledges nothing either
}

// A store that is away at the start is waited for.
func TestAnUnreachableStoreIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &boundStore{Store: memstore.New(nil)}
		store.answer.Store(&errDown)
		in := make(chan consume.Delivery, 1)
		d := message("m-1")
		in <- d
		close(in)
		served := make(chan error, 1)
		go func() { served <- serving(t, store, done).Serve(t.Context(), in, &consume.Workers{Log: quiet}) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if how := d.how(); len(how) != 0 {
			t.Errorf("it ended as %v while the store was away", how)
		}
		store.answer.Store(nil)
		if err := <-served; err != nil || !slices.Equal(d.ended, []string{"ack"}) {
			t.Errorf("it ended as %v, %v", d.ended, err)
		}
	})
}
