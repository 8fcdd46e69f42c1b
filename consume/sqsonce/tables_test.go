package sqsonce_test

import (
	"context"
	"errors"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/sqsonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// unusable is a store whose tables are missing, which its coming back would not mend.
type unusable struct{ *memstore.Store }

func (unusable) KeepIdentity(context.Context, driver.KeepIdentityRequest) (res driver.KeepIdentityResult, err error) {
	return res, everonce.ErrSchema
}

// A consumer whose store has no tables ends, and says why.
func TestAStoreWithoutTables(t *testing.T) {
	t.Parallel()
	b := newBench(t, false, 100)
	recv, err := everonce.NewReceiver(unusable{memstore.New(nil)}, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.sendOrder(1, "")
	c, err := sqsonce.Dial(t.Context(), b.client, b.queue, b.handlerOf(recv, func(context.Context, *consume.Message, order) error { return nil }, nil), quick())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); !errors.Is(err, everonce.ErrSchema) {
		t.Errorf("%v, want ErrSchema", err)
	}
}
