package mongostore_test

import (
	"testing"

	"github.com/everonce/everonce/store/mongostore"
	"github.com/everonce/everonce/store/storetest"
)

func capabilities() storetest.Capabilities {
	return storetest.Capabilities{
		Lister: true, ScopeDeleter: true, HealthChecker: true, IdentityKeeper: true,
		MaxResult: mongostore.MaxResult, RefusesLarger: true,
	}
}

// TestConformance holds a store to the suite. Store and peer are two stores on the same records, of two clients.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(t testing.TB) storetest.Harness {
		opts := &mongostore.Options{Collection: newCollection(t)}
		store, err := mongostore.New(t.Context(), database(t), opts)
		noErr(t, err)
		peer, err := mongostore.New(t.Context(), otherDatabase(t), opts)
		noErr(t, err)
		return storetest.Harness{Store: store, Peer: peer}
	}, capabilities())
}
