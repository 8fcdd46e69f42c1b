package httponce

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/http"
	"slices"
)

// A saved answer is
//
//	version, flags, status (uvarint)
//	header: number of fields; each its name, its number of values shifted left by one, the lowest bit saying
//	        that they are added to what the middlewares around have set, and the values; no value that is
//	        added says that the field is removed
//	body, or its beginning
//	foot, where a flag says so: trailers, as a header; where the rest of the body is; the foot's length (4 bytes)
//
// Numbers are uvarints, and a text is preceded by its length. The part before the body is the summary that outlives the
// answer. Bytes are as the handler wrote them, header names included.
const (
	answerVersion = 1

	flagElided   = 1 << 0
	flagTrailers = 1 << 1
	flagPieces   = 1 << 2

	maxStatus = 999
	footLen   = 4
	minHead   = 4 // version, flags, status in two bytes or one, number of fields
)

var (
	errAnswerVersion = errors.New("httponce: the saved answer has an unknown version (a newer program wrote it)")
	errAnswerDamaged = errors.New("httponce: the saved answer is damaged")
)

// savedAnswer is an answer as it is recorded.
type savedAnswer struct {
	raw  []byte // of one that is to be recorded
	text string // of one that was: the same bytes, as values of headers are strings

	head     int // where the body begins
	end      int // where it ends, or its first piece does
	trailers int // where the trailers begin; 0 without
	pieces   pieces
}

// appendHead appends everything before the body. It appends the fields that are to be saved, and of them only those
// named, unless only is nil. Names in only are canonical; a handler may have written another spelling.
func appendHead(b []byte, flags byte, status int, fs fields, only []string) []byte {
	b = append(b, answerVersion, flags)
	b = binary.AppendUvarint(b, uint64(status)) //nolint:gosec // three digits
	return appendFields(b, fs, only)
}

func appendFields(b []byte, fs fields, only []string) []byte {
	taken := func(f *field) bool {
		return f.saved && (only == nil || slices.Contains(only, http.CanonicalHeaderKey(f.name)))
	}
	n := uint64(0)
	for i := range fs {
		if taken(&fs[i]) {
			n++
		}
	}
	b = binary.AppendUvarint(b, n)
	for i := range fs {
		f := &fs[i]
		if !taken(f) {
			continue
		}
		b = appendText(b, f.name)
		count := uint64(f.len()-int(f.from)) << 1 //nolint:gosec // from is an index, or the length
		if f.from > 0 || f.removed {
			count |= 1
		}
		b = binary.AppendUvarint(b, count)
		for j := int(f.from); j < f.len(); j++ {
			b = appendText(b, f.value(j))
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// appendFoot appends what stands behind the body, and sets the flags for it.
func appendFoot(b []byte, trailers fields, rest *pieces) []byte {
	begin := len(b)
	if len(trailers) > 0 {
		b[1] |= flagTrailers
		b = appendFields(b, trailers, nil)
	}
	if rest != nil {
		b[1] |= flagPieces
		b = rest.append(b)
	}
	if len(b) == begin {
		return b
	}
	return binary.BigEndian.AppendUint32(b, uint32(len(b)-begin)) //nolint:gosec // headers, which net/http bounds
}

// summary returns the head alone, as an answer.
func (s *savedAnswer) summary() []byte {
	if len(s.raw) > 0 && s.raw[1]&^flagElided == 0 {
		return s.raw[:s.head]
	}
	b := bytes.Clone(s.bytes()[:s.head])
	b[1] &= flagElided
	return b
}

func (s *savedAnswer) bytes() []byte {
	if s.raw != nil {
		return s.raw
	}
	return []byte(s.text)
}

// decode reads what encode has written. It keeps nothing of data.
func (a *Answer) decode(data []byte) error {
	switch {
	case len(data) < minHead-1:
		return errAnswerDamaged
	case data[0] != answerVersion || data[1]&^(flagElided|flagTrailers|flagPieces) != 0:
		return errAnswerVersion
	}
	s := &savedAnswer{text: string(data), end: len(data)}
	d := decoder{rest: s.text[2:]}
	status := d.number(maxStatus)
	d.skip(d.number(uint64(len(data))))
	s.head = len(s.text) - len(d.rest)
	if d.bad || status < 200 || !s.decodeFoot() {
		return errAnswerDamaged
	}
	*a = Answer{Status: int(status), Elided: data[1]&flagElided != 0, saved: s} //nolint:gosec // three digits
	return nil
}

func (s *savedAnswer) decodeFoot() bool {
	flags := s.text[1]
	if flags&(flagTrailers|flagPieces) == 0 {
		return true
	}
	foot := len(s.text) - footLen
	if foot < s.head {
		return false
	}
	n := binary.BigEndian.Uint32([]byte(s.text[foot:]))
	if uint64(n) > uint64(foot-s.head) { //nolint:gosec // not negative
		return false
	}
	s.end = foot - int(n)
	d := decoder{rest: s.text[s.end:foot]}
	if flags&flagTrailers != 0 {
		s.trailers = s.end
		d.skip(d.number(uint64(n)))
	}
	if flags&flagPieces != 0 {
		s.pieces.decode(&d)
	}
	return !d.bad && d.rest == ""
}

// body returns the body, or its first piece.
func (s *savedAnswer) body() string { return s.text[s.head:s.end] }

// each calls for every field of the header. It returns room for one value more, that it had to spare.
func (s *savedAnswer) each(f func(name string, values []string, added bool)) (spare []string) {
	text := s.text
	if text == "" {
		text = string(s.raw[:s.head])
	}
	d := decoder{rest: text[2:]}
	d.number(maxStatus)
	return d.each(f)
}

func (s *savedAnswer) eachTrailer(f func(name string, values []string, added bool)) {
	if s.trailers > 0 {
		d := decoder{rest: s.text[s.trailers:]}
		d.each(f)
	}
}

// decoder reads numbers and texts. It sets bad when one is missing or too large.
type decoder struct {
	rest string
	bad  bool
}

func (d *decoder) number(limit uint64) uint64 {
	n, size := binary.Uvarint([]byte(d.rest[:min(len(d.rest), binary.MaxVarintLen64)]))
	if d.bad || size <= 0 || n > limit {
		d.bad = true
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) string() string {
	n := d.number(uint64(len(d.rest)))
	if n > uint64(len(d.rest)) {
		d.bad = true
	}
	if d.bad {
		return ""
	}
	s := d.rest[:n]
	d.rest = d.rest[n:]
	return s
}

// skip steps over so many fields, and returns the number of their values.
func (d *decoder) skip(fields uint64) (values int) {
	for range fields {
		d.string()
		for range d.number(uint64(2*len(d.rest))) >> 1 {
			d.string()
			if d.bad {
				return 0
			}
			values++
		}
		if d.bad {
			return 0
		}
	}
	return values
}

// each calls for every field of a header that was checked.
func (d *decoder) each(f func(name string, values []string, added bool)) (spare []string) {
	fields := d.number(uint64(len(d.rest)))
	all := *d // one slice for the values of all fields
	values := make([]string, 0, all.skip(fields)+1)
	for range fields {
		name := d.string()
		count := d.number(uint64(2 * len(d.rest)))
		begin := len(values)
		for range count >> 1 {
			values = append(values, d.string())
		}
		f(name, values[begin:len(values):len(values)], count&1 != 0)
	}
	return values[len(values):]
}

// UnmarshalBinary reads an answer from a record, for tools that show records: from the data of a result with the codec
// "http/1", from its summary, which has no body, or from the detail of a failure with the code "http_" and a status. Of
// an answer in pieces that is the head and the first piece. It keeps no part of data. On an error a is unchanged.
func (a *Answer) UnmarshalBinary(data []byte) error {
	var got Answer
	if err := got.decode(data); err != nil {
		return err
	}
	*a = got
	return nil
}
