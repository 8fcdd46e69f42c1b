// Package inspect says what a record means: as JSON, as text for a terminal, and in sentences on what the
// next delivery of the operation would get, and why.
package inspect

import (
	"encoding/hex"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// Record is a record as it is written in JSON. Times are the store's.
type Record struct {
	Record string `json:"record"`
	// Key is the short hash that logs and errors carry.
	Key     string         `json:"key_hash"`
	Scope   everonce.Scope `json:"scope"`
	ID      string         `json:"id"`
	State   string         `json:"state"`
	Attempt int            `json:"attempt"`
	Token   driver.Token   `json:"token"`
	Owner   string         `json:"owner"`
	// UnknownStep is the step whose unknown outcome made it abandoned.
	UnknownStep string       `json:"unknown_step,omitempty"`
	LastError   string       `json:"last_error,omitempty"`
	Previous    *Previous    `json:"previous,omitempty"`
	Fingerprint *Fingerprint `json:"fingerprint,omitempty"`
	Result      *Result      `json:"result,omitempty"`
	Steps       []Step       `json:"steps,omitempty"`
	Format      int          `json:"format"`
	CreatedAt   time.Time    `json:"created_at,omitzero"`
	ClaimedAt   time.Time    `json:"claimed_at,omitzero"`
	UpdatedAt   time.Time    `json:"updated_at,omitzero"`
	LeaseUntil  time.Time    `json:"lease_until,omitzero"`
	CompletedAt time.Time    `json:"completed_at,omitzero"`
	ResultUntil time.Time    `json:"result_until,omitzero"`
	PurgeAt     time.Time    `json:"purge_at,omitzero"`
}

// Previous is what the latest claim found.
type Previous struct {
	State     string    `json:"state"`
	Owner     string    `json:"owner,omitempty"`
	ClaimedAt time.Time `json:"claimed_at,omitzero"`
}

// Fingerprint is the fingerprint of the latest attempt that gave one.
type Fingerprint struct {
	Alg string `json:"alg"`
	Sum string `json:"sum"`
}

// Result is a saved result. Its data are set only if they were asked for.
type Result struct {
	Kind  string `json:"kind"`
	Codec string `json:"codec,omitempty"`
	// Bytes is how large it is; nil in a listing, which does not read it.
	Bytes   *int            `json:"bytes,omitempty"`
	Summary string          `json:"summary,omitempty"`
	JSON    json.RawMessage `json:"json,omitempty"`
	Data    []byte          `json:"data,omitempty"`
}

// Step is one step.
type Step struct {
	Name    string    `json:"name"`
	State   string    `json:"state"`
	Attempt int       `json:"attempt"`
	BeganAt time.Time `json:"began_at,omitzero"`
	EndedAt time.Time `json:"ended_at,omitzero"`
	Result  *Result   `json:"result,omitempty"`
}

// Unreadable is what a listing says of the state of a record that [IsUnreadable].
const Unreadable = "unreadable"

// IsUnreadable reports whether this version can tell the state of a record that was listed: not if it is damaged, or of
// a newer version.
func IsUnreadable(rec *driver.Record) bool {
	return rec.Format > driver.FormatVersion || rec.State < driver.StateClaimed || rec.State > driver.StateTombstone
}

func stateOf(rec *driver.Record, now time.Time) string {
	if IsUnreadable(rec) {
		return Unreadable
	}
	return rec.StateAt(now).String()
}

// Of returns a record as it is written at a time of the store's. withData adds the data of results.
func Of(rec *driver.Record, now time.Time, withData bool) Record {
	r := Record{
		Record: rec.ID.String(), Key: rec.ID.Short(), Scope: rec.Scope, ID: rec.Name,
		State: stateOf(rec, now), Attempt: rec.Attempt, Token: rec.Token, Owner: rec.Owner,
		UnknownStep: rec.UnknownStep, LastError: rec.LastError, Format: rec.Format,
		CreatedAt: writable(rec.CreatedAt), ClaimedAt: writable(rec.ClaimedAt), UpdatedAt: writable(rec.UpdatedAt), LeaseUntil: writable(rec.LeaseUntil),
		CompletedAt: writable(rec.CompletedAt), ResultUntil: writable(rec.ResultUntil), PurgeAt: writable(rec.PurgeAt),
	}
	if p := rec.Previous; p.State != 0 {
		r.Previous = &Previous{State: p.State.String(), Owner: p.Owner, ClaimedAt: writable(p.ClaimedAt)}
	}
	if f := rec.Fingerprint; !f.IsZero() {
		r.Fingerprint = &Fingerprint{Alg: f.Alg, Sum: hex.EncodeToString(f.Sum[:])}
	}
	if r.Result = resultOf(&rec.Result, withData); r.Result != nil && IsRequest(rec) {
		r.Result.asAnswer(&rec.Result, withData)
	}
	for i := range rec.Steps {
		s := &rec.Steps[i]
		r.Steps = append(r.Steps, Step{
			Name: s.Name, State: s.State.String(), Attempt: s.Attempt, BeganAt: writable(s.BeganAt), EndedAt: writable(s.EndedAt),
			Result: resultOf(&s.Result, withData),
		})
	}
	return r
}

// writable is a time that JSON can have, and the zero time for another: in a damaged record there may be any, and one
// of them would leave a listing without all the others.
func writable(t time.Time) time.Time {
	if y := t.Year(); y < 0 || y > 9999 {
		return time.Time{}
	}
	return t
}

func resultOf(res *driver.SavedResult, withData bool) *Result {
	if res.Kind == 0 {
		return nil
	}
	size := len(res.Data)
	r := &Result{Kind: res.Kind.String(), Codec: res.Codec, Bytes: &size, Summary: string(res.Summary)}
	switch {
	case !withData:
	case json.Valid(res.Data) && utf8.Valid(res.Data):
		r.JSON = res.Data
	default:
		r.Data = res.Data
	}
	return r
}
