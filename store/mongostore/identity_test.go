package mongostore_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/mongostore"
)

// A call that binds the store while another binds it, whose write is not on a majority yet and so cannot be read, waits
// until it can read the binding: an identity that cannot be read yet is not another secret.
func TestAnIdentityThatIsJustBeingBoundIsWaitedFor(t *testing.T) {
	t.Parallel()
	mine, another := [32]byte{1}, [32]byte{2}
	for what, bound := range map[string][32]byte{"the same": mine, "another": another} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			name := newCollection(t)
			var keeping atomic.Bool
			read := make(chan struct{})
			client := connect(t, serverURL(t), &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
				if e.CommandName == "find" && keeping.CompareAndSwap(true, false) {
					close(read)
				}
			}})
			coll := database(t).Collection(name)
			_, err := mongostore.New(t.Context(), database(t), &mongostore.Options{Collection: name})
			noErr(t, err)
			bind := func(value any) {
				_, err := coll.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "everonce"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "identity", Value: value}}}})
				noErr(t, err)
			}
			bind(nil) // there, and not to be read
			s, err := mongostore.New(t.Context(), client.Database(dbName), &mongostore.Options{Collection: name, NoMigrate: true})
			noErr(t, err)
			keeping.Store(true)
			kept := make(chan error, 1)
			go func() { kept <- errOf(s.KeepIdentity(t.Context(), driver.KeepIdentityRequest{Check: mine})) }()
			<-read
			bind(bson.Binary{Data: bound[:]})
			select {
			case err = <-kept:
			case <-time.After(3 * time.Minute):
				t.Fatal("it waits for ever")
			}
			if bound == mine && err != nil || bound != mine && !errors.Is(err, driver.ErrIdentity) {
				t.Errorf("bound to %s: %v", what, err)
			}
		})
	}
}

// A damaged identity is corrupt: it neither equals a secret nor leaves the store unbound.
func TestADamagedIdentityIsCorrupt(t *testing.T) {
	t.Parallel()
	name := newCollection(t)
	s, err := mongostore.New(t.Context(), database(t), &mongostore.Options{Collection: name})
	noErr(t, err)
	_, err = database(t).Collection(name).UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "everonce"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "identity", Value: bson.Binary{Data: make([]byte, 31)}}}}})
	noErr(t, err)
	_, err = s.ReadIdentity(t.Context(), driver.ReadIdentityRequest{})
	for what, err := range map[string]error{"read": err, "keep": errOf(s.KeepIdentity(t.Context(), driver.KeepIdentityRequest{}))} {
		if !errors.Is(err, driver.ErrCorruptRecord) {
			t.Errorf("%s: %v, want ErrCorruptRecord", what, err)
		}
	}
}

// A caller that stops waiting for the identity does not learn that the store is bound.
func TestAnIdentityThatNobodyTellsIsNotBound(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	name := newCollection(t)
	_, err := mongostore.New(ctx, database(t), &mongostore.Options{Collection: name})
	noErr(t, err)
	_, err = database(t).Collection(name).UpdateOne(ctx, bson.D{{Key: "_id", Value: "everonce"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "identity", Value: nil}}}})
	noErr(t, err)
	var keeping atomic.Bool
	client := connect(t, serverURL(t), &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
		if e.CommandName == "find" && keeping.Load() {
			cancel()
		}
	}})
	s, err := mongostore.New(ctx, client.Database(dbName), &mongostore.Options{Collection: name, NoMigrate: true})
	noErr(t, err)
	keeping.Store(true)
	if _, err := s.KeepIdentity(ctx, driver.KeepIdentityRequest{Check: [32]byte{1}}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that the context has ended", err)
	}
}
