package golden

import (
	"testing"

	"github.com/everonce/everonce/driver"
)

// Check is a check value of an identity secret.
var Check = [32]byte([]byte("a check value, of 32 bytes: \x00\xff\x80!"))

// Identity binds a store to [Check], and reads what it is bound to.
func Identity(t testing.TB, s interface {
	driver.IdentityKeeper
	driver.IdentityReader
},
) {
	t.Helper()
	if _, err := s.KeepIdentity(t.Context(), driver.KeepIdentityRequest{Check: Check}); err != nil {
		t.Fatal(err)
	}
	if kept, err := s.ReadIdentity(t.Context(), driver.ReadIdentityRequest{}); kept.Check != Check || !kept.Bound || err != nil {
		t.Errorf("the store is bound to %x (%v), %v", kept.Check, kept.Bound, err)
	}
}
