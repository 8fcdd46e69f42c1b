package natsonce_test

import (
	"context"
	"errors"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/natsonce"
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
	b := newBench(t)
	h, err := consume.New(newReceiver(t, unusable{memstore.New(nil)}), specOf(nothing))
	if err != nil {
		t.Fatal(err)
	}
	c, err := natsonce.Dial(t.Context(), b.url, b.queue, h, quick(nil))
	if err != nil {
		t.Fatal(err)
	}
	b.send("m-1")
	if err := c.Run(t.Context()); !errors.Is(err, everonce.ErrSchema) {
		t.Errorf("%v, want ErrSchema", err)
	}
	if info := b.consumer(); info.AckFloor.Stream != 0 {
		t.Errorf("%d is acknowledged", info.AckFloor.Stream)
	}
}
