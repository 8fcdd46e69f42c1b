package redisstore

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/everonce/everonce/driver"
)

// A record is one string, so that a transition reads and writes it in one piece: the fields of a hash would cost more
// than the rest of the script. Scripts compare tokens as bytes, because a token as a Lua number would lose digits. The
// scripts know the layout, where offsets count from 1. Numbers are little-endian, times in microseconds since 1970,
// lengths of time in microseconds from the latest write:
//
//	  0  the latest write; token                                                                   2 × 8 bytes
//	 16  nonce                                                                                     16
//	 32  format (here in every version), state, kind of the result                                 3 × 1
//	 35  lease, retention, lifetime (0: it has no end)                                             3 × 8
//	 59  state that the claim found, whether somebody waits                                        2 × 1
//	 61  how many steps                                                                            2
//	 63  attempt                                                                                   4
//	 67  the insert, the latest claim (0: the token's time), the claim before it                   3 × 8
//	 91  fingerprint's sum                                                                         32
//	123  length of the first five of the texts, and of the first six                               2 × 2
//	127  texts, each after its length in 2: fingerprint's algorithm, scope, name, owner, owner before; class of the error;
//	     unknown step, codec, summary
//
// A result has its own key, and ends before the record does: it holds the record, so that a replay reads nothing else,
// and then the data. A step is, by its name in a hash: its state (1 byte), attempt (4), place in the order (2),
// beginning and end (8 each), and then kind (1), codec and summary (each after its length in 2), and data.
const (
	offFormat = 32
	offSteps  = 61  // how many
	lenFixed  = 127 // up to the texts
)

// keys are the names of one record, of its saved result and of its steps. The braces put them into one slot of a
// cluster. A script is given all of them, whichever it will use: a node that is handing the slot over then answers
// TRYAGAIN where it has some of them alone, and some servers run no script that uses what it was not given.
type keys struct{ record, saved, steps string }

func (s *Store) keys(id *driver.RecordID) keys {
	var stack [2 * (maxPrefixLen + 64)]byte
	b := append(stack[:0], s.prefix...)
	b = append(b, '{')
	b = base64.RawURLEncoding.AppendEncode(b, id[:])
	b = append(b, '}')
	n := len(b)
	b = append(append(append(b, ":v"...), b[:n]...), ":s"...)
	all := string(b) // in one piece
	return keys{record: all[:n], saved: all[:n+2], steps: all[n+2:]}
}

func at(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// appendText appends a text after its length. Limits keep it in place; what is longer is cut.
func appendText[T ~string | ~[]byte](b []byte, s T) []byte {
	s = s[:min(len(s), math.MaxUint16)]
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s))) //nolint:gosec // just bounded
	return append(b, s...)
}

// fresh holds the parts of a new record that the client sets: all from the nonce on.
type fresh struct {
	nonce       *driver.Nonce
	state       driver.State
	attempt     byte
	lease, life time.Duration
	fingerprint *driver.Fingerprint
	scope       driver.Scope
	name, owner string
	class       string
}

func (f *fresh) append(b []byte) []byte {
	b = append(b, f.nonce[:]...)
	b = append(b, driver.FormatVersion, byte(f.state), 0)
	b = appendMicros(b, f.lease)
	b = appendMicros(b, 0)
	b = appendMicros(b, f.life)
	b = append(b, 0, 0, 0, 0, f.attempt, 0, 0, 0)
	b = append(b, noTimes[:]...)
	b = append(b, f.fingerprint.Sum[:]...)
	lengths := len(b)
	b = append(b, 0, 0, 0, 0)
	texts := len(b)
	b = appendText(b, f.fingerprint.Alg)
	b = appendText(b, f.scope)
	b = appendText(b, f.name)
	b = appendText(b, f.owner)
	b = append(b, 0, 0)                                              // no owner before
	binary.LittleEndian.PutUint16(b[lengths:], uint16(len(b)-texts)) //nolint:gosec // bounded by maxTexts
	b = appendText(b, f.class)
	binary.LittleEndian.PutUint16(b[lengths+2:], uint16(len(b)-texts)) //nolint:gosec // as above
	return append(b, 0, 0, 0, 0, 0, 0)                                 // no unknown step, codec and summary
}

// noTimes are the insert and the claims of a new record: its token has the time.
var noTimes [3 * 8]byte

func appendMicros(b []byte, d time.Duration) []byte {
	return binary.LittleEndian.AppendUint64(b, uint64(d.Microseconds())) //nolint:gosec // two's complement
}

// number reads a number at a place, where there is one.
func number(s string, at int) int64 {
	return int64(binary.LittleEndian.Uint64([]byte(s[at : at+8]))) //nolint:gosec // two's complement
}

// head reads the fixed part of a record. It reports false if the text is too short.
func head(s string, rec *driver.Record) bool {
	if len(s) > offFormat {
		rec.Format = int(s[offFormat])
	}
	if len(s) > offFormat+1 {
		rec.State = driver.State(s[offFormat+1])
	}
	if len(s) < lenFixed {
		return false
	}
	updated := number(s, 0)
	rec.Token = driver.Token(number(s, 8))
	copy(rec.Nonce[:], s[16:])
	rec.Result.Kind = driver.ResultKind(s[34])
	rec.Previous.State = driver.State(s[59])
	rec.Attempt = int(binary.LittleEndian.Uint32([]byte(s[63:67])))
	rec.UpdatedAt = at(updated)
	switch rec.State {
	case driver.StateClaimed:
		rec.LeaseUntil = at(updated + number(s, 35))
	case driver.StateCompleted:
		rec.CompletedAt, rec.ResultUntil = rec.UpdatedAt, at(updated+number(s, 43))
	}
	if life := number(s, 51); life != 0 {
		rec.PurgeAt = at(updated + life)
	}
	return true
}

// exact is the limit below which a script's numbers are exact.
const exact = 1 << 53

// timely reports whether the times of a record are in their ranges. A lease, and a lifetime, that are over before the
// latest write has a claim alone: another step of its attempt may be written late.
func timely(s string, state driver.State) bool {
	lease, result, purge := number(s, 35), number(s, 43), number(s, 51)
	updated, created, claimed, before := number(s, 0), number(s, 67), number(s, 75), number(s, 83)
	least := int64(0)
	if state == driver.StateClaimed {
		least = 1 - exact
	}
	return updated > 0 && min(created, claimed, before, result) >= 0 && min(lease, purge) >= least &&
		max(updated, created, claimed, before, lease, result, purge) < exact
}

// damaged says what is wrong with a record's head, if anything is.
func damaged(s string, rec *driver.Record) string {
	switch {
	case rec.State < driver.StateClaimed || rec.State > driver.StateCompleted:
		return fmt.Sprintf("there is no state %d", rec.State)
	case rec.Result.Kind > driver.ResultElided || (rec.State == driver.StateCompleted) != (rec.Result.Kind != 0):
		return fmt.Sprintf("state %v with a result of kind %d", rec.State, rec.Result.Kind)
	case rec.Format < 1 || rec.Token <= 0 || rec.Token >= exact || rec.Previous.State > driver.StateCompleted || rec.Attempt < 0 || rec.Attempt > math.MaxInt32:
		return "a number is out of its range"
	case !timely(s, rec.State):
		return "a time is out of its range"
	}
	return ""
}

// decode reads a record, and returns the data that follow it if s is a result. A record that no version has written is
// corrupt: the scripts judge it likewise (lua/whole.lua).
func decode(id *driver.RecordID, s string, rec *driver.Record) (data string, err error) {
	*rec = driver.Record{ID: *id}
	whole := head(s, rec)
	switch {
	case rec.Format > driver.FormatVersion: // it is not judged by what this version knows
		*rec = driver.Record{ID: *id, Format: rec.Format, State: rec.State}
		return "", nil
	case !whole:
		return "", corrupt(id, "it is too short")
	}
	created, claimed, before := number(s, 67), number(s, 75), number(s, 83)
	copy(rec.Fingerprint.Sum[:], s[91:])
	r := reader{b: s[lenFixed:]}
	rec.Fingerprint.Alg = r.text()
	rec.Scope, rec.Name = driver.Scope(r.text()), r.text()
	rec.Owner, rec.Previous.Owner = r.text(), r.text()
	low := len(s) - lenFixed - len(r.b)
	rec.LastError = r.text()
	high := len(s) - lenFixed - len(r.b)
	rec.UnknownStep = r.text()
	rec.Result.Codec, rec.Result.Summary = r.text(), r.summary()
	if created == 0 {
		created = int64(rec.Token)
	}
	if claimed == 0 && rec.Attempt > 0 {
		claimed = int64(rec.Token)
	}
	rec.CreatedAt, rec.ClaimedAt, rec.Previous.ClaimedAt = at(created), at(claimed), at(before)
	odd := damaged(s, rec)
	switch {
	case odd != "":
		return "", corrupt(id, odd)
	case r.short:
		return "", corrupt(id, "it is too short")
	case int(binary.LittleEndian.Uint16([]byte(s[123:125]))) != low || int(binary.LittleEndian.Uint16([]byte(s[125:127]))) != high:
		return "", corrupt(id, "its texts have other lengths")
	}
	return r.b, nil
}

// reader reads what is not at a fixed place, and remembers whether it was too short.
type reader struct {
	b     string
	short bool
}

func (r *reader) take(n int) (s string) {
	if r.short || n > len(r.b) {
		r.short = true
		return ""
	}
	s, r.b = r.b[:n], r.b[n:]
	return s
}

func (r *reader) number(n int) int64 {
	var b [8]byte
	copy(b[:], r.take(n))
	return int64(binary.LittleEndian.Uint64(b[:])) //nolint:gosec // two's complement
}

func (r *reader) byte() uint8 {
	if s := r.take(1); s != "" {
		return s[0]
	}
	return 0
}

func (r *reader) time() time.Time { return at(r.number(8)) }

func (r *reader) text() (s string) {
	if r.short || len(r.b) < 2 {
		r.short = true
		return ""
	}
	n := int(r.b[0]) | int(r.b[1])<<8
	r.b = r.b[2:]
	if n == 0 {
		return ""
	}
	return r.take(n)
}

// summary returns nil for an empty summary, which the format does not distinguish from a missing one.
func (r *reader) summary() []byte {
	if s := r.text(); s != "" {
		return []byte(s)
	}
	return nil
}

// decodeStep reads a step, and its place in the order.
func decodeStep(id *driver.RecordID, name, s string) (step driver.StepRecord, place int64, err error) {
	r := reader{b: s}
	step = driver.StepRecord{Name: name, State: driver.StepState(r.byte()), Attempt: int(r.number(4))}
	place = r.number(2)
	step.BeganAt, step.EndedAt = r.time(), r.time()
	step.Result = driver.SavedResult{Kind: driver.ResultKind(r.byte()), Codec: r.text(), Summary: r.summary()}
	if r.short || !step.Readable() || step.Attempt < 0 {
		return step, 0, corrupt(id, "a step cannot be read")
	}
	if step.Result.Kind != 0 && step.Result.Kind != driver.ResultElided {
		step.Result.Data = []byte(r.b)
	}
	return step, place, nil
}

// decodeSteps reads a hash of steps, into the order of their beginning. Those that cannot be read come last, by their
// names.
func decodeSteps(id *driver.RecordID, hash []string) []driver.StepRecord {
	type placed struct {
		step  driver.StepRecord
		place int64
	}
	all := make([]placed, 0, len(hash)/2)
	for i := 0; i+1 < len(hash); i += 2 {
		step, place, err := decodeStep(id, hash[i], hash[i+1])
		if err != nil {
			step, place = driver.StepRecord{Name: hash[i]}, math.MaxInt64
		}
		all = append(all, placed{step, place})
	}
	slices.SortFunc(all, func(a, b placed) int { return cmp.Compare(a.place, b.place) })
	steps := make([]driver.StepRecord, len(all))
	for i := range all {
		steps[i] = all[i].step
	}
	return steps
}

func corrupt(id *driver.RecordID, what string) error {
	return fmt.Errorf("%w: key %s: %s", driver.ErrCorruptRecord, id.Short(), what)
}
