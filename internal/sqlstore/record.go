package sqlstore

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/everonce/everonce/internal/sqldb"

	"github.com/everonce/everonce/driver"
)

// micros is a time as it is stored: microseconds, or nil for none.
func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// at is a time as it was stored.
func at(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// count is a number as it was stored: as large as an int is on every machine.
func count(n int64) int { return int(min(max(n, math.MinInt32), math.MaxInt32)) }

func text(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// blob keeps an empty value apart from none.
func blob(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// sumOf is the sum of a fingerprint, or nil of none.
func sumOf(f *driver.Fingerprint) any {
	if f.IsZero() {
		return nil
	}
	return f.Sum[:]
}

func number[N ~int | ~int64 | ~uint8](n N) any {
	if n == 0 {
		return nil
	}
	return int64(n)
}

// row is the answer of a statement for a key: the store's time, whether the key was locked and inserted, and the
// record, if there is one.
type row struct {
	now              time.Time
	locked, inserted bool
	found            bool
	place            int64 // of the key among many
	rec              driver.Record
	steps            int64 // how many the record has; they are read apart
	rev              int64
	err              error // of a record that cannot be read; the row itself was
}

// stepped reports whether the record has steps that are to be read.
func (w *row) stepped() bool {
	return w.steps > 0 && w.err == nil && w.rec.Format <= driver.FormatVersion
}

// scan reads the columns of an answer.
func (w *row) scan(r sqldb.Row) error {
	var a struct { // in one piece of memory
		now, locked, inserted                                     int64
		state, token, attempt, lease, kind, prevState, prevClaim  int64
		format, created, claimed, updated, completed, until, gone int64
		due                                                       int64
		id, nonce, sum                                            []byte
		scope, name                                               string
	}
	rec := &w.rec
	if err := r.Scan(&a.now, &a.locked, &a.inserted, &a.id, &a.scope, &a.name,
		&a.state, &a.token, &a.nonce, &rec.Owner, &a.attempt, &a.lease, &rec.Fingerprint.Alg, &a.sum,
		&a.kind, &rec.Result.Codec, &rec.Result.Data, &rec.Result.Summary, &rec.UnknownStep, &a.prevState, &rec.Previous.Owner, &a.prevClaim, &rec.LastError,
		&a.format, &a.created, &a.claimed, &a.updated, &a.completed, &a.until, &a.gone, &a.due, &w.steps, &w.rev); err != nil {
		return err
	}
	w.now, w.locked, w.inserted, w.found, w.place = at(a.now), a.locked > 0, a.inserted != 0, a.id != nil, a.inserted
	if !w.found {
		w.rec = driver.Record{}
		return nil
	}
	if a.format > driver.FormatVersion {
		// what a newer version wrote is not judged by what this one knows
		w.rec = driver.Record{Format: count(a.format), State: driver.State(a.state), Token: driver.Token(a.token), PurgeAt: at(a.gone), LeaseUntil: at(a.lease)} //nolint:gosec // it is not judged
		copy(w.rec.ID[:], a.id)
		return nil
	}
	rec.Scope, rec.Name = driver.Scope(a.scope), a.name
	rec.State, rec.Token, rec.Attempt = driver.State(a.state), driver.Token(a.token), count(a.attempt) //nolint:gosec // fill checks the range
	rec.Result.Kind, rec.Previous.State = driver.ResultKind(a.kind), driver.State(a.prevState)         //nolint:gosec // as above
	rec.Format = count(a.format)
	rec.LeaseUntil, rec.CreatedAt, rec.ClaimedAt, rec.UpdatedAt = at(a.lease), at(a.created), at(a.claimed), at(a.updated)
	rec.CompletedAt, rec.ResultUntil, rec.PurgeAt, rec.Previous.ClaimedAt = at(a.completed), at(a.until), at(a.gone), at(a.prevClaim)
	w.err = w.fill(a.id, a.nonce, a.sum, [...]int64{a.state, a.kind, a.prevState, a.attempt, a.token, a.format},
		a.lease, a.created, a.claimed, a.updated, a.completed, a.until, a.gone, a.prevClaim)
	return nil
}

// lastTime is later than any that there will be. Tokens are times too, and there is room for more of them above it.
const lastTime = 1 << 60

// fill copies what has a fixed length, and refuses what no version has written.
func (w *row) fill(id, nonce, sum []byte, n [6]int64, times ...int64) error {
	rec := &w.rec
	ok := copy(rec.ID[:], id) == len(id) && len(id) == len(rec.ID) &&
		len(nonce) == len(rec.Nonce) && (len(sum) == 0 || len(sum) == len(rec.Fingerprint.Sum)) &&
		(len(sum) == 0) == (rec.Fingerprint.Alg == "")
	copy(rec.Nonce[:], nonce)
	copy(rec.Fingerprint.Sum[:], sum)
	state, kind, prev, attempt, token, format := n[0], n[1], n[2], n[3], n[4], n[5]
	switch {
	case !ok:
		return w.corrupt("a binary column has a wrong length")
	case state < int64(driver.StateClaimed) || state > int64(driver.StateCompleted):
		return w.corrupt(fmt.Sprintf("there is no state %d", state))
	case kind < 0 || kind > int64(driver.ResultElided) || (state == int64(driver.StateCompleted)) != (kind != 0):
		return w.corrupt(fmt.Sprintf("state %v with a result of kind %d", rec.State, kind))
	case prev < 0 || prev > int64(driver.StateCompleted) || attempt < 0 || attempt > math.MaxInt32 || token <= 0 || token > lastTime || format < 1:
		return w.corrupt("a number is out of its range")
	case slices.Min(times) < 0 || slices.Max(times) > lastTime:
		return w.corrupt("a time is out of its range")
	case rec.State == driver.StateClaimed && rec.LeaseUntil.IsZero():
		return w.corrupt("claimed without a lease")
	}
	return nil
}

func (w *row) corrupt(what string) error {
	return fmt.Errorf("%w: key %s: %s", driver.ErrCorruptRecord, w.rec.ID.Short(), what)
}

// record returns the record, or nil if it does not exist, and an error if it cannot be read.
func (w *row) record() (*driver.Record, error) {
	if !w.found {
		return nil, nil
	}
	return &w.rec, w.err
}

// swapArgs appends the arguments of [SwapColumns].
func swapArgs(args []any, r *driver.Record, steps int64) []any {
	return append(args,
		int64(r.State), int64(r.Token), r.Nonce[:], r.Owner, int64(r.Attempt), micros(r.LeaseUntil), text(r.Fingerprint.Alg), sumOf(&r.Fingerprint),
		number(r.Result.Kind), text(r.Result.Codec), blob(r.Result.Data), blob(r.Result.Summary),
		text(r.UnknownStep), number(r.Previous.State), text(r.Previous.Owner), micros(r.Previous.ClaimedAt), text(r.LastError),
		int64(r.Format), micros(r.CreatedAt), micros(r.ClaimedAt), micros(r.UpdatedAt), micros(r.CompletedAt), micros(r.ResultUntil), micros(r.PurgeAt),
		micros(dueAt(r, steps)), steps)
}

// dueAt is when a purge has something to do about the record; zero is never. Every statement that writes
// one of the times keeps it so.
func dueAt(r *driver.Record, steps int64) time.Time {
	switch {
	case r.PurgeAt.IsZero():
		return time.Time{}
	case r.State == driver.StateClaimed && r.LeaseUntil.After(r.PurgeAt):
		return r.LeaseUntil
	case r.State == driver.StateCompleted && (r.Result.Codec != "" || r.Result.Data != nil || steps > 0):
		return r.ResultUntil
	}
	return r.PurgeAt
}

// scanStep reads [StepColumns].
func scanStep(r sqldb.Row) (s driver.StepRecord, err error) {
	var state, attempt, kind, began, ended int64
	if err = r.Scan(&s.Name, &state, &attempt, &kind, &s.Result.Codec, &s.Result.Data, &s.Result.Summary, &began, &ended); err != nil {
		return s, err
	}
	s.State, s.Attempt, s.Result.Kind = driver.StepState(state), count(attempt), driver.ResultKind(kind) //nolint:gosec // checked below
	s.BeganAt, s.EndedAt = at(began), at(ended)
	if int64(s.State) != state || int64(s.Result.Kind) != kind || !s.Readable() {
		return s, fmt.Errorf("%w: step %q has state %d and a result of kind %d", driver.ErrCorruptRecord, s.Name, state, kind)
	}
	return s, nil
}
