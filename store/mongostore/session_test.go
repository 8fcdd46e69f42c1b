package mongostore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/mongostore"
)

// inTransaction is the context of a callback of [mongo.Session.WithTransaction]: whatever is sent with it is part of
// that transaction. A server without transactions refuses it.
func inTransaction(t *testing.T, db *mongo.Database) (ctx context.Context, abort func()) {
	t.Helper()
	session, err := db.Client().StartSession()
	noErr(t, err)
	t.Cleanup(func() { session.EndSession(context.Background()) })
	noErr(t, session.StartTransaction())
	return mongo.NewSessionContext(t.Context(), session), func() { _ = session.AbortTransaction(context.Background()) } //nolint:errcheck // nothing may have been sent in it
}

// A record is written outside the transaction of a session that the caller's context holds: an abort would take the
// record back, and the effect, which is elsewhere, would happen again.
func TestARecordIsNotPartOfTheCallersTransaction(t *testing.T) {
	t.Parallel()
	db := database(t)
	s, err := mongostore.New(t.Context(), db, &mongostore.Options{Collection: newCollection(t)})
	noErr(t, err)
	r, err := everonce.NewReceiver(s, everonce.Refuse, nil)
	noErr(t, err)
	ctx, abort := inTransaction(t, db)
	charges := 0
	charge := func(ctx context.Context, a *everonce.Attempt) (string, error) {
		return everonce.Step(ctx, a, "charge", func(context.Context) (string, error) { charges++; return "receipt-1", nil })
	}
	key := everonce.Key{Scope: "shop", ID: "order-7"}
	_, err = everonce.Do(ctx, r, key, charge)
	noErr(t, err)
	abort()
	res, err := everonce.Do(t.Context(), r, key, charge)
	if err != nil || res.Outcome != everonce.Replayed || charges != 1 {
		t.Errorf("%v, %v, %d charges; want it replayed, and one charge", res.Outcome, err, charges)
	}
}

// So it is with each call of the store.
func TestNoCallIsPartOfTheCallersTransaction(t *testing.T) {
	t.Parallel()
	db, name := database(t), newCollection(t)
	ctx, abort := inTransaction(t, db)
	defer abort()
	s, err := mongostore.New(ctx, db, &mongostore.Options{Collection: name})
	noErr(t, err)
	key := everonce.Key{Scope: "orders", ID: "7"}
	id, nonce, life := key.RecordID(), driver.NewNonce(), everonce.ForWeb()
	claimed, err := s.Claim(ctx, driver.ClaimRequest{ID: id, Scope: key.Scope, Name: key.ID, Nonce: nonce, Lease: time.Minute, Lifetime: life})
	noErr(t, err)
	token := claimed.Record.Token
	for what, call := range map[string]func() error{
		"claim again": func() error {
			_, err := s.Claim(ctx, driver.ClaimRequest{ID: id, Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Minute, Lifetime: life})
			return err
		},
		"renew": func() error {
			_, err := s.Renew(ctx, driver.RenewRequest{ID: id, Token: token, Nonce: nonce, Lease: time.Minute, Lifetime: life})
			return err
		},
		"save step": func() error {
			_, err := s.SaveStep(ctx, driver.SaveStepRequest{ID: id, Token: token, Nonce: nonce, Step: driver.StepRecord{Name: "mail", State: driver.StepOpen, Attempt: 1}, Lease: time.Minute, Lifetime: life})
			return err
		},
		"get":           func() error { _, err := s.Get(ctx, driver.GetRequest{ID: id}); return err },
		"list":          func() error { _, err := s.List(ctx, driver.ListRequest{KeyHash: id.Hash()}); return err },
		"purge":         func() error { _, err := s.Purge(ctx, driver.PurgeRequest{}); return err },
		"delete scope":  func() error { _, err := s.DeleteScope(ctx, driver.DeleteScopeRequest{Scope: key.Scope}); return err },
		"health":        func() error { _, err := s.Health(ctx, driver.HealthRequest{}); return err },
		"keep identity": func() error { return errOf(s.KeepIdentity(ctx, driver.KeepIdentityRequest{Check: [32]byte{1}})) },
		"read identity": func() error { _, err := s.ReadIdentity(ctx, driver.ReadIdentityRequest{}); return err },
		"check write":   func() error { return errOf(s.CheckWrite(ctx, driver.CheckWriteRequest{})) },
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = s.Release(ctx, driver.ReleaseRequest{ID: id, Token: token, Nonce: nonce, State: driver.StateReleased, Lifetime: life})
	noErr(t, err)
	again, err := s.Claim(ctx, driver.ClaimRequest{ID: id, Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Minute, Lifetime: life})
	noErr(t, err)
	_, err = s.Complete(ctx, completed(again))
	noErr(t, err)
	abort()
	if res, err := s.Get(t.Context(), driver.GetRequest{ID: id}); err != nil || res.Record.State != driver.StateCompleted {
		t.Errorf("after the abort: %v, %v; want it completed", res.Record.State, err)
	}
}

// An event that was inserted in a transaction is not kept until that commits, and its message must not be acknowledged
// before.
func TestInsertOnceIsRefusedInATransaction(t *testing.T) {
	t.Parallel()
	coll := events(t)
	in := inserter(t, coll)
	ctx, abort := inTransaction(t, coll.Database())
	if _, err := in.InsertOnce(ctx, eventOf("e1", "i1")); !errors.Is(err, driver.ErrInvalidArgument) || errors.Is(err, driver.ErrStore) {
		t.Errorf("%v, want ErrInvalidArgument", err)
	}
	abort()
	if n := count(t, coll); n != 0 {
		t.Errorf("%d events, want none", n)
	}
}
