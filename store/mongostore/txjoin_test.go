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

// The record that a joined claim finds at its completion decides: a record that was released before, or is gone, is
// written over, and a record that another attempt has begun, or ended, meanwhile is a conflict, whatever the clock
// says. The statements run without a transaction, as in TestTxStatements.
func TestWhatAJoinedClaimFindsAtItsEnd(t *testing.T) {
	t.Parallel()
	ctx, db, name := t.Context(), database(t), newCollection(t)
	s, err := mongostore.New(ctx, db, &mongostore.Options{Collection: name})
	noErr(t, err)
	claim := func(id string) driver.ClaimRequest {
		key := everonce.Key{Scope: "orders", ID: id}
		return driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Hour, Lifetime: everonce.ForWeb()}
	}
	claimed := func(id string) driver.ClaimResult {
		res, err := s.Claim(ctx, claim(id))
		noErr(t, err)
		return res
	}
	release := func(id string) {
		c := claimed(id)
		_, err := s.Release(ctx, driver.ReleaseRequest{ID: c.Record.ID, Token: c.Record.Token, Nonce: c.Record.Nonce, State: driver.StateReleased, Lifetime: everonce.ForWeb()})
		noErr(t, err)
	}
	nothing := func(string) {}
	for id, c := range map[string]struct {
		before, meanwhile func(id string)
		want              error
	}{
		"released before": {release, nothing, nil},
		"gone": {func(id string) {
			done := completed(claimed(id))
			done.Lifetime = driver.Lifetime{Retention: time.Millisecond}
			_, err := s.Complete(ctx, done)
			noErr(t, err)
			for there := true; there; {
				res, err := s.Get(ctx, driver.GetRequest{ID: done.ID})
				noErr(t, err)
				there = res.Found
			}
		}, nothing, nil},
		"claimed meanwhile": {nothing, func(id string) { claimed(id) }, driver.ErrConflict},
		"claimed meanwhile, by a clock that is behind": {nothing, func(id string) {
			c := claimed(id)
			_, err := db.Collection(name).UpdateOne(ctx, bson.D{{Key: "_id", Value: bson.Binary{Data: c.Record.ID[:]}}}, bson.D{{Key: "$set", Value: bson.D{{Key: "ti", Value: bson.DateTime(1)}}}})
			noErr(t, err)
		}, driver.ErrConflict},
		"released meanwhile":  {nothing, release, driver.ErrConflict},
		"completed meanwhile": {nothing, func(id string) { _, err := s.Complete(ctx, completed(claimed(id))); noErr(t, err) }, driver.ErrConflict},
	} {
		c.before(id)
		h := mongostore.BareHandle(s)
		res, err := h.Claim(ctx, claim(id))
		if err != nil || res.Decision != driver.DecideClaimed {
			t.Errorf("%s: %v, %v", id, res.Decision, err)
			continue
		}
		if c.want != nil { // what comes meanwhile has a later token
			for now := res.Now; !now.After(res.Now); {
				got, err := s.Get(ctx, driver.GetRequest{ID: res.Record.ID})
				noErr(t, err)
				now = got.Now
			}
		}
		c.meanwhile(id)
		if _, err := h.Complete(ctx, completed(res)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", id, err, c.want)
		}
		if got, err := s.Get(ctx, driver.GetRequest{ID: res.Record.ID}); err != nil || (got.Record.Nonce == res.Record.Nonce) != (c.want == nil) {
			t.Errorf("%s: the record has nonce %v, %v", id, got.Record.Nonce, err)
		}
	}
}

// The statements of a transaction round durations up, and refuse what has no place, as the store's own calls do.
func TestTxStatementsKeepTheBounds(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, err := mongostore.New(ctx, database(t), &mongostore.Options{Collection: newCollection(t)})
	noErr(t, err)
	const more = time.Hour + time.Microsecond // is stored as
	const whole = time.Hour + time.Millisecond
	life := driver.Lifetime{Retention: more, Remember: more}
	claim := func(id string) driver.ClaimRequest {
		key := everonce.Key{Scope: "orders", ID: id}
		return driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: more, Lifetime: life, ExpireUnsettled: true}
	}
	lasts := func(what string, id driver.RecordID, retention, total time.Duration) {
		t.Helper()
		res, err := s.Get(ctx, driver.GetRequest{ID: id})
		noErr(t, err)
		rec := res.Record
		if kept := rec.ResultUntil.Sub(rec.CompletedAt); retention != 0 && kept < retention {
			t.Errorf("%s: the result is kept for %v, want %v", what, kept, retention)
		}
		if kept := rec.PurgeAt.Sub(rec.UpdatedAt); kept < total {
			t.Errorf("%s: the record is kept for %v, want %v", what, kept, total)
		}
	}
	total := 2*time.Hour + time.Millisecond // of both together, rounded once
	h := mongostore.BareHandle(s)
	req := claim("1")
	res, err := mongostore.BeginClaim(ctx, h, req)
	noErr(t, err)
	lasts("claim", req.ID, 0, total)
	done := completed(res)
	done.Lifetime = life
	noErr(t, errOf(h.Complete(ctx, done)))
	lasts("complete", req.ID, whole, total)
	req = claim("2")
	done = completed(driver.ClaimResult{Record: driver.Record{ID: req.ID, Nonce: req.Nonce}})
	done.Lifetime = life
	noErr(t, errOf(h.Record(ctx, driver.RecordRequest{Claim: req, Complete: done})))
	lasts("record", req.ID, whole, total)

	parent := claim("3")
	held, err := s.Claim(ctx, parent)
	noErr(t, err)
	step := driver.SaveStepRequest{
		ID: parent.ID, Token: held.Record.Token, Nonce: parent.Nonce, Lease: more, Lifetime: life,
		Step: driver.StepRecord{Name: "charge", State: driver.StepDone, Attempt: 1, Result: driver.SavedResult{Kind: driver.ResultElided}},
	}
	noErr(t, mongostore.Last(ctx, h, driver.CommitRequest{SaveStep: &step}))
	lasts("step", parent.ID, 0, total)
	if got, err := s.Get(ctx, driver.GetRequest{ID: parent.ID}); err != nil || got.Record.LeaseUntil.Sub(got.Record.UpdatedAt) < whole {
		t.Errorf("step: the lease is %v, want %v; %v", got.Record.LeaseUntil.Sub(got.Record.UpdatedAt), whole, err)
	}

	large := completed(driver.ClaimResult{Record: driver.Record{ID: claim("4").ID}})
	large.Result.Data = make([]byte, mongostore.MaxResult+1)
	for what, err := range map[string]error{"complete": errOf(h.Complete(ctx, large)), "record": errOf(h.Record(ctx, driver.RecordRequest{Claim: claim("4"), Complete: large}))} {
		if !errors.Is(err, driver.ErrTooLarge) {
			t.Errorf("%s: %v, want ErrTooLarge", what, err)
		}
	}

	// A caller that gave up gets the error of its context, not of the transaction's timeout.
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := mongostore.Within(s, time.Nanosecond).Get(gone, driver.GetRequest{ID: parent.ID}); !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrTxTooLong) {
		t.Errorf("after the caller has gone: %v, want that alone", err)
	}
}

// A record that comes, or changes, between a statement's reading and its writing is a conflict, which the engine knows
// what to do about.
func TestWhatComesBetweenReadingAndWritingIsAConflict(t *testing.T) {
	t.Parallel()
	ctx, name := t.Context(), newCollection(t)
	s, err := mongostore.New(ctx, database(t), &mongostore.Options{Collection: name})
	noErr(t, err)
	claim := func(id string) driver.ClaimRequest {
		key := everonce.Key{Scope: "orders", ID: id}
		return driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Hour, Lifetime: everonce.ForWeb()}
	}
	for _, command := range []string{"insert", "update"} {
		if command == "update" { // there is one, and it may be taken
			req := claim(command)
			_, err := s.Release(ctx, driver.ReleaseRequest{ID: req.ID, Scope: req.Scope, Name: req.Name, Nonce: req.Nonce, State: driver.StateReleased, Lifetime: req.Lifetime})
			noErr(t, err)
		}
		first := claim(command)
		var once sync.Once
		late, err := mongostore.New(ctx, connect(t, serverURL(t), &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == command {
				once.Do(func() { _, err := s.Claim(ctx, first); noErr(t, err) })
			}
		}}).Database(dbName), &mongostore.Options{Collection: name, NoMigrate: true})
		noErr(t, err)
		second := claim(command)
		done := completed(driver.ClaimResult{Record: driver.Record{ID: second.ID, Nonce: second.Nonce}})
		if _, err := mongostore.BareHandle(late).Record(ctx, driver.RecordRequest{Claim: second, Complete: done}); !errors.Is(err, driver.ErrConflict) {
			t.Errorf("%s: %v, want ErrConflict", command, err)
		}
		if got, err := s.Get(ctx, driver.GetRequest{ID: first.ID}); err != nil || got.Record.Nonce != first.Nonce {
			t.Errorf("%s: the first attempt's record was written over: %v", command, err)
		}
	}
}

// A transaction's write is a write that others see: a decision made before it is not written over it.
func TestWhatATransactionWritesIsNotWrittenOver(t *testing.T) {
	t.Parallel()
	ctx, name := t.Context(), newCollection(t)
	s, err := mongostore.New(ctx, database(t), &mongostore.Options{Collection: name})
	noErr(t, err)
	key := everonce.Key{Scope: "orders", ID: "7"}
	res, err := s.Claim(ctx, driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Hour, Lifetime: everonce.ForWeb()})
	noErr(t, err)
	rec := res.Record
	step := func(name string) driver.SaveStepRequest {
		return driver.SaveStepRequest{
			ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: time.Hour, Lifetime: everonce.ForWeb(),
			Step: driver.StepRecord{Name: name, State: driver.StepDone, Attempt: 1, Result: driver.SavedResult{Kind: driver.ResultElided}},
		}
	}
	charge := step("charge")
	var once sync.Once
	late, err := mongostore.New(ctx, connect(t, serverURL(t), &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "update" { // between its reading and its writing
			once.Do(func() {
				noErr(t, mongostore.Last(ctx, mongostore.BareHandle(s), driver.CommitRequest{SaveStep: &charge}))
			})
		}
	}}).Database(dbName), &mongostore.Options{Collection: name, NoMigrate: true})
	noErr(t, err)
	_, err = late.SaveStep(ctx, step("mail"))
	noErr(t, err)
	got, err := s.Get(ctx, driver.GetRequest{ID: rec.ID})
	if err != nil || len(got.Record.Steps) != 2 {
		t.Errorf("the steps are %+v, %v; want the transaction's step, and the other", got.Record.Steps, err)
	}
}
