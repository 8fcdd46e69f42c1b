package mongostore_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/mongostore"
)

func TestNew(t *testing.T) {
	t.Parallel()
	db, name := database(t), newCollection(t)
	if _, err := mongostore.New(t.Context(), db, &mongostore.Options{Collection: name, NoMigrate: true}); !errors.Is(err, driver.ErrSchema) {
		t.Errorf("NoMigrate without a store: %v, want ErrSchema", err)
	}
	for _, opts := range []*mongostore.Options{{Collection: name}, {Collection: name}, {Collection: name, NoMigrate: true}} {
		_, err := mongostore.New(t.Context(), db, opts)
		noErr(t, err)
	}
	_, err := db.Collection(name).UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "everonce"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "layout", Value: 2}}}})
	noErr(t, err)
	if _, err := mongostore.New(t.Context(), db, &mongostore.Options{Collection: name}); !errors.Is(err, driver.ErrSchema) {
		t.Errorf("another layout: %v, want ErrSchema", err)
	}
	for _, bad := range []string{"a.b", "a$", "system records", strings.Repeat("x", 65)} {
		if _, err := mongostore.New(t.Context(), db, &mongostore.Options{Collection: bad}); !errors.Is(err, driver.ErrInvalidArgument) {
			t.Errorf("%q: %v, want ErrInvalidArgument", bad, err)
		}
		if err := (&mongostore.Options{Collection: bad}).Validate(); !errors.Is(err, driver.ErrInvalidArgument) {
			t.Errorf("%q: Validate says %v", bad, err)
		}
	}
	if _, err := mongostore.New(t.Context(), nil, nil); !errors.Is(err, driver.ErrInvalidArgument) {
		t.Errorf("no database: %v", err)
	}
}

// No document that may not go is under a TTL index (rule 13), and none is before its lifetime is over.
func TestRule13TTLOnlyOnWhatMayGo(t *testing.T) {
	t.Parallel()
	db, name := database(t), newCollection(t)
	s, err := mongostore.New(t.Context(), db, &mongostore.Options{Collection: name})
	noErr(t, err)
	ctx := t.Context()
	ttlOf := func(id driver.RecordID) bson.Raw {
		raw, err := db.Collection(name).FindOne(ctx, bson.D{{Key: "_id", Value: bson.Binary{Data: id[:]}}}).Raw()
		noErr(t, err)
		doc, _ := raw.Lookup("t").DocumentOK()
		return doc
	}
	for _, expire := range []bool{false, true} {
		for i, end := range []string{"claimed", "renewed", "stepped", "completed", "released", "abandoned", "claimed again", "taken over", "stepped again"} {
			key := everonce.Key{Scope: driver.ScopeOf("ttl", end), ID: map[bool]string{false: "kept", true: "expires"}[expire]}
			req := driver.ClaimRequest{
				ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Hour,
				Lifetime: everonce.ForQueue(), ExpireUnsettled: expire, Take: driver.TakeAbandoned,
			}
			res, err := s.Claim(ctx, req)
			noErr(t, err)
			release := func(state driver.State) {
				_, err := s.Release(ctx, driver.ReleaseRequest{
					ID: req.ID, Token: res.Record.Token, Nonce: req.Nonce, State: state, Lifetime: req.Lifetime, ExpireUnsettled: expire,
				})
				noErr(t, err)
			}
			again := func() {
				req.Nonce = driver.NewNonce()
				res, err = s.Claim(ctx, req)
				noErr(t, err)
			}
			step := func() {
				_, err := s.SaveStep(ctx, driver.SaveStepRequest{
					ID: req.ID, Token: res.Record.Token, Nonce: req.Nonce, Lease: time.Hour, Lifetime: req.Lifetime,
					Step: driver.StepRecord{Name: "mail", State: driver.StepOpen, Attempt: 1},
				})
				noErr(t, err)
			}
			mayGo := false
			switch end {
			case "renewed":
				_, err = s.Renew(ctx, driver.RenewRequest{ID: req.ID, Token: res.Record.Token, Nonce: req.Nonce, Lease: time.Hour, Lifetime: req.Lifetime})
				noErr(t, err)
			case "stepped":
				step()
			case "completed":
				_, err = s.Complete(ctx, driver.CompleteRequest{ID: req.ID, Token: res.Record.Token, Nonce: req.Nonce, Lifetime: req.Lifetime, Result: driver.SavedResult{Kind: driver.ResultValue}})
				noErr(t, err)
				mayGo = true
			case "released":
				release(driver.StateReleased)
				mayGo = true
			case "abandoned":
				release(driver.StateAbandoned)
				mayGo = expire
			case "claimed again":
				release(driver.StateReleased)
				again()
			case "taken over":
				release(driver.StateAbandoned)
				again()
			case "stepped again":
				release(driver.StateReleased)
				again()
				step()
			}
			ttl := ttlOf(req.ID)
			if (len(ttl) > 0) != mayGo {
				t.Errorf("%d, %s, expiring %v: under a TTL index: %v, want %v", i, end, expire, len(ttl) > 0, mayGo)
			}
			if mayGo && ttl.Lookup("d14").Type != bson.TypeDateTime {
				t.Errorf("%s: %v, want the index of 14 days", end, ttl)
			}
		}
	}
}

// The index of a lifetime is the one that is as long, and no shorter: by whichever way the record is written.
func TestTTLOfTheWholeLifetime(t *testing.T) {
	t.Parallel()
	ctx, db, name := t.Context(), database(t), newCollection(t)
	s, err := mongostore.New(ctx, db, &mongostore.Options{Collection: name})
	noErr(t, err)
	const day = 24 * time.Hour
	for index, life := range map[string]time.Duration{"h1": time.Hour, "d1": day, "d2": 2 * day, "d14": 14 * day, "d90": 90 * day, "d365": 365 * day} {
		for what, end := range map[string]func(rec driver.Record, life driver.Lifetime) error{
			"completed": func(rec driver.Record, life driver.Lifetime) error {
				done := completed(driver.ClaimResult{Record: rec})
				done.Lifetime = life
				_, err := s.Complete(ctx, done)
				return err
			},
			"released by nonce": func(rec driver.Record, life driver.Lifetime) error {
				_, err := s.Release(ctx, driver.ReleaseRequest{ID: rec.ID, Nonce: rec.Nonce, State: driver.StateReleased, Lifetime: life})
				return err
			},
		} {
			key := everonce.Key{Scope: driver.ScopeOf("ttl", index), ID: what}
			res, err := s.Claim(ctx, driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Hour, Lifetime: everonce.ForFinance()})
			noErr(t, err)
			noErr(t, end(res.Record, driver.Lifetime{Retention: life / 4, Remember: life - life/4}))
			raw, err := db.Collection(name).FindOne(ctx, bson.D{{Key: "_id", Value: bson.Binary{Data: res.Record.ID[:]}}}).Raw()
			noErr(t, err)
			if ttl, _ := raw.Lookup("t").DocumentOK(); ttl.Lookup(index).Type != bson.TypeDateTime {
				t.Errorf("%s, kept for %v: %v, want the index %s", what, life, ttl, index)
			}
		}
	}
}

// A TTL index never removes before the lifetime is over.
func TestTTLIsNotShorterThanTheLifetime(t *testing.T) {
	t.Parallel()
	for life, want := range map[time.Duration]string{
		0: "h1", time.Hour: "h1", time.Hour + time.Millisecond: "d1", everonce.ForWeb().Total(): "d2", everonce.ForQueue().Total(): "d14",
		everonce.ForFinance().Total(): "d365", 366 * 24 * time.Hour: "",
	} {
		if got := mongostore.TTLField(life); got != want {
			t.Errorf("%v: the index %q, want %q", life, got, want)
		}
	}
	db, name := database(t), newCollection(t)
	_, err := mongostore.New(t.Context(), db, &mongostore.Options{Collection: name})
	noErr(t, err)
	specs, err := db.Collection(name).Indexes().ListSpecifications(t.Context())
	noErr(t, err)
	found := map[string]int32{}
	for _, spec := range specs {
		if spec.ExpireAfterSeconds != nil {
			found[spec.Name] = *spec.ExpireAfterSeconds
		}
	}
	for field, days := range map[string]int32{"d1": 1, "d2": 2, "d14": 14, "d90": 90, "d365": 365} {
		if got := found["everonce_ttl_"+field]; got != days*24*60*60 {
			t.Errorf("the index %s removes after %d s", field, got)
		}
	}
}

// A record that cannot be read, or that no version has written, is corrupt, and never absent: also where a smaller type
// would take a number for one that there is.
func TestACorruptRecordIsNotAbsent(t *testing.T) {
	t.Parallel()
	db, name := database(t), newCollection(t)
	s, err := mongostore.New(t.Context(), db, &mongostore.Options{Collection: name})
	noErr(t, err)
	set := func(field string, value any) bson.D {
		return bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: value}}}}
	}
	damages := map[string]bson.D{
		"state 257":                      set("st", 256+int32(driver.StateClaimed)),
		"a negative state":               set("st", int32(driver.StateReleased)-256),
		"completed without a result":     set("st", int32(driver.StateCompleted)),
		"claimed with a result":          set("rk", int32(driver.ResultValue)),
		"a result of kind 256":           set("rk", 256),
		"a previous state 257":           set("ps", 257),
		"a negative attempt":             set("a", -1),
		"a negative token":               set("tc", int64(-1)<<62),
		"no format":                      set("f", 0),
		"a fingerprint of no algorithm":  set("fs", make([]byte, 32)),
		"an algorithm, no fingerprint":   set("fa", "parts/1"),
		"a fingerprint that is cut off":  {{Key: "$set", Value: bson.D{{Key: "fa", Value: "parts/1"}, {Key: "fs", Value: make([]byte, 31)}}}},
		"a fingerprint that is too long": {{Key: "$set", Value: bson.D{{Key: "fa", Value: "parts/1"}, {Key: "fs", Value: make([]byte, 33)}}}},
		"a lease of less than nothing":   set("lm", int64(-1)<<62),
		"no nonce":                       {{Key: "$unset", Value: bson.D{{Key: "n", Value: ""}}}},
		"an impossible state":            set("st", int32(driver.StateCompleted+1)),
		"no state":                       set("st", 0),
		"a result of a kind that is not": {{Key: "$set", Value: bson.D{{Key: "st", Value: int32(driver.StateCompleted)}, {Key: "rk", Value: int32(driver.ResultElided + 1)}}}},
		"a result of a negative kind":    {{Key: "$set", Value: bson.D{{Key: "st", Value: int32(driver.StateCompleted)}, {Key: "rk", Value: int32(driver.ResultValue) - 256}}}},
		"a previous state that is not":   set("ps", int32(driver.StateCompleted+1)),
		"a negative previous state":      set("ps", int32(driver.StateReleased)-256),
		"a token that goes round":        set("ti", bson.DateTime(1<<59)),
		"a count that no token has":      set("tc", 1000),
		"never created":                  {{Key: "$unset", Value: bson.D{{Key: "c", Value: ""}}}, {Key: "$set", Value: bson.D{{Key: "ti", Value: bson.DateTime(1)}}}},
		"a date of another type":         set("pd", "secret"),
		"steps that are no list":         set("s", bson.D{{Key: "n", Value: "secret"}}),
		"a result that is a number":      set("rd", 7),
		"whether it ends is no answer":   set("xu", "secret"),
	}
	for _, field := range []string{"rev", "f", "sc", "nm", "st", "tc", "n", "o", "a", "fa", "fs", "lm", "rt", "pm", "rk", "rc", "rs", "us", "ps", "po", "le", "pk", "qk", "t", "ti", "c"} {
		var odd any = "secret"
		switch field {
		case "sc", "nm", "o", "fa", "rc", "rs", "us", "po", "le":
			odd = 7
		}
		damages[field+" of another type"] = set(field, odd)
	}
	for _, date := range []string{"ti", "c", "cl", "u", "lb", "cp", "pb", "pc"} {
		damages[date+" is before all times"] = set(date, bson.DateTime(-1))
		damages[date+" is never"] = set(date, bson.DateTime(math.MaxInt64))
	}
	for _, length := range []string{"lm", "rt", "pm"} {
		damages[length+" is negative"] = set(length, int64(-1))
		damages[length+" has no end"] = set(length, int64(math.MaxInt64))
	}
	for what, change := range damages {
		key := everonce.Key{Scope: "orders", ID: what}
		id := key.RecordID()
		req := driver.ClaimRequest{ID: id, Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Hour, Lifetime: everonce.ForWeb()}
		_, err := s.Claim(t.Context(), req)
		noErr(t, err)
		_, err = db.Collection(name).UpdateOne(t.Context(), bson.D{{Key: "_id", Value: bson.Binary{Data: id[:]}}}, change)
		noErr(t, err)
		req.Nonce = driver.NewNonce()
		for call, err := range map[string]error{
			"Claim": func() error { _, err := s.Claim(t.Context(), req); return err }(),
			"Get":   func() error { _, err := s.Get(t.Context(), driver.GetRequest{ID: id}); return err }(),
		} {
			if !errors.Is(err, driver.ErrCorruptRecord) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s, %s: %v, want ErrCorruptRecord", what, call, err)
			}
		}
	}
	if h, err := s.Health(t.Context(), driver.HealthRequest{}); err != nil || h.Unreadable != int64(len(damages)) || h.Claimed+h.Abandoned+h.Released+h.Completed != 0 {
		t.Errorf("%d damaged records are counted as %+v, %v", len(damages), h, err)
	}
}

// A collection of another version is left alone: this version's indexes, which remove documents, know nothing of it.
func TestNewLeavesAnotherLayoutAlone(t *testing.T) {
	t.Parallel()
	db, name := database(t), newCollection(t)
	_, err := db.Collection(name).InsertOne(t.Context(), bson.D{{Key: "_id", Value: "everonce"}, {Key: "layout", Value: 2}})
	noErr(t, err)
	if _, err := mongostore.New(t.Context(), db, &mongostore.Options{Collection: name}); !errors.Is(err, driver.ErrSchema) {
		t.Errorf("another layout: %v, want ErrSchema", err)
	}
	specs, err := db.Collection(name).Indexes().ListSpecifications(t.Context())
	noErr(t, err)
	for _, spec := range specs {
		if spec.Name != "_id_" {
			t.Errorf("the index %s was made on it", spec.Name)
		}
	}
}

// A record of a newer version need not have this one's fields: it is refused as newer, and not as corrupt, for which a
// consumer would bury its message in the middle of a rollout.
func TestANewerRecordIsNotCorrupt(t *testing.T) {
	t.Parallel()
	db, name := database(t), newCollection(t)
	s, err := mongostore.New(t.Context(), db, &mongostore.Options{Collection: name})
	noErr(t, err)
	for what, change := range map[string]bson.D{
		"no nonce":     {{Key: "$unset", Value: bson.D{{Key: "n", Value: ""}}}, {Key: "$set", Value: bson.D{{Key: "f", Value: 2}}}},
		"another type": {{Key: "$set", Value: bson.D{{Key: "s", Value: "elsewhere"}, {Key: "f", Value: 2}}}},
	} {
		key := everonce.Key{Scope: "orders", ID: what}
		id := key.RecordID()
		req := driver.ClaimRequest{ID: id, Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Hour, Lifetime: everonce.ForWeb()}
		res, err := s.Claim(t.Context(), req)
		noErr(t, err)
		rec := res.Record
		_, err = db.Collection(name).UpdateOne(t.Context(), bson.D{{Key: "_id", Value: bson.Binary{Data: id[:]}}}, change)
		noErr(t, err)
		other := req
		other.Nonce = driver.NewNonce()
		for call, err := range map[string]error{
			"Claim": func() error { _, err := s.Claim(t.Context(), other); return err }(),
			"Renew": func() error {
				_, err := s.Renew(t.Context(), driver.RenewRequest{ID: id, Token: rec.Token, Nonce: req.Nonce, Lease: time.Hour, Lifetime: req.Lifetime})
				return err
			}(),
			"Complete": func() error {
				_, err := s.Complete(t.Context(), driver.CompleteRequest{ID: id, Token: rec.Token, Nonce: req.Nonce, Lifetime: req.Lifetime, Result: driver.SavedResult{Kind: driver.ResultElided}})
				return err
			}(),
			"Get": func() error { _, err := s.Get(t.Context(), driver.GetRequest{ID: id}); return err }(),
		} {
			if !errors.Is(err, driver.ErrNewerRecord) || errors.Is(err, driver.ErrCorruptRecord) {
				t.Errorf("%s, %s: %v, want ErrNewerRecord", what, call, err)
			}
		}
	}
	page, err := s.List(t.Context(), driver.ListRequest{})
	noErr(t, err)
	for _, rec := range page.Records {
		if rec.Format <= driver.FormatVersion {
			t.Errorf("%s is listed in the format %d", rec.Name, rec.Format)
		}
	}
}
