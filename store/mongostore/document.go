package mongostore

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/everonce/everonce/driver"
)

// document is a record as it is stored. A time is a date, and a time that follows from it is a number of milliseconds
// beside it: an update can write no other times by the server's clock. A missing date equals the date that its comment
// names.
type document struct {
	ID     bson.Binary `bson:"_id"`
	Rev    int64       `bson:"rev"` // grows with every write
	Format int32       `bson:"f"`
	Scope  string      `bson:"sc"`
	Name   string      `bson:"nm"`
	State  int32       `bson:"st"`
	// The token is a time of the server, at first the time of the insert, in microseconds, plus a counter below 1000.
	Tick    bson.DateTime `bson:"ti,omitempty"` // Created
	Count   int64         `bson:"tc"`
	Nonce   bson.Binary   `bson:"n"`
	Owner   string        `bson:"o,omitempty"`
	Attempt int32         `bson:"a"`
	Alg     string        `bson:"fa,omitempty"`
	Sum     []byte        `bson:"fs,omitempty"`

	Created  bson.DateTime `bson:"c"`
	Claimed  bson.DateTime `bson:"cl,omitempty"` // Created, where there was a claim
	Updated  bson.DateTime `bson:"u,omitempty"`  // Created
	Leased   bson.DateTime `bson:"lb,omitempty"` // Updated
	LeaseMS  int64         `bson:"lm"`           // from Leased; counts for a claimed record
	Ended    bson.DateTime `bson:"cp,omitempty"` // Updated, where it is completed
	RetainMS int64         `bson:"rt"`           // from Ended; counts for a completed record
	Kept     bson.DateTime `bson:"pb,omitempty"` // Updated
	PurgeMS  int64         `bson:"pm"`           // from Kept; used where Expires
	Expires  bool          `bson:"xu"`

	Kind    int32  `bson:"rk,omitempty"`
	Codec   string `bson:"rc,omitempty"`
	Data    []byte `bson:"rd,omitempty"`
	Summary []byte `bson:"rs,omitempty"`

	Steps       []step        `bson:"s,omitempty"`
	UnknownStep string        `bson:"us,omitempty"`
	PrevState   int32         `bson:"ps,omitempty"`
	PrevOwner   string        `bson:"po,omitempty"`
	PrevClaimed bson.DateTime `bson:"pc,omitempty"`
	LastError   string        `bson:"le,omitempty"`
	Hints       hints         `bson:",inline"`
}

// hints are for the indexes alone: they lead to records that may be due. The fields above decide whether a record is
// due.
type hints struct {
	PurgeClass  *int32        `bson:"pk,omitempty"` // of PurgeMS, where Expires
	ResultClass *int32        `bson:"qk,omitempty"` // of RetainMS, where there is something to drop
	From        bson.DateTime `bson:"pd,omitempty"` // what both run from
	TTL         bson.D        `bson:"t,omitempty"`  // the same, under the name of the TTL index that lets it go
}

// step is a StepRecord.
type step struct {
	Name    string        `bson:"n"`
	State   int32         `bson:"st"`
	Attempt int32         `bson:"a"`
	Kind    int32         `bson:"rk,omitempty"`
	Codec   string        `bson:"rc,omitempty"`
	Data    []byte        `bson:"rd,omitempty"`
	Summary []byte        `bson:"rs,omitempty"`
	Began   bson.DateTime `bson:"b"`
	Ended   bson.DateTime `bson:"e,omitempty"`
}

// UnmarshalBSON reads a step. Of one whose fields have other types the name is left, so that it can be settled: it is
// in no state.
func (s *step) UnmarshalBSON(raw []byte) error {
	type fields step
	err := bson.Unmarshal(raw, (*fields)(s))
	if err != nil {
		name, ok := bson.Raw(raw).Lookup("n").StringValueOK()
		if !ok {
			return err
		}
		*s = step{Name: name}
	}
	return nil
}

// class puts durations of about the same length together: those from 2^(n-1) to 2^n milliseconds.
func class(ms int64) *int32 {
	n := int32(bits.Len64(uint64(ms))) //nolint:gosec // at most 64, and durations are not negative
	return &n
}

// classes is how many there are: more than a hundred years have none.
const classes = 43

// least is the shortest duration of a class.
func least(class int) time.Duration {
	if class == 0 {
		return 0
	}
	return time.Duration(1<<(class-1)) * time.Millisecond
}

// ceil returns milliseconds, rounded up.
func ceil(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// whole rounds a duration up to what is stored of it.
func whole(d time.Duration) time.Duration { return time.Duration(ceil(d)) * time.Millisecond }

// wholeLife rounds a lifetime up: both of its ends.
func wholeLife(l driver.Lifetime) driver.Lifetime {
	retention := whole(l.Retention)
	return driver.Lifetime{Retention: retention, Remember: whole(l.Total()) - retention}
}

func date(t time.Time) bson.DateTime {
	if t.IsZero() {
		return 0
	}
	return bson.NewDateTimeFromTime(t)
}

func at(d bson.DateTime) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return d.Time().UTC()
}

func or(d, otherwise bson.DateTime) bson.DateTime {
	if d == 0 {
		return otherwise
	}
	return d
}

func later(d bson.DateTime, ms int64) time.Time { return at(d + bson.DateTime(ms)) }

func binary(b []byte) bson.Binary { return bson.Binary{Data: b} }

// perMilli makes microseconds of the unit of dates: a token reads as those.
const perMilli = 1000

func (d *document) token() driver.Token {
	return driver.Token(int64(or(d.Tick, d.Created))*perMilli + d.Count)
}

// parts is the inverse of token.
func parts(t driver.Token) (tick bson.DateTime, count int64) {
	return bson.DateTime(t / perMilli), int64(t % perMilli)
}

// record reads a document.
func (d *document) record() (*driver.Record, error) {
	rec := &driver.Record{
		Scope: driver.Scope(d.Scope), Name: d.Name, State: driver.State(d.State), Token: d.token(), Owner: d.Owner, //nolint:gosec // checked below
		Attempt: int(d.Attempt), Result: result(d.Kind, d.Codec, d.Data, d.Summary), UnknownStep: d.UnknownStep, LastError: d.LastError, Format: int(d.Format),
		Previous:  driver.Previous{State: driver.State(d.PrevState), Owner: d.PrevOwner, ClaimedAt: at(d.PrevClaimed)}, //nolint:gosec // as above
		CreatedAt: at(d.Created), ClaimedAt: at(d.Claimed), UpdatedAt: at(or(d.Updated, d.Created)),
	}
	if copy(rec.ID[:], d.ID.Data) != len(rec.ID) || len(d.Nonce.Data) != len(rec.Nonce) || d.Created == 0 {
		return nil, unreadable(int64(d.Format), "a field is missing")
	}
	copy(rec.Nonce[:], d.Nonce.Data)
	if rec.Attempt > 0 && d.Claimed == 0 {
		rec.ClaimedAt = rec.CreatedAt
	}
	rec.Fingerprint.Alg = d.Alg
	copy(rec.Fingerprint.Sum[:], d.Sum)
	updated := or(d.Updated, d.Created)
	if rec.State == driver.StateClaimed {
		rec.LeaseUntil = later(or(d.Leased, updated), d.LeaseMS)
	}
	if rec.State == driver.StateCompleted {
		ended := or(d.Ended, updated)
		rec.CompletedAt, rec.ResultUntil = at(ended), later(ended, d.RetainMS)
	}
	if d.Expires {
		rec.PurgeAt = later(or(d.Kept, updated), d.PurgeMS)
	}
	for i := range d.Steps {
		rec.Steps = append(rec.Steps, d.Steps[i].record())
	}
	if d.Format <= driver.FormatVersion {
		if err := d.check(rec); err != nil {
			return nil, err
		}
	}
	return rec, nil
}

// lastDate is later than any that there will be. It is a length of time too, and of both together a date can be made,
// as of each date a token.
const lastDate = 1 << 53

// check refuses values that no version has written. It does not judge the record of a newer version.
func (d *document) check(rec *driver.Record) error {
	corrupt := func(what string, args ...any) error {
		return unreadable(int64(d.Format), fmt.Sprintf(what, args...))
	}
	times := []int64{
		int64(d.Tick), int64(d.Created), int64(d.Claimed), int64(d.Updated), int64(d.Leased), int64(d.Ended), int64(d.Kept), int64(d.PrevClaimed),
		d.LeaseMS, d.RetainMS, d.PurgeMS,
	}
	switch {
	case d.State < int32(driver.StateClaimed) || d.State > int32(driver.StateCompleted):
		return corrupt("there is no state %d", d.State)
	case d.Kind < 0 || d.Kind > int32(driver.ResultElided) || (rec.State == driver.StateCompleted) != (d.Kind != 0):
		return corrupt("state %v with a result of kind %d", rec.State, d.Kind)
	case d.PrevState < 0 || d.PrevState > int32(driver.StateCompleted) || d.Attempt < 0 || d.Rev < 1 || d.Count < 0 || d.Count >= perMilli || d.Format < 1:
		return corrupt("a number is out of its range")
	case (len(d.Sum) == 0) != (d.Alg == "") || len(d.Sum) != 0 && len(d.Sum) != len(rec.Fingerprint.Sum):
		return corrupt("half a fingerprint")
	case slices.Min(times) < 0 || slices.Max(times) > lastDate:
		return corrupt("a time is out of its range")
	}
	return nil
}

// record reads a step. One that cannot be read is in no state, and keeps what else it has: it is written back with the
// record.
func (s *step) record() driver.StepRecord {
	rec := driver.StepRecord{
		Name: s.Name, State: driver.StepState(s.State), Attempt: int(s.Attempt), //nolint:gosec // checked below
		Result: result(s.Kind, s.Codec, s.Data, s.Summary), BeganAt: at(s.Began), EndedAt: at(s.Ended),
	}
	if int32(rec.State) != s.State || int32(rec.Result.Kind) != s.Kind || !rec.Readable() {
		rec.State = 0
	}
	return rec
}

func result(kind int32, codec string, data, summary []byte) driver.SavedResult {
	return driver.SavedResult{Kind: driver.ResultKind(kind), Codec: codec, Data: data, Summary: summary} //nolint:gosec // as it was written; a step's is checked
}

// documentOf writes a record. Its times are whole milliseconds.
func documentOf(rec *driver.Record, rev int64) *document {
	tick, count := parts(rec.Token)
	d := &document{
		ID: binary(rec.ID[:]), Rev: rev, Format: int32(rec.Format), Scope: string(rec.Scope), Name: rec.Name, State: int32(rec.State), //nolint:gosec // small
		Tick: tick, Count: count, Nonce: binary(rec.Nonce[:]), Owner: rec.Owner, Attempt: int32(rec.Attempt), Alg: rec.Fingerprint.Alg, //nolint:gosec // small
		Created: date(rec.CreatedAt), Claimed: date(rec.ClaimedAt), Updated: date(rec.UpdatedAt), Expires: !rec.PurgeAt.IsZero(),
		Kind: int32(rec.Result.Kind), Codec: rec.Result.Codec, Data: rec.Result.Data, Summary: rec.Result.Summary,
		UnknownStep: rec.UnknownStep, PrevState: int32(rec.Previous.State), PrevOwner: rec.Previous.Owner, PrevClaimed: date(rec.Previous.ClaimedAt), LastError: rec.LastError,
	}
	if !rec.Fingerprint.IsZero() {
		d.Sum = rec.Fingerprint.Sum[:]
	}
	d.Leased, d.LeaseMS = since(rec.LeaseUntil, d.Updated)
	d.Kept, d.PurgeMS = since(rec.PurgeAt, d.Updated)
	if rec.State == driver.StateCompleted {
		d.Ended = date(rec.CompletedAt)
		_, d.RetainMS = since(rec.ResultUntil, d.Ended)
	}
	for i := range rec.Steps {
		s := &rec.Steps[i]
		d.Steps = append(d.Steps, step{
			Name: s.Name, State: int32(s.State), Attempt: int32(s.Attempt), Kind: int32(s.Result.Kind), Codec: s.Result.Codec, //nolint:gosec // small
			Data: s.Result.Data, Summary: s.Result.Summary, Began: date(s.BeganAt), Ended: date(s.EndedAt),
		})
	}
	d.hint()
	return d
}

// since splits a time in two: a date and the milliseconds since. The date is base, or the time itself where that is
// earlier.
func since(until time.Time, base bson.DateTime) (from bson.DateTime, ms int64) {
	if until.IsZero() {
		return 0, 0
	}
	end := date(until)
	return min(base, end), int64(end - min(base, end))
}

func (d *document) hint() {
	h := &d.Hints
	state := driver.State(d.State) //nolint:gosec // small
	if d.Expires {
		h.PurgeClass, h.From = class(d.PurgeMS), or(d.Kept, d.Updated)
	}
	if state == driver.StateCompleted && (d.Codec != "" || len(d.Data) > 0 || len(d.Steps) > 0) {
		h.ResultClass = class(d.RetainMS)
		h.From = d.Ended
	}
	if name := ttlFor(d.PurgeMS); d.Expires && state != driver.StateClaimed && name != "" {
		h.TTL = bson.D{{Key: name, Value: or(d.Kept, d.Updated)}}
	}
}
