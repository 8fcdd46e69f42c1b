package memstore

import (
	"time"

	"github.com/everonce/everonce"
)

// entry is a record as it is kept: times as numbers, and what few records have set apart. It is half of
// an everonce.Record, and gives the collector half as much to look through.
type entry struct {
	id    everonce.RecordID
	scope everonce.Scope
	name  string
	owner string
	token everonce.Token
	nonce everonce.Nonce

	state   everonce.State
	kind    everonce.ResultKind
	format  int32
	attempt int32

	lease, created, claimed, updated, completed, result, purge micros

	alg   string
	sum   [32]byte
	codec string
	data  []byte
	rare  *rare
}

// rare is what a record of a first attempt that just completes does not have.
type rare struct {
	summary     []byte
	steps       []everonce.StepRecord
	unknownStep string
	lastError   string
	previous    everonce.Previous
}

// micros is a time in microseconds since 1970; zero is no time.
type micros int64

func microsOf(t time.Time) micros {
	if t.IsZero() {
		return 0
	}
	return micros(t.UnixMicro())
}

func (m micros) time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(m)).UTC()
}

// set makes e keep rec.
func (e *entry) set(rec *everonce.Record) {
	e.id, e.scope, e.name, e.owner = rec.ID, rec.Scope, rec.Name, rec.Owner
	e.token, e.nonce = rec.Token, rec.Nonce
	e.state, e.kind = rec.State, rec.Result.Kind
	e.format, e.attempt = int32(rec.Format), int32(rec.Attempt) //nolint:gosec // counts
	e.lease, e.created, e.claimed = microsOf(rec.LeaseUntil), microsOf(rec.CreatedAt), microsOf(rec.ClaimedAt)
	e.updated, e.completed = microsOf(rec.UpdatedAt), microsOf(rec.CompletedAt)
	e.result, e.purge = microsOf(rec.ResultUntil), microsOf(rec.PurgeAt)
	e.alg, e.sum = rec.Fingerprint.Alg, rec.Fingerprint.Sum
	e.codec, e.data = rec.Result.Codec, rec.Result.Data
	e.rare = nil
	if rec.Result.Summary != nil || rec.Steps != nil || rec.UnknownStep != "" || rec.LastError != "" || rec.Previous.State != 0 {
		e.rare = &rare{rec.Result.Summary, rec.Steps, rec.UnknownStep, rec.LastError, rec.Previous}
	}
}

// get writes into rec what e keeps.
func (e *entry) get(rec *everonce.Record) {
	rec.ID, rec.Scope, rec.Name, rec.Owner = e.id, e.scope, e.name, e.owner
	rec.Token, rec.Nonce = e.token, e.nonce
	rec.State, rec.Format, rec.Attempt = e.state, int(e.format), int(e.attempt)
	rec.LeaseUntil, rec.CreatedAt, rec.ClaimedAt = e.lease.time(), e.created.time(), e.claimed.time()
	rec.UpdatedAt, rec.CompletedAt = e.updated.time(), e.completed.time()
	rec.ResultUntil, rec.PurgeAt = e.result.time(), e.purge.time()
	rec.Fingerprint = everonce.Fingerprint{Alg: e.alg, Sum: e.sum}
	rec.Result = everonce.SavedResult{Kind: e.kind, Codec: e.codec, Data: e.data}
	rec.Steps, rec.UnknownStep, rec.LastError, rec.Previous = nil, "", "", everonce.Previous{}
	if r := e.rare; r != nil {
		rec.Result.Summary, rec.Steps = r.summary, r.steps
		rec.UnknownStep, rec.LastError, rec.Previous = r.unknownStep, r.lastError, r.previous
	}
}
