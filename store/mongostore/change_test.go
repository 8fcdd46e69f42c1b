package mongostore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/mongostore"
)

// A record that was read, removed, and made anew before it is written has come to the same revision again: what was
// decided about the one is not written over the other, whose attempt is alive.
func TestARecordThatWasMadeAnewIsNotWrittenOver(t *testing.T) {
	t.Parallel()
	db, name := database(t), newCollection(t)
	opts := &mongostore.Options{Collection: name}
	s, err := mongostore.New(t.Context(), db, opts)
	noErr(t, err)
	key := everonce.Key{Scope: "orders", ID: "7"}
	claim := func() driver.ClaimRequest {
		return driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Hour, Lifetime: everonce.ForWeb()}
	}
	req := claim()
	res, err := s.Claim(t.Context(), req)
	noErr(t, err)
	_, err = s.Release(t.Context(), driver.ReleaseRequest{ID: req.ID, Token: res.Record.Token, Nonce: req.Nonce, State: driver.StateReleased, Lifetime: req.Lifetime})
	noErr(t, err)

	anew := claim()
	var once sync.Once
	late, err := mongostore.New(t.Context(), connect(t, serverURL(t), &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName != "update" {
			return
		}
		once.Do(func() { // between its reading and its writing
			_, err := db.Collection(name).DeleteOne(t.Context(), bson.D{{Key: "_id", Value: bson.Binary{Data: req.ID[:]}}})
			noErr(t, err)
			res, err := s.Claim(t.Context(), anew)
			noErr(t, err)
			_, err = s.Renew(t.Context(), driver.RenewRequest{ID: req.ID, Token: res.Record.Token, Nonce: anew.Nonce, Lease: time.Hour, Lifetime: req.Lifetime})
			noErr(t, err)
		})
	}}).Database(dbName), &mongostore.Options{Collection: name, NoMigrate: true})
	noErr(t, err)
	res, err = late.Claim(t.Context(), claim())
	if err != nil || res.Decision != driver.DecideInProgress || res.Record.Nonce != anew.Nonce {
		t.Errorf("%v, %v; want the other attempt in progress", res.Decision, err)
	}
}

// The same holds for a record that existed at the claim, is gone when it is read, and is claimed by another attempt
// before it is inserted: one of the two has it.
func TestARecordThatComesBeforeTheInsertIsNotClaimedTwice(t *testing.T) {
	t.Parallel()
	db, name := database(t), newCollection(t)
	s, err := mongostore.New(t.Context(), db, &mongostore.Options{Collection: name})
	noErr(t, err)
	key := everonce.Key{Scope: "orders", ID: "7"}
	claim := func() driver.ClaimRequest {
		return driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Hour, Lifetime: everonce.ForWeb()}
	}
	_, err = s.Claim(t.Context(), claim())
	noErr(t, err)

	anew := claim()
	var gone, claimed sync.Once
	late, err := mongostore.New(t.Context(), connect(t, serverURL(t), &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		switch e.CommandName {
		case "aggregate": // its reading
			gone.Do(func() {
				_, err := db.Collection(name).DeleteOne(t.Context(), bson.D{{Key: "_id", Value: bson.Binary{Data: anew.ID[:]}}})
				noErr(t, err)
			})
		case "insert":
			claimed.Do(func() {
				_, err := s.Claim(t.Context(), anew)
				noErr(t, err)
			})
		}
	}}).Database(dbName), &mongostore.Options{Collection: name, NoMigrate: true})
	noErr(t, err)
	res, err := late.Claim(t.Context(), claim())
	if err != nil || res.Decision != driver.DecideInProgress || res.Record.Nonce != anew.Nonce {
		t.Errorf("%v, %v; want the other attempt in progress", res.Decision, err)
	}
}

// A record that others change before each write of a claim is a failure after some pauses, and so is one without a
// revision, which no write can find.
func TestARecordThatChangesEachTime(t *testing.T) {
	t.Parallel()
	db, name := database(t), newCollection(t)
	s, err := mongostore.New(t.Context(), db, &mongostore.Options{Collection: name})
	noErr(t, err)
	key := everonce.Key{Scope: "orders", ID: "7"}
	claim := func() driver.ClaimRequest {
		return driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Hour, Lifetime: everonce.ForWeb()}
	}
	req := claim()
	res, err := s.Claim(t.Context(), req)
	noErr(t, err)
	_, err = s.Release(t.Context(), driver.ReleaseRequest{ID: req.ID, Token: res.Record.Token, Nonce: req.Nonce, State: driver.StateReleased, Lifetime: req.Lifetime})
	noErr(t, err)
	writes := 0
	busy, err := mongostore.New(t.Context(), connect(t, serverURL(t), &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "update" {
			writes++
			_, err := db.Collection(name).UpdateByID(t.Context(), bson.Binary{Data: req.ID[:]}, bson.D{{Key: "$inc", Value: bson.D{{Key: "rev", Value: 1}}}})
			noErr(t, err)
		}
	}}).Database(dbName), &mongostore.Options{Collection: name, NoMigrate: true})
	noErr(t, err)
	if _, err := busy.Claim(t.Context(), claim()); err == nil || writes < driver.MaxSteps/2 || writes > 2*driver.MaxSteps {
		t.Errorf("%v after %d writes, want a failure after some", err, writes)
	}
	_, err = db.Collection(name).UpdateByID(t.Context(), bson.Binary{Data: req.ID[:]}, bson.D{{Key: "$unset", Value: bson.D{{Key: "rev", Value: ""}}}})
	noErr(t, err)
	if _, err := s.Claim(t.Context(), claim()); !errors.Is(err, driver.ErrCorruptRecord) {
		t.Errorf("without a revision: %v, want ErrCorruptRecord", err)
	}
}
