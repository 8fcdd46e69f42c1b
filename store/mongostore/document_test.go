package mongostore_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/mongostore"
)

// full is a record with a value in every field.
func full() *driver.Record {
	t0 := time.Date(2026, 7, 1, 12, 0, 0, int(7*time.Millisecond), time.UTC)
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	rec := &driver.Record{
		ID: driver.RecordID{1}, Scope: "shop/charge", Name: "order-7", State: driver.StateCompleted, Token: driver.Token(t0.UnixMicro() + 999), Nonce: driver.Nonce{2},
		Owner: "one", Attempt: 3, Fingerprint: driver.Fingerprint{Alg: "parts/1", Sum: [32]byte{3}}, UnknownStep: "mail", LastError: "timeout", Format: driver.FormatVersion,
		Result:   driver.SavedResult{Kind: driver.ResultValue, Codec: "json", Data: []byte("{}"), Summary: []byte("s")},
		Previous: driver.Previous{State: driver.StateAbandoned, Owner: "two", ClaimedAt: at(1)}, CreatedAt: at(0), ClaimedAt: at(2), UpdatedAt: at(4), CompletedAt: at(3),
		ResultUntil: at(100), PurgeAt: at(200),
	}
	rec.Steps = []driver.StepRecord{
		{Name: "charge", State: driver.StepDone, Attempt: 2, Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "json", Data: []byte("1"), Summary: []byte("x")}, BeganAt: at(1), EndedAt: at(2)},
		{Name: "mail", State: driver.StepOpen, Attempt: 3, BeganAt: at(3)},
	}
	return rec
}

// A record is read as it was written, in every state, whichever of its times there are.
func TestDocumentKeepsEveryField(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *driver.Record){
		"completed": func(*driver.Record) {},
		"claimed": func(r *driver.Record) {
			r.State, r.CompletedAt, r.ResultUntil, r.PurgeAt, r.LeaseUntil = driver.StateClaimed, time.Time{}, time.Time{}, time.Time{}, r.UpdatedAt.Add(time.Minute)
			r.Result = driver.SavedResult{}
		},
		"lapsed before its last write": func(r *driver.Record) {
			r.State, r.CompletedAt, r.ResultUntil, r.LeaseUntil = driver.StateClaimed, time.Time{}, time.Time{}, r.UpdatedAt.Add(-time.Second)
			r.PurgeAt = r.UpdatedAt.Add(-2 * time.Second)
			r.Result = driver.SavedResult{}
		},
		"released by nonce, before any claim": func(r *driver.Record) {
			*r = driver.Record{ID: r.ID, State: driver.StateReleased, Token: r.Token, Nonce: r.Nonce, Format: r.Format, CreatedAt: r.CreatedAt, UpdatedAt: r.CreatedAt, PurgeAt: r.PurgeAt}
		},
		"abandoned for good": func(r *driver.Record) {
			r.State, r.CompletedAt, r.ResultUntil, r.PurgeAt, r.Result = driver.StateAbandoned, time.Time{}, time.Time{}, time.Time{}, driver.SavedResult{}
		},
	} {
		want := full()
		change(want)
		raw, err := mongostore.WriteDocument(want)
		noErr(t, err)
		got, err := mongostore.ReadDocument(raw)
		noErr(t, err)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, want)
		}
	}
	rec := reflect.ValueOf(*full()) // a new field of the record is to be stored too
	for i := range rec.NumField() {
		if name := rec.Type().Field(i).Name; name != "LeaseUntil" && rec.Field(i).IsZero() {
			t.Errorf("the test gives no value to Record.%s", name)
		}
	}
}

// A step with a number that no version has written is in no state, even if a smaller type would take it for a valid
// number. It spoils neither the record nor the record's other steps, also after it has been written back with its
// record.
func TestAStepWithAnotherNumberIsInNoState(t *testing.T) {
	t.Parallel()
	for what, spoil := range map[string]bson.E{
		"no state": {Key: "st", Value: int32(0)}, "state 77": {Key: "st", Value: int32(77)}, "state 258": {Key: "st", Value: 256 + int32(driver.StepDone)},
		"a negative state": {Key: "st", Value: int32(driver.StepDone) - 256}, "done with no kind": {Key: "rk", Value: int32(0)},
		"kind 4": {Key: "rk", Value: int32(driver.ResultElided + 1)}, "kind 257": {Key: "rk", Value: 256 + int32(driver.ResultValue)},
		"a negative kind": {Key: "rk", Value: int32(driver.ResultValue) - 256},
	} {
		raw, err := mongostore.WriteDocument(full())
		noErr(t, err)
		var doc bson.D
		noErr(t, bson.Unmarshal(raw, &doc))
		for i := range doc {
			if doc[i].Key == "s" {
				first := doc[i].Value.(bson.A)[0].(bson.D)
				for j := range first {
					if first[j].Key == spoil.Key {
						first[j].Value = spoil.Value
					}
				}
			}
		}
		raw, err = bson.Marshal(doc)
		noErr(t, err)
		want := full()
		want.Steps[0].State = 0
		for range 2 {
			got, err := mongostore.ReadDocument(raw)
			noErr(t, err)
			want.Steps[0].Result.Kind = got.Steps[0].Result.Kind
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
			}
			raw, err = mongostore.WriteDocument(got)
			noErr(t, err)
		}
	}
}

// A step with a field of another type is listed by its name, in no state, and spoils nothing else, also after it has
// been written back. A step without a name could never be settled: its record is corrupt.
func TestAStepWithAFieldOfAnotherTypeIsInNoState(t *testing.T) {
	t.Parallel()
	spoilt := func(field string) bson.Raw {
		raw, err := mongostore.WriteDocument(full())
		noErr(t, err)
		var doc map[string]any
		noErr(t, bson.Unmarshal(raw, &doc))
		first := doc["s"].(bson.A)[0].(bson.D)
		for i := range first {
			if first[i].Key == field {
				first[i].Value = bson.A{"another"}
			}
		}
		raw, err = bson.Marshal(doc)
		noErr(t, err)
		return raw
	}
	for _, field := range []string{"st", "a", "rk", "rc", "rd", "rs", "b", "e"} {
		raw := spoilt(field)
		want := full()
		want.Steps[0] = driver.StepRecord{Name: "charge"}
		for range 2 {
			got, err := mongostore.ReadDocument(raw)
			noErr(t, err)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s:\n got %+v\nwant %+v", field, got, want)
			}
			raw, err = mongostore.WriteDocument(got)
			noErr(t, err)
		}
	}
	if _, err := mongostore.ReadDocument(spoilt("n")); !errors.Is(err, driver.ErrCorruptRecord) {
		t.Errorf("a step without a name: %v", err)
	}
}

// Whatever stands in a collection is a record, or corrupt; the error quotes nothing of it.
func FuzzDocument(f *testing.F) {
	raw, err := mongostore.WriteDocument(full())
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(raw))
	odd, err := bson.Marshal(bson.D{{Key: "_id", Value: "everonce"}, {Key: "s", Value: "secret"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(odd)
	newer, err := bson.Marshal(bson.D{{Key: "_id", Value: "everonce"}, {Key: "f", Value: driver.FormatVersion + 1}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(newer)
	f.Add(bytes.Replace(raw, []byte("\x02fa\x00"), []byte("\x02fx\x00"), 1)) // a fingerprint of no algorithm
	f.Fuzz(func(t *testing.T, raw []byte) {
		if bson.Raw(raw).Validate() != nil {
			return // it is no document: no server stores it, and of some of them the driver never comes to an end
		}
		rec, err := mongostore.ReadDocument(raw)
		switch {
		case err == nil && rec == nil:
			t.Fatal("neither a record nor an error")
		case err != nil && !errors.Is(err, driver.ErrCorruptRecord) && !errors.Is(err, driver.ErrNewerRecord):
			t.Fatalf("%v, want ErrCorruptRecord, or ErrNewerRecord", err)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Fatalf("%v quotes what was read", err)
		case err == nil && rec.Format <= driver.FormatVersion: // one of a newer version is not written
			again, err := mongostore.WriteDocument(rec)
			if err != nil {
				t.Fatalf("a record was read that cannot be written: %v", err)
			}
			if got, err := mongostore.ReadDocument(again); err != nil || !reflect.DeepEqual(got, rec) {
				t.Fatalf("a record was read as\n%+v\nwritten, and is read as\n%+v, %v", rec, got, err)
			}
		}
	})
}
