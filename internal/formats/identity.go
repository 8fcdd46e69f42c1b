package formats

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
	if err := s.KeepIdentity(t.Context(), Check); err != nil {
		t.Fatal(err)
	}
	if check, bound, err := s.ReadIdentity(t.Context()); check != Check || !bound || err != nil {
		t.Errorf("the store is bound to %x (%v), %v", check, bound, err)
	}
}
