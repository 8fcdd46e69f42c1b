package everonce

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sync/atomic"

	"github.com/everonce/everonce/driver"
)

// Key names one operation, that is, one intended effect. A saved result never leaves its Scope.
type Key struct {
	// Scope is the tenant or principal, and the route or consumer.
	Scope Scope
	// ID is the caller's stable identifier, chosen before the first try and repeated unchanged.
	ID string
}

// Validate reports an invalid key: a part that is empty, too long, not UTF-8, or holds a control character. The error
// wraps [ErrInvalidKey] and never quotes the key.
func (k Key) Validate() error {
	if err := k.Scope.Validate(); err != nil {
		return err
	}
	return driver.CheckName(ErrInvalidKey, "ID", k.ID, driver.MaxIDLen)
}

// fits reports whether the key is short enough to be worth a hash.
func (k Key) fits() bool { return len(k.Scope) <= driver.MaxScopeLen && len(k.ID) <= driver.MaxIDLen }

// RecordID returns the ID of the key's record in a store without an identity secret: see [Receiver.RecordID].
func (k Key) RecordID() RecordID { return k.recordID(nil) }

func (k Key) recordID(secret []byte) RecordID {
	var id RecordID
	prefix := driver.ScopeRange(k.Scope)
	copy(id[:8], prefix[:])

	var stack [256]byte
	b := append(stack[:0], "everonce/record/1\x00"...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(k.Scope))) //nolint:gosec // bounded by MaxScopeLen
	b = append(b, k.Scope...)
	b = append(b, k.ID...)
	var sum [sha256.Size]byte
	if len(secret) == 0 {
		sum = sha256.Sum256(b)
	} else {
		sum = keyedSum(secret, bytes.Clone(b)) // the copy keeps b on the stack
	}
	copy(id[8:], sum[:24])
	return id
}

// keyedSum is SHA-256, keyed by the identity secret where there is one.
func keyedSum(secret, b []byte) [sha256.Size]byte {
	if len(secret) == 0 {
		return sha256.Sum256(b)
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(b)
	return [sha256.Size]byte(mac.Sum(nil))
}

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
		return id, fmt.Errorf("%w: Options.IdentitySecret needs a store that implements driver.IdentityKeeper, which %T does not", ErrInvalidArgument, store)
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
	kept, err := id.reader.ReadIdentity(ctx, driver.ReadIdentityRequest{})
	switch {
	case err != nil || !kept.Bound:
		return false, err
	case kept.Check != id.check:
		return true, ErrIdentity
	}
	id.done.Store(true)
	return true, nil
}

func (id *identity) keep(ctx context.Context) error {
	if _, err := id.keeper.KeepIdentity(ctx, driver.KeepIdentityRequest{Check: id.check}); err != nil {
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
