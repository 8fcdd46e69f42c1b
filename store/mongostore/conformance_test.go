package mongostore_test

import (
	"context"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/drivertest"
	"github.com/everonce/everonce/store/mongostore"
)

func capabilities() drivertest.Capabilities {
	return drivertest.Capabilities{
		Lister: true, ScopeDeleter: true, HealthChecker: true, WriteChecker: true, IdentityKeeper: true,
		MaxResult: mongostore.MaxResult, RefusesLarger: true,
	}
}

// TestConformance holds a store to the suite. Store and peer are two stores on the same records, of two clients.
func TestConformance(t *testing.T) {
	drivertest.RunWithBugs(t, func(t testing.TB) drivertest.Harness {
		name := newCollection(t)
		opts := &mongostore.Options{Collection: name}
		store, err := mongostore.New(t.Context(), database(t), opts)
		noErr(t, err)
		peer, err := mongostore.New(t.Context(), otherDatabase(t), opts)
		noErr(t, err)
		set := func(field string, value any) func(driver.RecordID) {
			return func(id driver.RecordID) {
				_, err := database(t).Collection(name).UpdateOne(t.Context(), bson.D{{Key: "_id", Value: bson.Binary{Data: id[:]}}},
					bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: value}}}})
				noErr(t, err)
			}
		}
		setStep := func(id driver.RecordID, step, field string, value any) {
			res, err := database(t).Collection(name).UpdateOne(t.Context(), bson.D{{Key: "_id", Value: bson.Binary{Data: id[:]}}, {Key: "s.n", Value: step}},
				bson.D{{Key: "$set", Value: bson.D{{Key: "s.$." + field, Value: value}}}})
			noErr(t, err)
			if res.MatchedCount != 1 {
				t.Fatalf("there is no step %q", step)
			}
		}
		return drivertest.Harness{
			Store: repeating{store}, Peer: repeating{peer}, Newer: set("f", int32(driver.FormatVersion+1)),
			Damages: map[string]func(driver.RecordID){
				"its state": set("st", 77), "its nonce": set("n", bson.Binary{Data: []byte{1}}), "the type of its owner": set("o", 7), "an earlier time": set("cl", bson.DateTime(-1)),
				"its revision": set("rev", nil),
			},
			DamagedLease: set("lb", bson.DateTime(-1)),
			UnreadStep:   func(id driver.RecordID, step string) { setStep(id, step, "st", "done") },                // of another type
			UnreadResult: func(id driver.RecordID, step string, kind int) { setStep(id, step, "rk", int32(kind)) }, //nolint:gosec // small
		}
	}, capabilities())
}

// repeating repeats a call after an error that the stand-in of MongoDB, and no MongoDB, now and then returns where two
// commands change one document: an error with a special code and no text. The core would repeat it too (rule 4).
type repeating struct{ *mongostore.Store }

func repeated[Res any](call func() (Res, error)) (res Res, err error) {
	for range 3 {
		if res, err = call(); err == nil || !strings.Contains(err.Error(), "Unknown error: null") {
			break
		}
	}
	return res, err
}

func (s repeating) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	return repeated(func() (driver.ClaimResult, error) { return s.Store.Claim(ctx, req) })
}

func (s repeating) Complete(ctx context.Context, req driver.CompleteRequest) (driver.CompleteResult, error) {
	return repeated(func() (driver.CompleteResult, error) { return s.Store.Complete(ctx, req) })
}

func (s repeating) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseResult, error) {
	return repeated(func() (driver.ReleaseResult, error) { return s.Store.Release(ctx, req) })
}

func (s repeating) Renew(ctx context.Context, req driver.RenewRequest) (driver.RenewResult, error) {
	return repeated(func() (driver.RenewResult, error) { return s.Store.Renew(ctx, req) })
}

func (s repeating) SaveStep(ctx context.Context, req driver.SaveStepRequest) (driver.SaveStepResult, error) {
	return repeated(func() (driver.SaveStepResult, error) { return s.Store.SaveStep(ctx, req) })
}
