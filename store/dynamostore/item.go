package dynamostore

import (
	"fmt"
	"math"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce/driver"
)

// Names of an item's attributes. Times are microseconds.
const (
	attrPartition = "pk"
	attrSort      = "sk" // the RecordID
	attrRevision  = "rev"
	attrFormat    = "v"
	attrScope     = "sc"
	attrName      = "nm"
	attrState     = "st"
	attrToken     = "tk"
	attrNonce     = "n"
	attrOwner     = "o"
	attrAttempt   = "a"
	attrAlg       = "fa"
	attrSum       = "fs"
	attrCreated   = "c"
	attrClaimed   = "cl"
	attrUpdated   = "u"
	attrLease     = "lu" // of a claimed record
	attrCompleted = "cp"
	attrRetained  = "ru" // when the result's retention ends
	attrPurge     = "pu" // when the record goes, where attrExpires is true
	attrExpires   = "xu"
	attrTTL       = "ttl" // seconds; DynamoDB removes the item some time after it
	attrKind      = "rk"
	attrCodec     = "rc"
	attrData      = "rd"
	attrSummary   = "rs"
	attrSteps     = "s"
	attrUnknown   = "us"
	attrPrevState = "ps"
	attrPrevOwner = "po"
	attrPrevClaim = "pc"
	attrLastError = "le"

	// The attributes of a step beside its state, attempt and result.
	attrBegan = "b"
	attrEnded = "e"
)

// shards is the number of partitions of each scope's first part.
const shards = 16

// key is the primary key of a record: the partition is the first eight bytes of the ID, which the scope decides, and
// four bits of the hash, so that the records of one scope are in sixteen partitions. The sort key is the whole ID.
func key(id *driver.RecordID) attributes {
	return attributes{attrPartition: bytes(partition(id)), attrSort: bytes(id[:])}
}

func partition(id *driver.RecordID) []byte {
	return append(append(make([]byte, 0, 9), id[:8]...), id[8]>>4)
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func at(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// ttlAfter is how long after a record's end DynamoDB may remove it: far more than clocks differ.
const ttlAfter = time.Hour

func ttl(purge time.Time) int64 { return purge.Add(ttlAfter).Unix() }

// itemOf writes a record. A claim has no TTL, because a renewal could not postpone it in the same write.
func itemOf(rec *driver.Record, revision int64) attributes {
	a := key(&rec.ID)
	a[attrRevision] = number(revision)
	a[attrFormat] = number(rec.Format)
	a[attrState] = number(rec.State)
	a[attrToken] = number(rec.Token)
	a[attrNonce] = bytes(rec.Nonce[:])
	a.putText(attrScope, string(rec.Scope))
	a.putText(attrName, rec.Name)
	a.putText(attrOwner, rec.Owner)
	a.putNumber(attrAttempt, int64(rec.Attempt))
	if !rec.Fingerprint.IsZero() {
		a[attrAlg], a[attrSum] = text(rec.Fingerprint.Alg), bytes(rec.Fingerprint.Sum[:])
	}
	for name, t := range map[string]time.Time{
		attrCreated: rec.CreatedAt, attrClaimed: rec.ClaimedAt, attrUpdated: rec.UpdatedAt, attrLease: rec.LeaseUntil, attrCompleted: rec.CompletedAt,
		attrRetained: rec.ResultUntil, attrPurge: rec.PurgeAt, attrPrevClaim: rec.Previous.ClaimedAt,
	} {
		a.putNumber(name, micros(t))
	}
	a[attrExpires] = flag(!rec.PurgeAt.IsZero())
	if rec.State != driver.StateClaimed && !rec.PurgeAt.IsZero() {
		a[attrTTL] = number(ttl(rec.PurgeAt))
	}
	a.putResult(&rec.Result)
	if len(rec.Steps) > 0 {
		steps := make([]types.AttributeValue, len(rec.Steps))
		for i := range rec.Steps {
			steps[i] = stepOf(&rec.Steps[i])
		}
		a[attrSteps] = &types.AttributeValueMemberL{Value: steps}
	}
	a.putText(attrUnknown, rec.UnknownStep)
	a.putNumber(attrPrevState, int64(rec.Previous.State))
	a.putText(attrPrevOwner, rec.Previous.Owner)
	a.putText(attrLastError, rec.LastError)
	return a
}

func (a attributes) putResult(r *driver.SavedResult) {
	a.putNumber(attrKind, int64(r.Kind))
	a.putText(attrCodec, r.Codec)
	a.putBytes(attrData, r.Data)
	a.putBytes(attrSummary, r.Summary)
}

func stepOf(s *driver.StepRecord) types.AttributeValue {
	a := attributes{attrName: text(s.Name), attrState: number(s.State)}
	a.putNumber(attrAttempt, int64(s.Attempt))
	a.putResult(&s.Result)
	a.putNumber(attrBegan, micros(s.BeganAt))
	a.putNumber(attrEnded, micros(s.EndedAt))
	return &types.AttributeValueMemberM{Value: a}
}

// record reads an item; nil is a missing item. A record that no version has written is [driver.ErrCorruptRecord]; then
// the returned record is [attributes.head]. It does not judge the record of a newer version.
func (a attributes) record() (*driver.Record, error) {
	if len(a) == 0 {
		return nil, nil
	}
	r := &reader{from: a}
	most := int64(math.MaxInt64)
	rec := &driver.Record{
		Scope: driver.Scope(r.text(attrScope)), Name: r.text(attrName), State: driver.State(r.number(attrState, 0, math.MaxUint8)), //nolint:gosec // in range
		Token: driver.Token(r.number(attrToken, 0, most)), Owner: r.text(attrOwner), Attempt: int(r.number(attrAttempt, 0, math.MaxInt32)),
		Result: r.result(), UnknownStep: r.text(attrUnknown), LastError: r.text(attrLastError), Format: int(r.number(attrFormat, 1, math.MaxInt32)),
		Previous: driver.Previous{
			State: driver.State(r.number(attrPrevState, 0, int64(driver.StateCompleted))), //nolint:gosec // in range
			Owner: r.text(attrPrevOwner), ClaimedAt: r.time(attrPrevClaim),
		},
		CreatedAt: r.time(attrCreated), ClaimedAt: r.time(attrClaimed), UpdatedAt: r.time(attrUpdated), CompletedAt: r.time(attrCompleted),
		LeaseUntil: r.time(attrLease), ResultUntil: r.time(attrRetained), PurgeAt: r.time(attrPurge),
	}
	r.number(attrRevision, 1, most)
	if !r.flag(attrExpires) {
		rec.PurgeAt = time.Time{}
	}
	id, nonce, sum := r.bytes(attrSort), r.bytes(attrNonce), r.bytes(attrSum)
	rec.Fingerprint.Alg = r.text(attrAlg)
	copy(rec.ID[:], id)
	copy(rec.Nonce[:], nonce)
	copy(rec.Fingerprint.Sum[:], sum)
	if steps := read[*types.AttributeValueMemberL](r, attrSteps); steps != nil {
		for _, s := range steps.Value {
			rec.Steps = append(rec.Steps, r.step(s))
		}
	}
	if rec.Format > driver.FormatVersion {
		return rec, nil
	}
	var what string
	switch {
	case r.bad != "":
		what = fmt.Sprintf("the attribute %s has another type, or is out of its range", r.bad)
	case rec.State < driver.StateClaimed || rec.State > driver.StateCompleted:
		what = fmt.Sprintf("there is no state %d", rec.State)
	case rec.Result.Kind > driver.ResultElided || (rec.State == driver.StateCompleted) != (rec.Result.Kind != 0):
		what = fmt.Sprintf("state %v with a result of kind %d", rec.State, rec.Result.Kind)
	case len(id) != len(rec.ID) || len(nonce) != len(rec.Nonce) || rec.Format == 0 || rec.Token == 0 || rec.CreatedAt.IsZero():
		what = "an attribute is missing"
	case len(sum) != 0 && len(sum) != len(rec.Fingerprint.Sum) || (len(sum) == 0) != (rec.Fingerprint.Alg == ""):
		what = "half a fingerprint"
	case rec.State == driver.StateClaimed && rec.LeaseUntil.IsZero():
		what = "a claim without a lease"
	default:
		return rec, nil
	}
	return a.head(), fmt.Errorf("%w: %s", driver.ErrCorruptRecord, what)
}

// head returns the readable part of an item that cannot be read: the names by which it is found.
func (a attributes) head() *driver.Record {
	r := &reader{from: a}
	rec := &driver.Record{Scope: driver.Scope(r.text(attrScope)), Name: r.text(attrName), Format: int(r.number(attrFormat, 0, math.MaxInt32))}
	copy(rec.ID[:], r.bytes(attrSort))
	return rec
}

// over reports whether an item that cannot be read is gone, by the times that can be read: it may have been a claim.
func (a attributes) over(now time.Time) bool {
	r := &reader{from: a}
	purge, lease := r.time(attrPurge), r.time(attrLease)
	claimed := driver.State(r.number(attrState, 0, math.MaxInt64)) == driver.StateClaimed //nolint:gosec // compared only
	if _, has := a[attrLease]; !has && claimed || has && (lease.IsZero() || now.Before(lease)) {
		return false
	}
	return r.flag(attrExpires) && !purge.IsZero() && !now.Before(purge)
}

// ended reports whether an item that cannot be read is certainly no live claim, nor a newer version's.
func (a attributes) ended(now time.Time) bool {
	r := &reader{from: a}
	format, state, lease := r.number(attrFormat, 1, driver.FormatVersion), driver.State(r.number(attrState, 1, int64(driver.StateCompleted))), r.time(attrLease) //nolint:gosec // in range
	return format != 0 && state != 0 && (state != driver.StateClaimed || !lease.IsZero() && !now.Before(lease))
}

func (r *reader) time(name string) time.Time { return at(r.number(name, 1, math.MaxInt64)) }

func (r *reader) result() driver.SavedResult {
	return driver.SavedResult{
		Kind:  driver.ResultKind(r.number(attrKind, 0, math.MaxUint8)), //nolint:gosec // in range
		Codec: r.text(attrCodec), Data: r.bytes(attrData), Summary: r.bytes(attrSummary),
	}
}

// step reads a step. One that cannot be read is in no state, and keeps what else it has.
func (r *reader) step(v types.AttributeValue) driver.StepRecord {
	m, ok := v.(*types.AttributeValueMemberM)
	if !ok {
		r.bad = attrSteps
		return driver.StepRecord{}
	}
	in := &reader{from: m.Value}
	name := in.text(attrName)
	if in.bad != "" {
		r.bad = attrSteps
	}
	s := driver.StepRecord{
		Name: name, State: driver.StepState(in.number(attrState, 0, math.MaxUint8)), //nolint:gosec // in range
		Attempt: int(in.number(attrAttempt, 0, math.MaxInt32)), Result: in.result(), BeganAt: in.time(attrBegan), EndedAt: in.time(attrEnded),
	}
	if in.bad != "" || !s.Readable() {
		s.State = 0
	}
	return s
}
