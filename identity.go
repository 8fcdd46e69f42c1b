package everonce

import (
	"context"
	"encoding/hex"
	"fmt"
	"sync/atomic"

	"github.com/everonce/everonce/driver"
)

// identity binds a store to the identity secret of its receivers, at the first call.
type identity struct {
	done   *atomic.Bool
	keeper driver.IdentityKeeper
	reader driver.IdentityReader
	check  [32]byte
}

func newIdentity(store Store, secret []byte) (identity, error) {
	id := identity{done: new(atomic.Bool)}
	id.keeper, _ = driver.PowerOf[driver.IdentityKeeper](store)
	id.reader, _ = driver.PowerOf[driver.IdentityReader](store)
	switch {
	case len(secret) > 0 && id.keeper == nil:
		return id, fmt.Errorf("%w: Options.IdentitySecret needs a store that is an IdentityKeeper; %T is none", ErrInvalidArgument, store)
	case len(secret) > 0:
		id.check = keyedSum(secret, []byte("everonce/identity/1"))
	case id.keeper == nil:
		id.done.Store(true)
	}
	return id, nil
}

// compare reads what the store is bound to. Where it cannot be read, the store is taken for unbound.
func (id *identity) compare(ctx context.Context) (bound bool, err error) {
	if id.reader == nil {
		return false, nil
	}
	check, bound, err := id.reader.ReadIdentity(ctx)
	switch {
	case err != nil || !bound:
		return false, err
	case check != id.check:
		return true, driver.ErrIdentity
	}
	id.done.Store(true)
	return true, nil
}

func (id *identity) keep(ctx context.Context) error {
	if err := id.keeper.KeepIdentity(ctx, id.check); err != nil {
		return err
	}
	id.done.Store(true)
	return nil
}

// downstreamKey derives a key for another system from the operation's identity and a name.
func downstreamKey(secret []byte, id RecordID, name string) string {
	b := make([]byte, 0, 128)
	b = append(b, "everonce/downstream/1\x00"...)
	b = append(b, id[:]...)
	b = append(b, name...)
	sum := keyedSum(secret, b)
	return hex.EncodeToString(sum[:16])
}
