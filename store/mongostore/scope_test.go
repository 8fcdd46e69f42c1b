package mongostore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/mongostore"
)

// A deletion that names no scope is refused, as in the other stores: it would delete every tenant.
func TestDeleteScopeNeedsAScope(t *testing.T) {
	t.Parallel()
	s, err := mongostore.New(t.Context(), database(t), &mongostore.Options{Collection: newCollection(t)})
	noErr(t, err)
	for _, tenant := range []string{"one", "two"} {
		doneIn(t, s, everonce.Key{Scope: driver.ScopeOf(tenant), ID: "x"})
	}
	for _, limit := range []int{0, 10} {
		if res, err := s.DeleteScope(t.Context(), driver.DeleteScopeRequest{Limit: limit}); res.Records != 0 || res.More || err == nil {
			t.Errorf("without a scope, at most %d: %+v, %v; want a refusal", limit, res, err)
		}
	}
	page, err := s.List(t.Context(), driver.ListRequest{})
	noErr(t, err)
	if len(page.Records) != 2 {
		t.Errorf("%d of 2 records are left", len(page.Records))
	}
}

// A deletion without a limit has a default limit, and comes to an end.
func TestDeleteScopeWithoutALimit(t *testing.T) {
	t.Parallel()
	s, err := mongostore.New(t.Context(), database(t), &mongostore.Options{Collection: newCollection(t)})
	noErr(t, err)
	scope := driver.ScopeOf("tenant")
	for i := range 3 {
		doneIn(t, s, everonce.Key{Scope: scope, ID: fmt.Sprint(i)})
	}
	if res, err := s.DeleteScope(t.Context(), driver.DeleteScopeRequest{Scope: scope}); res.Records != 3 || res.More || err != nil {
		t.Errorf("%+v, %v; want 3 records, and no more", res, err)
	}
}

// doneIn leaves a completed record.
func doneIn(t *testing.T, s *mongostore.Store, key everonce.Key) {
	t.Helper()
	doneFor(t, s, key, everonce.ForWeb())
}

// doneFor is doneIn with a given lifetime.
func doneFor(t *testing.T, s *mongostore.Store, key everonce.Key, lifetime driver.Lifetime) {
	t.Helper()
	req := driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Hour, Lifetime: lifetime}
	res, err := s.Claim(t.Context(), req)
	noErr(t, err)
	_, err = s.Complete(t.Context(), driver.CompleteRequest{
		ID: req.ID, Token: res.Record.Token, Nonce: req.Nonce, Lifetime: req.Lifetime, Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte("v")},
	})
	noErr(t, err)
}

// Nor does a purge without a limit do nothing, and say that it is through.
func TestPurgeWithoutALimit(t *testing.T) {
	t.Parallel()
	s, err := mongostore.New(t.Context(), database(t), &mongostore.Options{Collection: newCollection(t)})
	noErr(t, err)
	key := everonce.Key{Scope: driver.ScopeOf("tenant"), ID: "x"}
	_, err = s.Release(t.Context(), driver.ReleaseRequest{
		ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), State: driver.StateReleased, Lifetime: driver.Lifetime{Retention: time.Millisecond},
	})
	noErr(t, err)
	for deadline := time.Now().Add(10 * time.Second); ; {
		res, err := s.Purge(t.Context(), driver.PurgeRequest{})
		noErr(t, err)
		if res.Records == 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("a record that is over was not removed")
		}
	}
}

// A record that is over is purged at once, however long it was kept: the index by which it is found leads to it. A full
// batch says that there is more, and a purge's write to a record is a write that others see.
func TestPurgeFindsWhatIsOver(t *testing.T) {
	t.Parallel()
	ctx, db, name := t.Context(), database(t), newCollection(t)
	s, err := mongostore.New(ctx, db, &mongostore.Options{Collection: name})
	noErr(t, err)
	const year = 365 * 24 * time.Hour
	of := func(id string) everonce.Key { return everonce.Key{Scope: driver.ScopeOf("tenant"), ID: id} }
	// doneAgo is as if it had been done then, a minute more than the time that is given.
	doneAgo := func(id string, ago time.Duration, life driver.Lifetime) {
		claimed, err := s.Claim(ctx, driver.ClaimRequest{ID: of(id).RecordID(), Scope: of(id).Scope, Name: id, Nonce: driver.NewNonce(), Lease: time.Hour, Lifetime: life})
		noErr(t, err)
		done := completed(claimed)
		done.Lifetime = life
		_, err = s.Complete(ctx, done)
		noErr(t, err)
		then := claimed.Now.Add(-ago - time.Minute)
		_, err = db.Collection(name).UpdateOne(ctx, bson.D{{Key: "_id", Value: bson.Binary{Data: done.ID[:]}}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "c", Value: then}, {Key: "u", Value: then}, {Key: "pd", Value: then}}}})
		noErr(t, err)
	}
	for i, life := range []time.Duration{time.Hour, 33 * time.Hour, year, 40 * year} {
		id := fmt.Sprint(i)
		doneAgo(id, life, driver.Lifetime{Retention: life})
		if res, err := s.Purge(ctx, driver.PurgeRequest{Limit: 1}); err != nil || res.Records != 1 || !res.More {
			t.Errorf("a record that was kept for %v: %+v, %v; want it removed, and that there may be more", life, res, err)
		}
	}
	doneAgo("tombstone", time.Hour, driver.Lifetime{Retention: time.Hour, Remember: year})
	var before, after struct {
		Rev   int64  `bson:"rev"`
		Codec string `bson:"rc"`
	}
	id := of("tombstone").RecordID()
	find := func(into any) {
		noErr(t, db.Collection(name).FindOne(ctx, bson.D{{Key: "_id", Value: bson.Binary{Data: id[:]}}}).Decode(into))
	}
	find(&before)
	if res, err := s.Purge(ctx, driver.PurgeRequest{}); err != nil || res != (driver.PurgeResult{Results: 1}) {
		t.Errorf("a result that is over: %+v, %v; want it dropped", res, err)
	}
	find(&after)
	if after.Rev != before.Rev+1 || after.Codec != "" {
		t.Errorf("the record's revision went from %d to %d, its codec is %q", before.Rev, after.Rev, after.Codec)
	}
	if res, err := s.Purge(ctx, driver.PurgeRequest{}); err != nil || res != (driver.PurgeResult{}) {
		t.Errorf("once more: %+v, %v; want nothing", res, err)
	}
}

// One record that cannot be read does not prevent listing the others of its tenant, nor deleting all of them.
func TestACorruptRecordIsListedAndForgotten(t *testing.T) {
	t.Parallel()
	db, name := database(t), newCollection(t)
	s, err := mongostore.New(t.Context(), db, &mongostore.Options{Collection: name})
	noErr(t, err)
	scope := driver.ScopeOf("tenant")
	change := func(id string, update bson.D) driver.RecordID {
		key := everonce.Key{Scope: scope, ID: id}
		doneIn(t, s, key)
		record := key.RecordID()
		_, err := db.Collection(name).UpdateOne(t.Context(), bson.D{{Key: "_id", Value: bson.Binary{Data: record[:]}}}, update)
		noErr(t, err)
		return record
	}
	touched := bson.D{{Key: "$set", Value: bson.D{{Key: "o", Value: "somebody"}}}}
	noNonce := bson.D{{Key: "$unset", Value: bson.D{{Key: "n", Value: ""}}}}
	corrupt := map[driver.RecordID]string{
		change("corrupt 1", noNonce): "corrupt 1",
		change("corrupt 2", bson.D{{Key: "$set", Value: bson.D{{Key: "pm", Value: "secret"}}}}): "corrupt 2", // which no expression of the server's can read
	}
	for i := range 3 {
		change(fmt.Sprint(i), touched)
	}
	page, err := s.List(t.Context(), driver.ListRequest{Scope: scope})
	noErr(t, err)
	if len(page.Records) != 5 {
		t.Errorf("%d of 5 records are listed", len(page.Records))
	}
	for _, rec := range page.Records {
		name, is := corrupt[rec.ID]
		if is && (rec.Name != name || rec.Scope != scope || rec.State != 0) || !is && rec.State != driver.StateCompleted {
			t.Errorf("listed: %+v", rec)
		}
	}
	for _, state := range []driver.State{driver.StateClaimed, driver.StateAbandoned} {
		page, err := s.List(t.Context(), driver.ListRequest{Scope: scope, States: []driver.State{state}})
		if err != nil || len(page.Records) != len(corrupt) {
			t.Errorf("in the state %v %d records are listed, %v; want the %d whose state is unknown", state, len(page.Records), err, len(corrupt))
		}
	}
	for _, want := range []int{4, 1} {
		res, err := s.DeleteScope(t.Context(), driver.DeleteScopeRequest{Scope: scope, Limit: 4})
		if err != nil || res.Records != want || res.More != (want == 4) {
			t.Errorf("deleted %+v, %v; want %d", res, err, want)
		}
	}
}

// A claim that cannot be read is deleted as others are: when its lease is over. Where the lease cannot be read either,
// the record is kept.
func TestACorruptClaimIsForgottenWithItsLease(t *testing.T) {
	t.Parallel()
	db, name := database(t), newCollection(t)
	s, err := mongostore.New(t.Context(), db, &mongostore.Options{Collection: name})
	noErr(t, err)
	scope := driver.ScopeOf("tenant")
	claim := func(id string, lease time.Duration, update bson.D) {
		key := everonce.Key{Scope: scope, ID: id}
		record := key.RecordID()
		_, err := s.Claim(t.Context(), driver.ClaimRequest{ID: record, Scope: scope, Name: id, Nonce: driver.NewNonce(), Lease: lease, Lifetime: everonce.ForWeb()})
		noErr(t, err)
		_, err = db.Collection(name).UpdateOne(t.Context(), bson.D{{Key: "_id", Value: bson.Binary{Data: record[:]}}}, update)
		noErr(t, err)
	}
	noNonce := bson.D{{Key: "$unset", Value: bson.D{{Key: "n", Value: ""}}}}
	claim("over", time.Millisecond, noNonce)
	claim("live", time.Hour, noNonce)
	claim("who knows", time.Millisecond, bson.D{{Key: "$set", Value: bson.D{{Key: "lm", Value: "secret"}}}})
	claim("in no state", time.Millisecond, bson.D{{Key: "$set", Value: bson.D{{Key: "st", Value: 77}}}})
	claim("of no version", time.Millisecond, bson.D{{Key: "$set", Value: bson.D{{Key: "f", Value: 0}}}})
	for deadline, deleted := time.Now().Add(10*time.Second), 0; deleted == 0; {
		res, err := s.DeleteScope(t.Context(), driver.DeleteScopeRequest{Scope: scope, Limit: 1})
		if !errors.Is(err, driver.ErrCorruptRecord) {
			t.Fatalf("%+v, %v; want ErrCorruptRecord: some are left", res, err)
		}
		if deleted = res.Records; time.Now().After(deadline) {
			t.Fatal("a claim whose lease is over was not removed")
		}
	}
	page, err := s.List(t.Context(), driver.ListRequest{Scope: scope})
	noErr(t, err)
	left := make(map[string]bool)
	for _, rec := range page.Records {
		left[rec.Name] = true
	}
	if len(left) != 4 || left["over"] {
		t.Errorf("left are %v", left)
	}
}

// Nor does it keep a purge from removing the others, nor anybody from counting them.
func TestACorruptRecordHoldsUpNothing(t *testing.T) {
	t.Parallel()
	db, name := database(t), newCollection(t)
	s, err := mongostore.New(t.Context(), db, &mongostore.Options{Collection: name})
	noErr(t, err)
	ctx := t.Context()
	for i, field := range []string{"", "pm", "u", "st", "rt", "c"} {
		key := everonce.Key{Scope: driver.ScopeOf("tenant"), ID: fmt.Sprint(i)}
		_, err := s.Release(ctx, driver.ReleaseRequest{
			ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), State: driver.StateReleased, Lifetime: driver.Lifetime{Retention: time.Millisecond},
		})
		noErr(t, err)
		if field != "" {
			id := key.RecordID()
			_, err = db.Collection(name).UpdateOne(ctx, bson.D{{Key: "_id", Value: bson.Binary{Data: id[:]}}}, bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: "secret"}}}})
			noErr(t, err)
		}
	}
	removed := 0
	for deadline := time.Now().Add(10 * time.Second); removed == 0; {
		res, err := s.Purge(ctx, driver.PurgeRequest{})
		noErr(t, err)
		if removed += res.Records; time.Now().After(deadline) {
			t.Fatal("a record that is over was not removed")
		}
	}
	page, err := s.List(ctx, driver.ListRequest{}) // what is due by no time that can be read
	noErr(t, err)
	stay := len(page.Records)
	live := everonce.Key{Scope: driver.ScopeOf("tenant"), ID: "live"}
	_, err = s.Claim(ctx, driver.ClaimRequest{ID: live.RecordID(), Scope: live.Scope, Name: live.ID, Nonce: driver.NewNonce(), Lease: time.Hour, Lifetime: everonce.ForWeb()})
	noErr(t, err)
	for i, odd := range []any{"secret", 1.5, int32(9), nil} { // states that there are not
		key := everonce.Key{Scope: live.Scope, ID: fmt.Sprint("odd ", i)}
		id := key.RecordID()
		_, err = s.Claim(ctx, driver.ClaimRequest{ID: id, Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Hour, Lifetime: everonce.ForWeb()})
		noErr(t, err)
		_, err = db.Collection(name).UpdateOne(ctx, bson.D{{Key: "_id", Value: bson.Binary{Data: id[:]}}}, bson.D{{Key: "$set", Value: bson.D{{Key: "st", Value: odd}}}})
		noErr(t, err)
	}
	h, err := s.Health(ctx, driver.HealthRequest{})
	if err != nil || h.Claimed != 1 || h.Released != 0 || stay == 0 || h.Unreadable != int64(stay+4) {
		t.Errorf("%+v, %v; want one claim, and %d and four that cannot be read", h, err, stay)
	}
}

// A record that comes from the future, of a clock that has stepped back since, is not forgotten before its time: the
// next of its key would have an earlier token.
func TestARecordFromTheFutureIsNotForgotten(t *testing.T) {
	t.Parallel()
	ctx, db, name := t.Context(), database(t), newCollection(t)
	s, err := mongostore.New(ctx, db, &mongostore.Options{Collection: name})
	noErr(t, err)
	key := everonce.Key{Scope: driver.ScopeOf("tenant"), ID: "7"}
	for _, date := range []string{"c", "ti"} { // of which its token is made: the latter where there was a claim before
		key.ID += date
		doneIn(t, s, key)
		id := key.RecordID()
		_, err = db.Collection(name).UpdateOne(ctx, bson.D{{Key: "_id", Value: bson.Binary{Data: id[:]}}}, bson.D{{Key: "$set", Value: bson.D{{Key: date, Value: time.Now().Add(time.Hour)}}}})
		noErr(t, err)
	}
	if res, err := s.DeleteScope(ctx, driver.DeleteScopeRequest{Scope: key.Scope}); err != nil || res.Records != 0 {
		t.Errorf("deleted %d, %v", res.Records, err)
	}
	past := time.Now().Add(-1000 * time.Hour)
	_, err = db.Collection(name).UpdateMany(ctx, bson.D{{Key: "sc", Value: string(key.Scope)}}, bson.D{{Key: "$set", Value: bson.D{{Key: "u", Value: past}, {Key: "pd", Value: past}}}})
	noErr(t, err)
	if res, err := s.Purge(ctx, driver.PurgeRequest{}); err != nil || res.Records != 0 {
		t.Errorf("purged %+v, %v", res, err)
	}
}
