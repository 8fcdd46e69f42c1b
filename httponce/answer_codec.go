package httponce

import (
	"bytes"
	"encoding/binary"
	"errors"
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
// Numbers are uvarints, and a text is preceded by its length. What stands before the body is the summary that
// outlives the answer. Bytes are as the handler wrote them, header names included.
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
	errAnswerVersion = errors.New("httponce: the saved answer is of a version that this program does not read")
	errAnswerDamaged = errors.New("httponce: the saved answer is damaged")
)

// savedAnswer is an answer as it is recorded.
type savedAnswer struct {
	raw  []byte
	head int    // where the body begins
	text string // raw[:head], where it was decoded

	end      int // where the body in raw ends
	trailers int // where the trailers begin; 0 without
	pieces   pieces
}

// appendHead appends everything before the body. Of the fields it takes those that are to be saved, and of
// them only those named, unless only is nil.
func appendHead(b []byte, flags byte, status int, fs fields, only []string) []byte {
	b = append(b, answerVersion, flags)
	b = binary.AppendUvarint(b, uint64(status)) //nolint:gosec // three digits
	return appendFields(b, fs, only)
}

func appendFields(b []byte, fs fields, only []string) []byte {
	taken := func(f *field) bool { return f.saved && (only == nil || slices.Contains(only, f.name)) }
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
		count := uint64(f.len()-f.from) << 1 //nolint:gosec // from is an index, or the length
		if f.from > 0 || f.removed {
			count |= 1
		}
		b = binary.AppendUvarint(b, count)
		for j := f.from; j < f.len(); j++ {
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
	if s.raw[1]&^flagElided == 0 {
		return s.raw[:s.head]
	}
	b := bytes.Clone(s.raw[:s.head])
	b[1] &= flagElided
	return b
}

// decode reads what encode has written. It keeps nothing of data.
func (a *Answer) decode(data []byte) error {
	switch {
	case len(data) < minHead-1:
		return errAnswerDamaged
	case data[0] != answerVersion || data[1]&^(flagElided|flagTrailers|flagPieces) != 0:
		return errAnswerVersion
	}
	s := &savedAnswer{raw: bytes.Clone(data), end: len(data)}
	d := decoder{rest: s.raw[2:]}
	status := d.number(maxStatus)
	d.skipFields()
	s.head = len(s.raw) - len(d.rest)
	if d.bad || status < 200 || !s.decodeFoot() {
		return errAnswerDamaged
	}
	s.text = string(s.raw[:s.head])
	*a = Answer{Status: int(status), Elided: data[1]&flagElided != 0, saved: s} //nolint:gosec // three digits
	return nil
}

func (s *savedAnswer) decodeFoot() bool {
	flags := s.raw[1]
	if flags&(flagTrailers|flagPieces) == 0 {
		return true
	}
	foot := len(s.raw) - footLen
	if foot < s.head {
		return false
	}
	n := binary.BigEndian.Uint32(s.raw[foot:])
	if uint64(n) > uint64(foot-s.head) { //nolint:gosec // not negative
		return false
	}
	s.end = foot - int(n)
	d := decoder{rest: s.raw[s.end:foot]}
	if flags&flagTrailers != 0 {
		s.trailers = s.end
		d.skipFields()
	}
	if flags&flagPieces != 0 {
		s.pieces.decode(&d)
	}
	return !d.bad && len(d.rest) == 0
}

// body returns the body, or its beginning.
func (s *savedAnswer) body() []byte { return s.raw[s.head:s.end] }

// each calls for every field of the header.
func (s *savedAnswer) each(f func(name string, values []string, added bool)) {
	text := s.text
	if text == "" {
		text = string(s.raw[:s.head])
	}
	eachField(s.raw[:s.head], text, headerAt(s.raw), f)
}

// headerAt returns where the header begins.
func headerAt(raw []byte) int {
	_, n := binary.Uvarint(raw[2:])
	return 2 + n
}

// eachTrailer calls for every trailer.
func (s *savedAnswer) eachTrailer(f func(name string, values []string, added bool)) {
	if s.trailers > 0 {
		eachField(s.raw, string(s.raw), s.trailers, f)
	}
}

// eachField calls for every field of a header that was checked, and stands in raw, and in text, at from.
func eachField(raw []byte, text string, from int, f func(name string, values []string, added bool)) {
	d := decoder{rest: raw[from:]}
	next := func() string {
		n := d.text()
		at := len(raw) - len(d.rest)
		return text[at-n : at]
	}
	fields := d.number(uint64(len(raw)))
	all := d // one slice for the values of all fields
	values := make([]string, 0, all.skip(fields))
	for range fields {
		name := next()
		count := d.number(uint64(2 * len(raw)))
		begin := len(values)
		for range count >> 1 {
			values = append(values, next())
		}
		f(name, values[begin:len(values):len(values)], count&1 != 0)
	}
}

// decoder reads numbers and texts. What it meets is bad when they are not there, or are too large.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) number(limit uint64) uint64 {
	n, size := binary.Uvarint(d.rest)
	if d.bad || size <= 0 || n > limit {
		d.bad = true
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

// text steps over a text, and returns its length.
func (d *decoder) text() int {
	n := d.number(uint64(len(d.rest)))
	if n > uint64(len(d.rest)) {
		d.bad = true
	}
	if d.bad {
		return 0
	}
	d.rest = d.rest[n:]
	return int(n) //nolint:gosec // at most the length of a slice
}

// skipFields steps over a header.
func (d *decoder) skipFields() { d.skip(d.number(uint64(len(d.rest)))) }

// skip steps over so many fields, and returns the number of their values.
func (d *decoder) skip(fields uint64) (values int) {
	for range fields {
		d.text()
		for range d.number(uint64(2*len(d.rest))) >> 1 {
			d.text()
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
