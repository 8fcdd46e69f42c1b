package enginetest

import (
	"context"
	"errors"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// An attempt is no AnyReceiver: otherwise Lookup with it would compile, and use its receiver.
func TestAttemptIsNoReceiver(t *testing.T) {
	for _, v := range []any{(*everonce.Receiver)(nil), (*everonce.TxReceiver[*mapTx])(nil)} {
		if _, ok := v.(everonce.AnyReceiver); !ok {
			t.Errorf("%T is no AnyReceiver", v)
		}
	}
	var a any = (*everonce.Attempt)(nil)
	if _, ok := a.(everonce.AnyReceiver); ok {
		t.Errorf("%T is an AnyReceiver", a)
	}
	if _, ok := a.(interface{ Ready(context.Context) error }); ok {
		t.Errorf("%T has the receiver's methods", a)
	}
}

// valueTx is a transaction that cannot be compared.
type valueTx struct{ conns []int }

type valueStore struct{ everonce.Store }

func (valueStore) Begin(context.Context, driver.BeginRequest) (driver.TxHandle[valueTx], driver.ClaimResult, error) {
	return nil, driver.ClaimResult{}, errors.ErrUnsupported
}

func (valueStore) Join(context.Context, valueTx) (driver.TxHandle[valueTx], error) {
	return nil, errors.ErrUnsupported
}
func (valueStore) ClassifyTx(error) driver.TxErrorClass { return driver.TxErrorOther }

// Doomed transactions are found again by comparing them.
func TestDoTxRefusesATransactionThatCanNotBeCompared(t *testing.T) {
	x, err := everonce.NewTxReceiver[valueTx](&valueStore{memstore.New(nil)}, nil)
	checkErr(t, err, nil)
	res, err := everonce.DoTx(context.Background(), valueTx{conns: []int{1}}, x, keyOf("x"), withinNever(t))
	checkOutcome(t, res, err, everonce.Invalid, everonce.ErrInvalidArgument)
}
