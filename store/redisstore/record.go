package redisstore

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/everonce/everonce"
)

// A record is one string, so that a transition reads and writes it in one piece. The scripts know its layout (offsets
// there count from 1); numbers are little-endian, times in microseconds since 1970 with 0 for none:
//
//	 0  format, state, kind of the result, state that the claim found, whether somebody waits    5 × 1 byte
//	 5  how many steps                                                                           2
//	 7  the ends of lease, retention and record; the latest write; the completion                5 × 8
//	47  token                                                                                    8
//	55  nonce                                                                                    16
//	71  attempt                                                                                  4
//	75  the insert; the latest claim; the claim before it                                        3 × 8
//	99  fingerprint's sum                                                                        32
//	131 length of the first four and the fifth of what follows; that and the length of the sixth  2 × 2
//	135 fingerprint's algorithm, scope, name, owner, owner before; class of the error;
//	    unknown step, codec, summary                                                             each after its length in 2
//
// The saved result is a copy of the completed record, and the data. A step is, by its name in a hash: its state (1 byte),
// attempt (4), place in the order (2), beginning and end (8 each), and then kind (1), codec and summary (each after its
// length in 2), and data.
// keys are the keys of one record. The braces put them into one slot of a cluster.
type keys struct{ record, saved, steps string }

func (s *Store) keys(id *everonce.RecordID) (k keys) {
	n := len(s.prefix) + len("{}") + 2*len(id)
	b := make([]byte, 0, 3*n+len(":v:s"))
	b = append(b, s.prefix...)
	b = append(b, '{')
	b = hex.AppendEncode(b, id[:])
	b = append(b, '}')
	b = append(b, b...)
	b = append(b, ":v"...)
	b = append(b, b[:n]...)
	b = append(b, ":s"...)
	all := string(b)
	return keys{record: all[:n], saved: all[n : 2*n+2], steps: all[2*n+2:]}
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

// appendFresh appends the part of a record that no script changes in the first attempt: from its fingerprint on.
func appendFresh(b []byte, f *everonce.Fingerprint, scope everonce.Scope, name, owner, class string) []byte {
	b = append(b, f.Sum[:]...)
	lengths := len(b)
	b = append(b, 0, 0, 0, 0)
	texts := len(b)
	b = appendText(b, f.Alg)
	b = appendText(b, scope)
	b = appendText(b, name)
	b = appendText(b, owner)
	b = appendText(b, "")
	binary.LittleEndian.PutUint16(b[lengths:], uint16(len(b)-texts)) //nolint:gosec // bounded by the limits of keys
	b = appendText(b, class)
	binary.LittleEndian.PutUint16(b[lengths+2:], uint16(len(b)-texts)) //nolint:gosec // as above
	return append(b, 0, 0, 0, 0, 0, 0)
}

// reader reads what a script has answered, and remembers whether it was too short.
type reader struct {
	b     string
	short bool
}

func (r *reader) take(n int) string {
	if r.short || n > len(r.b) {
		r.short = true
		return ""
	}
	var s string
	s, r.b = r.b[:n], r.b[n:]
	return s
}

func (r *reader) number(n int) (v int64) {
	s := r.take(n)
	for i := len(s) - 1; i >= 0; i-- {
		v = v<<8 | int64(s[i])
	}
	return v
}

func (r *reader) byte() uint8 {
	if s := r.take(1); s != "" {
		return s[0]
	}
	return 0
}

func (r *reader) time() time.Time { return at(r.number(8)) }

func (r *reader) text() string { return r.take(int(r.number(2))) }

// summary keeps an empty summary and none apart as little as the format does: both are none.
func (r *reader) summary() []byte {
	if s := r.text(); s != "" {
		return []byte(s)
	}
	return nil
}

// decode reads a record, and returns what follows it: the data of its result.
func decode(id *everonce.RecordID, s string, rec *everonce.Record) (data int, err error) {
	r := reader{b: s}
	*rec = everonce.Record{ID: *id}
	rec.Format = int(r.byte())
	rec.State = everonce.State(r.byte())
	if rec.Format > everonce.FormatVersion { // it is not judged by what this version knows
		return len(s), nil
	}
	rec.Result.Kind = everonce.ResultKind(r.byte())
	rec.Previous.State = everonce.State(r.byte())
	r.take(3)
	rec.LeaseUntil, rec.ResultUntil, rec.PurgeAt, rec.UpdatedAt, rec.CompletedAt = r.time(), r.time(), r.time(), r.time(), r.time()
	rec.Token = everonce.Token(r.number(8))
	copy(rec.Nonce[:], r.take(len(rec.Nonce)))
	rec.Attempt = int(r.number(4))
	rec.CreatedAt, rec.ClaimedAt, rec.Previous.ClaimedAt = r.time(), r.time(), r.time()
	copy(rec.Fingerprint.Sum[:], r.take(len(rec.Fingerprint.Sum)))
	r.take(4)
	rec.Fingerprint.Alg = r.text()
	rec.Scope, rec.Name = everonce.Scope(r.text()), r.text()
	rec.Owner, rec.Previous.Owner = r.text(), r.text()
	rec.LastError, rec.UnknownStep = r.text(), r.text()
	rec.Result.Codec, rec.Result.Summary = r.text(), r.summary()
	switch {
	case r.short:
		return 0, corrupt(id, "it is too short")
	case rec.State < everonce.StateClaimed || rec.State > everonce.StateCompleted:
		return 0, corrupt(id, fmt.Sprintf("there is no state %d", rec.State))
	case rec.Result.Kind > everonce.ResultElided || (rec.State == everonce.StateCompleted) != (rec.Result.Kind != 0):
		return 0, corrupt(id, fmt.Sprintf("state %v with a result of kind %d", rec.State, rec.Result.Kind))
	case rec.Format < 1 || rec.Token <= 0 || rec.Previous.State > everonce.StateCompleted:
		return 0, corrupt(id, "a number is out of its range")
	}
	return len(s) - len(r.b), nil
}

// decodeStep reads a step, and its place in the order.
func decodeStep(id *everonce.RecordID, name, s string) (step everonce.StepRecord, place int64, err error) {
	r := reader{b: s}
	step = everonce.StepRecord{Name: name, State: everonce.StepState(r.byte()), Attempt: int(r.number(4))}
	place = r.number(2)
	step.BeganAt, step.EndedAt = r.time(), r.time()
	step.Result = everonce.SavedResult{Kind: everonce.ResultKind(r.byte()), Codec: r.text(), Summary: r.summary()}
	if r.short || step.State < everonce.StepOpen || step.State > everonce.StepNotDone || step.Result.Kind > everonce.ResultElided {
		return step, 0, corrupt(id, "a step can not be read")
	}
	if step.Result.Kind != 0 && step.Result.Kind != everonce.ResultElided {
		step.Result.Data = []byte(r.b)
	}
	return step, place, nil
}

// decodeSteps reads a hash of steps, into the order of their beginning.
func decodeSteps(id *everonce.RecordID, hash []string) ([]everonce.StepRecord, error) {
	type placed struct {
		step  everonce.StepRecord
		place int64
	}
	all := make([]placed, 0, len(hash)/2)
	for i := 0; i+1 < len(hash); i += 2 {
		step, place, err := decodeStep(id, hash[i], hash[i+1])
		if err != nil {
			return nil, err
		}
		all = append(all, placed{step, place})
	}
	slices.SortFunc(all, func(a, b placed) int { return int(a.place - b.place) })
	steps := make([]everonce.StepRecord, len(all))
	for i := range all {
		steps[i] = all[i].step
	}
	return steps, nil
}

func corrupt(id *everonce.RecordID, what string) error {
	return fmt.Errorf("%w: key %s: %s", everonce.ErrCorruptRecord, id.Short(), what)
}
