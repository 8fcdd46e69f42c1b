package mongostore_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/mongostore"
)

// ending ends a call's context when its n-th command is sent, so that the command fails; 0 ends none.
type ending struct {
	sent, last atomic.Int64
	cancel     context.CancelFunc
}

func (e *ending) started(_ context.Context, ev *event.CommandStartedEvent) {
	if n := e.sent.Add(1); n == e.last.Load() {
		e.cancel()
	}
}

// call returns how many commands fn has sent.
func (e *ending) call(t *testing.T, last int64, fn func(ctx context.Context) error) (sent int64, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e.cancel = cancel
	e.sent.Store(0)
	e.last.Store(last)
	err = fn(ctx)
	return e.sent.Load(), err
}

// Whichever of its commands fails, a call says that it has failed, and why: what is not known to be written is neither
// claimed, nor renewed, nor done, and what cannot be read is not absent (rule 7).
func TestWhicheverCommandFailsTheCallFails(t *testing.T) {
	t.Parallel()
	e := &ending{}
	db := connect(t, serverURL(t), &event.CommandMonitor{Started: e.started}).Database(dbName)
	name := newCollection(t)
	sound, err := mongostore.New(t.Context(), database(t), &mongostore.Options{Collection: name})
	noErr(t, err)
	s, err := mongostore.New(t.Context(), db, &mongostore.Options{Collection: name, NoMigrate: true})
	noErr(t, err)
	noErr(t, errOf(sound.KeepIdentity(t.Context(), driver.KeepIdentityRequest{Check: [32]byte{1}})))
	for what, c := range map[string]struct {
		before string // how the record stands: see stand
		call   func(ctx context.Context, claim driver.ClaimRequest, rec driver.Record) error
		sends  int64 // 0: it depends on the server
	}{
		"Claim of a new key": {"", func(ctx context.Context, claim driver.ClaimRequest, _ driver.Record) error {
			_, err := s.Claim(ctx, claim)
			return err
		}, 1},
		"Claim of a released key": {"released", func(ctx context.Context, claim driver.ClaimRequest, _ driver.Record) error {
			_, err := s.Claim(ctx, claim)
			return err
		}, 3},
		"Complete": {"claimed", func(ctx context.Context, _ driver.ClaimRequest, rec driver.Record) error {
			_, err := s.Complete(ctx, completed(driver.ClaimResult{Record: rec}))
			return err
		}, 1},
		"Complete of what is completed": {"completed", func(ctx context.Context, _ driver.ClaimRequest, rec driver.Record) error {
			_, err := s.Complete(ctx, completed(driver.ClaimResult{Record: rec}))
			return err
		}, 2},
		"Release": {"claimed", func(ctx context.Context, _ driver.ClaimRequest, rec driver.Record) error {
			_, err := s.Release(ctx, driver.ReleaseRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, State: driver.StateReleased, Lifetime: everonce.ForWeb()})
			return err
		}, 1},
		"Release by nonce": {"", func(ctx context.Context, claim driver.ClaimRequest, _ driver.Record) error {
			_, err := s.Release(ctx, driver.ReleaseRequest{ID: claim.ID, Scope: claim.Scope, Name: claim.Name, Nonce: claim.Nonce, State: driver.StateReleased, Lifetime: everonce.ForWeb()})
			return err
		}, 2},
		"Renew": {"claimed", func(ctx context.Context, _ driver.ClaimRequest, rec driver.Record) error {
			_, err := s.Renew(ctx, driver.RenewRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: time.Hour, Lifetime: everonce.ForWeb()})
			return err
		}, 1},
		"SaveStep": {"claimed", func(ctx context.Context, _ driver.ClaimRequest, rec driver.Record) error {
			_, err := s.SaveStep(ctx, driver.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: time.Hour, Lifetime: everonce.ForWeb(), Step: driver.StepRecord{Name: "mail", State: driver.StepOpen, Attempt: 1}})
			return err
		}, 2},
		"Get": {"completed", func(ctx context.Context, claim driver.ClaimRequest, _ driver.Record) error {
			_, err := s.Get(ctx, driver.GetRequest{ID: claim.ID})
			return err
		}, 1},
		"List": {"completed", func(ctx context.Context, claim driver.ClaimRequest, _ driver.Record) error {
			_, err := s.List(ctx, driver.ListRequest{Scope: claim.Scope})
			return err
		}, 2},
		"List by hash": {"completed", func(ctx context.Context, claim driver.ClaimRequest, _ driver.Record) error {
			_, err := s.List(ctx, driver.ListRequest{KeyHash: claim.ID.Hash()})
			return err
		}, 3},
		"Purge of a record": {"over", func(ctx context.Context, _ driver.ClaimRequest, _ driver.Record) error {
			_, err := s.Purge(ctx, driver.PurgeRequest{})
			return err
		}, 4},
		"Purge of a result": {"expired", func(ctx context.Context, _ driver.ClaimRequest, _ driver.Record) error {
			_, err := s.Purge(ctx, driver.PurgeRequest{})
			return err
		}, 4},
		"DeleteScope": {"completed", func(ctx context.Context, claim driver.ClaimRequest, _ driver.Record) error {
			_, err := s.DeleteScope(ctx, driver.DeleteScopeRequest{Scope: claim.Scope})
			return err
		}, 3},
		"Health": {"", func(ctx context.Context, _ driver.ClaimRequest, _ driver.Record) error {
			_, err := s.Health(ctx, driver.HealthRequest{})
			return err
		}, 0},
		"KeepIdentity": {"", func(ctx context.Context, _ driver.ClaimRequest, _ driver.Record) error {
			return errOf(s.KeepIdentity(ctx, driver.KeepIdentityRequest{Check: [32]byte{1}}))
		}, 2},
		"ReadIdentity": {"", func(ctx context.Context, _ driver.ClaimRequest, _ driver.Record) error {
			_, err := s.ReadIdentity(ctx, driver.ReadIdentityRequest{})
			return err
		}, 1},
		"CheckWrite": {"", func(ctx context.Context, _ driver.ClaimRequest, _ driver.Record) error {
			return errOf(s.CheckWrite(ctx, driver.CheckWriteRequest{}))
		}, 1},
		"New, unchanged": {"", func(ctx context.Context, _ driver.ClaimRequest, _ driver.Record) error {
			_, err := mongostore.New(ctx, db, &mongostore.Options{Collection: name})
			return err
		}, 4},
	} {
		for last, sent := int64(0), int64(1); last <= sent; last++ {
			key := everonce.Key{Scope: driver.ScopeOf("orders", what), ID: driver.NewNonce().String()}
			claim := driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Hour, Lifetime: everonce.ForWeb()}
			_, err := sound.Purge(t.Context(), driver.PurgeRequest{}) // what the one before has left
			noErr(t, err)
			rec := stand(t, sound, claim, c.before)
			claim.Nonce = driver.NewNonce()
			n, err := e.call(t, last, func(ctx context.Context) error { return c.call(ctx, claim, rec) })
			if last == 0 {
				if sent = n; err != nil || c.sends != 0 && sent != c.sends {
					t.Errorf("%s: %d commands, %v; want %d", what, sent, err, c.sends)
				}
				continue
			}
			if !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrSchema) || errors.Is(err, driver.ErrLeaseLost) {
				t.Errorf("%s, whose command %d of %d fails: %v", what, last, sent, err)
			}
		}
	}
}

// stand leaves a record in a state: none (""), claimed, released, completed, expired (its result is over), or over.
func stand(t *testing.T, s *mongostore.Store, claim driver.ClaimRequest, how string) driver.Record {
	t.Helper()
	if how == "" {
		return driver.Record{}
	}
	res, err := s.Claim(t.Context(), claim)
	noErr(t, err)
	done := completed(res)
	switch how {
	case "released":
		_, err = s.Release(t.Context(), driver.ReleaseRequest{ID: claim.ID, Token: res.Record.Token, Nonce: claim.Nonce, State: driver.StateReleased, Lifetime: claim.Lifetime})
	case "over":
		done.Lifetime = driver.Lifetime{Retention: time.Millisecond}
	case "expired":
		done.Lifetime = driver.Lifetime{Retention: time.Millisecond, Remember: time.Hour}
	}
	if how == "completed" || how == "over" || how == "expired" {
		_, err = s.Complete(t.Context(), done)
	}
	noErr(t, err)
	for there := how == "over" || how == "expired"; there; {
		got, err := s.Get(t.Context(), driver.GetRequest{ID: claim.ID})
		noErr(t, err)
		there = got.Found && got.Record.StateAt(got.Now) == driver.StateCompleted
	}
	return res.Record
}

// A call that waits for another write to be on a majority, and whose context ends then, has done nothing, and returns
// an error that says so.
func TestAContextThatEndsBetweenTwoTriesIsAnError(t *testing.T) {
	t.Parallel()
	db, name := database(t), newCollection(t)
	sound, err := mongostore.New(t.Context(), db, &mongostore.Options{Collection: name})
	noErr(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	key := everonce.Key{Scope: "orders", ID: "7"}
	id := key.RecordID()
	this := bson.D{{Key: "_id", Value: bson.Binary{Data: id[:]}}}
	written := "" // the command that is to miss
	s, err := mongostore.New(t.Context(), connect(t, serverURL(t), &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == written { // others write first
				_, err := db.Collection(name).UpdateOne(t.Context(), this, bson.D{{Key: "$inc", Value: bson.D{{Key: "rev", Value: 1}}}})
				noErr(t, err)
			}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			if e.CommandName == written {
				cancel()
			}
		},
	}).Database(dbName), &mongostore.Options{Collection: name, NoMigrate: true})
	noErr(t, err)
	res, err := sound.Claim(t.Context(), driver.ClaimRequest{ID: id, Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Hour, Lifetime: everonce.ForWeb()})
	noErr(t, err)
	written = "update"
	step := driver.StepRecord{Name: "mail", State: driver.StepOpen, Attempt: 1}
	_, err = s.SaveStep(ctx, driver.SaveStepRequest{ID: id, Token: res.Record.Token, Nonce: res.Record.Nonce, Lease: time.Hour, Lifetime: everonce.ForWeb(), Step: step})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a step that was not written: %v, want that the context has ended", err)
	}
}

// A collection that was emptied is not a store: it has neither a time nor an identity.
func TestACollectionThatWasEmptiedIsNoStore(t *testing.T) {
	t.Parallel()
	ctx, db, name := t.Context(), database(t), newCollection(t)
	s, err := mongostore.New(ctx, db, &mongostore.Options{Collection: name})
	noErr(t, err)
	noErr(t, db.Collection(name).Drop(ctx))
	for what, call := range map[string]func() error{
		"Get":          func() error { _, err := s.Get(ctx, driver.GetRequest{}); return err },
		"List":         func() error { _, err := s.List(ctx, driver.ListRequest{}); return err },
		"Purge":        func() error { _, err := s.Purge(ctx, driver.PurgeRequest{}); return err },
		"Health":       func() error { _, err := s.Health(ctx, driver.HealthRequest{}); return err },
		"KeepIdentity": func() error { return errOf(s.KeepIdentity(ctx, driver.KeepIdentityRequest{Check: [32]byte{1}})) },
		"ReadIdentity": func() error { _, err := s.ReadIdentity(ctx, driver.ReadIdentityRequest{}); return err },
		"CheckWrite":   func() error { return errOf(s.CheckWrite(ctx, driver.CheckWriteRequest{})) },
	} {
		if err := call(); !errors.Is(err, driver.ErrSchema) || !strings.Contains(err.Error(), "mongostore.New") {
			t.Errorf("%s: %v, want ErrSchema, and what makes it again", what, err)
		}
	}
}
