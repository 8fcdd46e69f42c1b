package httponce

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce/internal/wire"
)

// FuzzAnswerDecode feeds the decoder of saved answers what a store might hold: it never panics, never allocates
// out of proportion, what it accepts can be read to its end, and what outlives it is its head.
func FuzzAnswerDecode(f *testing.F) {
	for _, a := range []Answer{
		{Status: 200},
		{Status: 201, Header: http.Header{"Location": {"/1"}, "x-lower": {"a", "b"}, "Empty": {}}, Body: []byte("body"), Trailer: http.Header{"X-Sum": {"1"}}},
		{Status: 404, Elided: true, Header: http.Header{"Content-Type": {"text/plain"}}},
	} {
		f.Add(a.encode())
	}
	large := appendHead(nil, 0, 200, nil, nil)
	f.Add(appendFoot(append(large, "the beginning"...), nil, &pieces{total: 1000, size: 300}))
	f.Add([]byte{1, 0, 200, 1, 255, 255, 255, 255, 255, 255, 255, 255, 127})
	f.Add([]byte{1, 7, 200, 1, 0, 0, 0, 0, 4})
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var a Answer
		err := a.decode(data)
		if err == nil {
			h := http.Header{}
			a.putHeader(h)
			a.putTrailer(h)
			if a.Status < 200 || a.Status > maxStatus {
				t.Errorf("status %d", a.Status)
			}
			if n := a.saved.pieces.count0(); n > maxPieces {
				t.Errorf("%d pieces", n)
			}
			var rest Answer
			if err := rest.decode(a.summary()); err != nil || rest.Status != a.Status || rest.saved.body() != "" || rest.saved.trailers != 0 || rest.saved.pieces.total != 0 {
				t.Errorf("what outlives %+v is %+v, %v", a, rest, err)
			}
		}
		runtime.ReadMemStats(&after)
		if spent := after.TotalAlloc - before.TotalAlloc; spent > uint64(100*len(data)+100_000) {
			t.Errorf("%d bytes of input cost %d bytes of memory", len(data), spent)
		}
	})
}

// count0 is count for pieces that may not be there.
func (p *pieces) count0() uint64 {
	if p.size == 0 {
		return 0
	}
	return p.count()
}

// headerOf reads a header from lines of a name and its values, separated by zeros. Never saved ones are left out.
func headerOf(text string) http.Header {
	h := http.Header{}
	for line := range strings.Lines(text) {
		name, values, several := strings.Cut(strings.TrimSuffix(line, "\n"), "\x00")
		if !wire.IsToken(name) || wire.IsPrefixed(name) || wire.NeverSaved[http.CanonicalHeaderKey(name)] || !wire.Trails(name) {
			continue
		}
		h[name] = nil
		if several {
			h[name] = strings.Split(values, "\x00")
		}
	}
	return h
}

// A saved answer is replayed byte for byte: the case of names, the order of values, any body.
func FuzzAnswerEncode(f *testing.F) {
	f.Add(200, "", "", []byte(nil))
	f.Add(201, "Location\x00/1\nx-lower\x00a\x00b\x00a\nX-None\nX-Empty\x00", "X-Sum\x001", []byte("body"))
	f.Add(404, "Set-Cookie\x00a\nX\x00\xff\xfe \r", "x-late\x00\x00\nY", []byte("\x00\xff\n"))
	f.Add(999, "A\x00"+strings.Repeat("long", 100), "A\x00"+strings.Repeat("long", 1000), bytes.Repeat([]byte{0x80}, 5000))
	f.Fuzz(func(t *testing.T, status int, header, trailer string, body []byte) {
		a := Answer{Status: status, Header: headerOf(header), Body: body, Trailer: headerOf(trailer)}
		if !a.hasStatus() || a.Header["Content-Length"] != nil || len(a.Header["Trailer"]) > 0 {
			t.Skip()
		}
		var got Answer
		if err := got.decode(a.encode()); err != nil {
			t.Fatal(err)
		}
		h, trailers := http.Header{}, http.Header{}
		got.putHeader(h)
		got.putTrailer(trailers)
		delete(h, "Trailer")
		if got.Status != a.Status || !equalHeaders(h, a.Header) || got.saved.body() != string(a.Body) || !equalHeaders(trailers, a.Trailer) {
			t.Fatalf("%+v came back as %d %v %q %v", a, got.Status, h, got.saved.body(), trailers)
		}
		again := got
		if !bytes.Equal(again.encode(), a.encode()) && len(a.Header)+len(a.Trailer) < 2 {
			t.Fatal("it is encoded in two ways")
		}
		var rest Answer
		if err := rest.decode(got.summary()); err != nil {
			t.Fatal(err)
		}
		h = http.Header{}
		rest.putHeader(h)
		delete(h, "Trailer")
		if whole := len(appendHead(nil, 0, a.Status, a.fields(), nil)) <= driver.MaxSummaryLen; rest.Status != a.Status || whole && !equalHeaders(h, a.Header) || rest.saved.body() != "" {
			t.Fatalf("the summary of %+v is %d %v", a, rest.Status, h)
		}
	})
}

func equalHeaders(a, b http.Header) bool {
	if len(a) != len(b) {
		return false
	}
	for name, values := range a {
		if strings.Join(values, "\x00") != strings.Join(b[name], "\x00") || len(values) != len(b[name]) {
			return false
		}
	}
	return true
}

// A head that does not fit into a summary leaves what matters most.
func TestTheSummaryAlwaysFits(t *testing.T) {
	long := strings.Repeat("x", driver.MaxSummaryLen)
	for name, tc := range map[string]struct{ in, want http.Header }{
		"all":             {http.Header{"X-A": {"a"}}, http.Header{"X-A": {"a"}}},
		"two":             {http.Header{"X-A": {long}, "Location": {"/1"}, "Content-Type": {"t"}}, http.Header{"Location": {"/1"}, "Content-Type": {"t"}}},
		"one":             {http.Header{"Content-Type": {long}, "Location": {"/1"}}, http.Header{"Location": {"/1"}}},
		"other spellings": {http.Header{"x-a": {long}, "location": {"/1"}, "content-TYPE": {"t"}}, http.Header{"location": {"/1"}, "content-TYPE": {"t"}}},
		"the status":      {http.Header{"Location": {long}}, http.Header{}},
		"nothing to drop": {http.Header{}, http.Header{}},
	} {
		a := Answer{Status: 201, Header: tc.in}
		for _, a := range []Answer{a, decoded(t, a)} {
			sum := a.summary()
			var got Answer
			if err := got.decode(sum); err != nil || len(sum) > driver.MaxSummaryLen {
				t.Fatalf("%s: %d bytes, %v", name, len(sum), err)
			}
			h := http.Header{}
			got.putHeader(h)
			if got.Status != 201 || !reflect.DeepEqual(h, tc.want) {
				t.Errorf("%s: %d %v", name, got.Status, h)
			}
		}
	}
}

func decoded(t *testing.T, a Answer) (d Answer) {
	t.Helper()
	if err := d.decode(a.encode()); err != nil {
		t.Fatal(err)
	}
	return d
}

// An answer of another version is told from a damaged one; neither is taken for an empty one.
func TestWhatCanNotBeDecodedIsAnError(t *testing.T) {
	good := (&Answer{Status: 201, Header: http.Header{"A": {"b"}}, Trailer: http.Header{"C": {"d"}}, Body: []byte("body")}).encode()
	var a Answer
	for i := range good {
		bad := bytes.Clone(good[:i])
		if err := a.decode(bad); err == nil && i < 8 {
			t.Errorf("the first %d of %d bytes are taken for an answer", i, len(good))
		}
	}
	newer := bytes.Clone(good)
	newer[0]++
	if err := a.decode(newer); err != errAnswerVersion { //nolint:errorlint // never wrapped
		t.Errorf("a newer version: %v", err)
	}
	flags := bytes.Clone(good)
	flags[1] |= 0x80
	if err := a.decode(flags); err != errAnswerVersion { //nolint:errorlint // never wrapped
		t.Errorf("a flag that is not known: %v", err)
	}
	foot := func(flags byte, foot string) []byte {
		b := append(appendHead(nil, flags, 200, nil, nil), "body"+foot...)
		return binary.BigEndian.AppendUint32(b, uint32(len(foot)))
	}
	trailers := string(appendFields(nil, fields{{name: "C", one: "d", saved: true}}, nil))
	if err := a.decode(foot(flagTrailers, trailers)); err != nil || a.saved.body() != "body" {
		t.Fatalf("a foot that is whole: %v", err)
	}
	longer := foot(flagTrailers, "")
	binary.BigEndian.PutUint32(longer[len(longer)-footLen:], uint32(len(longer)-footLen))
	for name, bad := range map[string][]byte{
		"a value that is longer than all":    {answerVersion, 0, 200, 1, 1, 1, 'A', 2, 9, 'b'},
		"a foot that is longer than all":     longer,
		"something behind the trailers":      foot(flagTrailers, trailers+"x"),
		"pieces without a location":          foot(flagPieces, ""),
		"pieces with a part of a location":   foot(flagPieces, strings.Repeat("s", 16)),
		"pieces of no size":                  foot(flagPieces, strings.Repeat("s", 16)+"\x01\x00"),
		"pieces of nothing":                  foot(flagPieces, strings.Repeat("s", 16)+"\x00\x01"),
		"more pieces than there can be":      foot(flagPieces, strings.Repeat("s", 16)+"\x81\x80\x40\x01"),
		"pieces of more than can be":         foot(flagPieces, strings.Repeat("s", 16)+"\x81\x80\x80\x80\x80\x20\x80\x80\x80\x80\x04"),
		"pieces that are larger than can be": foot(flagPieces, strings.Repeat("s", 16)+"\x01\x81\x80\x80\x80\x04"),
	} {
		if err := a.decode(bad); err != errAnswerDamaged { //nolint:errorlint // never wrapped
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := a.decode(foot(flagPieces, strings.Repeat("s", 16)+"\x80\x80\x40\x01")); err != nil || a.saved.pieces.count() != maxPieces {
		t.Errorf("as many pieces as there can be: %v", err)
	}
	if text, err := json.Marshal(a); err == nil { // its body is not all here
		t.Errorf("as JSON it is %s", text)
	}
	if s, err := a.Settlement(); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Errorf("its settlement: %+v, %v", s, err)
	}
	if err := a.decode((&Answer{Status: 200, Header: http.Header{"A": {"", "", ""}}}).encode()); err != nil {
		t.Errorf("a field of empty values: %v", err)
	}
	if _, err := (answerCodec{}).Marshal(Answer{Status: 99}); err == nil {
		t.Error("a status of two digits is saved")
	}
}

// Of the trailers of an answer that somebody makes those are announced that are sent by their names, and what is never
// saved is not sent.
func TestTrailersThatAreAnnounced(t *testing.T) {
	a := Answer{Status: 200, Trailer: http.Header{
		"X-B": {"b"}, "X-A": {"a"}, http.TrailerPrefix + "X-C": {"c"}, "Set-Cookie": {"d"}, http.TrailerPrefix + "Set-Cookie": {"e"},
		"Content-Type": {"f"}, http.TrailerPrefix + "content-length": {"7"},
	}}
	for name, a := range map[string]Answer{"made": a, "saved": decoded(t, a)} {
		h, trailers := http.Header{}, http.Header{}
		a.putHeader(h)
		a.putTrailer(trailers)
		if !reflect.DeepEqual(h, http.Header{"Trailer": {"X-A", "X-B"}}) || len(trailers) != 3 || trailers.Get("X-A") != "a" || trailers[http.TrailerPrefix+"X-C"] == nil {
			t.Errorf("%s: %v, then %v", name, h, trailers)
		}
	}
}
