package httponce

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// FuzzAnswerJSON reads any text as an operator's answer. An accepted answer can be sent, and is the same after it was
// saved and read back, and after it was written as JSON and read again.
func FuzzAnswerJSON(f *testing.F) {
	for _, text := range []string{
		`{}`, `null`, `{"status":204}`, `{"status":201,"headers":{"location":["/1"],"content-length":["99"]},"body":"ok","trailers":{"x-sum":["1"]}}`,
		`{"body_base64":"/w=="}`, `{"body":"","body_base64":""}`, `{"missing":"elided","headers":{"A":["b","c"]}}`, `{"missing":"expired","body":"x"}`,
		`{"status":99}`, `{"staus":200}`, `{"status":200,"status":404}`, `{"body":"\ud800"}`, `{"headers":{"":[""],"a b":["c"],"A":null}}`,
		`{"headers":{"Trailer":["X-Sum"],"Set-Cookie":["a"],"Trailer:X":["y"]}}`, `{"trailers":{"Trailer:X-A":["1"],"x-a":["2"]}}`,
		`{"trailers":{"Trailer:XiA":["1"],"xia":["2"]}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := Answer{Status: 418}
		a := before
		if err := a.UnmarshalJSON(text); err != nil {
			if a.Status != before.Status || a.Header != nil || a.Body != nil || a.Trailer != nil || a.Elided {
				t.Fatalf("%v, and the answer is %+v", err, a)
			}
			return
		}
		if a.Status < 200 || a.Status > 999 || a.Elided && len(a.Body) > 0 {
			t.Fatalf("%+v was taken", a)
		}
		if _, told := a.Header["Content-Length"]; told {
			t.Error("a Content-Length was taken that is not of the body")
		}
		var saved, read Answer
		if err := saved.UnmarshalBinary(a.encode()); err != nil {
			t.Fatalf("it is taken, and cannot be read from a record: %v", err)
		}
		written, err := json.Marshal(saved)
		if err != nil {
			t.Fatalf("it is taken, and cannot be written: %v", err)
		}
		if err := json.Unmarshal(written, &read); err != nil {
			t.Fatalf("%s cannot be read: %v", written, err)
		}
		if want, got := sentAs(t, a), sentAs(t, read); want != got {
			t.Errorf("%s was read, and comes back as %s", want, got)
		}
	})
}

// sentAs returns an answer, as a client gets it, as text. The fields that announce trailers are made anew, and a
// trailer does not show whether it was announced.
func sentAs(t *testing.T, a Answer) string {
	t.Helper()
	h, set, trailers := http.Header{}, http.Header{}, http.Header{}
	a.putHeader(h)
	a.putTrailer(set)
	delete(h, "Trailer")
	for _, name := range slices.Sorted(maps.Keys(set)) {
		plain := strings.TrimPrefix(name, http.TrailerPrefix)
		trailers[plain] = append(trailers[plain], set[name]...)
	}
	var b bytes.Buffer
	for _, fields := range []http.Header{h, trailers} {
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			text, err := json.Marshal(map[string][]string{name: fields[name]})
			if err != nil {
				t.Fatal(err)
			}
			b.Write(text)
		}
	}
	body := a.Body
	if a.saved != nil {
		body = []byte(a.saved.body())
	}
	fmt.Fprintf(&b, "%d %q", a.Status, body)
	return b.String()
}
