package memstore

import (
	"time"

	"github.com/everonce/everonce/driver"
)

// entry is a record as it is kept: times as numbers, and what few records have set apart. It is half of
// an everonce.Record, and gives the collector half as much to look through.
type entry struct {
	// What a replay reads comes first: it lies together in the processor's cache.
	id      driver.RecordID
	state   driver.State
	kind    driver.ResultKind
	format  int16
	attempt int32
	result  micros
	data    []byte
	summary []byte
	codec   string
	print   driver.Fingerprint
	rare    *rare

	scope driver.Scope
	name  string
	owner string
	token driver.Token
	nonce driver.Nonce

	lease, created, claimed, updated, completed, purge micros
}

// rare is what a record of a first attempt that just completes does not have.
type rare struct {
	steps       []driver.StepRecord
	unknownStep string
	lastError   string
	previous    driver.Previous
}

// micros is a time in microseconds since 1970; zero is no time.
type micros int64

func microsOf(t time.Time) micros {
	if t.IsZero() {
		return 0
	}
	return micros(t.UnixMicro())
}

func (m micros) add(d time.Duration) micros { return m + micros(d/time.Microsecond) }

func (m micros) time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(m)).UTC()
}

// set makes e keep rec.
func (e *entry) set(rec *driver.Record) {
	e.scope, e.name, e.owner = rec.Scope, rec.Name, rec.Owner
	e.token, e.nonce = rec.Token, rec.Nonce
	e.state, e.kind = rec.State, rec.Result.Kind
	e.format, e.attempt = int16(rec.Format), int32(rec.Attempt) //nolint:gosec // counts
	e.lease, e.created, e.claimed = microsOf(rec.LeaseUntil), microsOf(rec.CreatedAt), microsOf(rec.ClaimedAt)
	e.updated, e.completed = microsOf(rec.UpdatedAt), microsOf(rec.CompletedAt)
	e.result, e.purge = microsOf(rec.ResultUntil), microsOf(rec.PurgeAt)
	e.print = rec.Fingerprint
	e.codec, e.data, e.summary = rec.Result.Codec, rec.Result.Data, rec.Result.Summary
	e.rare = nil
	if rec.Steps != nil || rec.UnknownStep != "" || rec.LastError != "" || rec.Previous.State != 0 {
		e.rare = &rare{rec.Steps, rec.UnknownStep, rec.LastError, rec.Previous}
	}
}

// get writes into rec, which is a zero record, what e keeps.
func (e *entry) get(rec *driver.Record) {
	rec.ID, rec.Scope, rec.Name, rec.Owner = e.id, e.scope, e.name, e.owner
	rec.Token, rec.Nonce = e.token, e.nonce
	rec.State, rec.Format, rec.Attempt = e.state, int(e.format), int(e.attempt)
	rec.LeaseUntil, rec.CreatedAt, rec.ClaimedAt = e.lease.time(), e.created.time(), e.claimed.time()
	rec.UpdatedAt, rec.CompletedAt = e.updated.time(), e.completed.time()
	rec.ResultUntil, rec.PurgeAt = e.result.time(), e.purge.time()
	rec.Fingerprint = e.print
	rec.Result.Kind, rec.Result.Codec, rec.Result.Data, rec.Result.Summary = e.kind, e.codec, e.data, e.summary
	if r := e.rare; r != nil {
		rec.Steps, rec.UnknownStep, rec.LastError, rec.Previous = r.steps, r.unknownStep, r.lastError, r.previous
	}
}
