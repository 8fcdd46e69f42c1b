package httponce_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
)

// Repetitions get the answer that an operator settled, given in JSON or as a value.
func TestASettledAnswerIsReplayed(t *testing.T) {
	typed := httponce.Answer{Status: 201, Header: http.Header{"Location": {"/payments/1"}}, Body: []byte("paid")}
	for name, c := range map[string]struct {
		settlement everonce.Settlement
		want       got
	}{
		"a value": {everonce.Settlement{Value: typed}, got{status: 201, body: "paid", location: "/payments/1", mark: "true"}},
		"JSON": {
			everonce.Settlement{Encoded: []byte(`{"status":201,"headers":{"location":["/payments/1"],"Content-Length":["9"]},"body":"paid"}`)},
			got{status: 201, body: "paid", location: "/payments/1", mark: "true"},
		},
		"JSON, in base64": {everonce.Settlement{Encoded: []byte(`{"body_base64":"cGFpZA=="}`)}, got{status: 200, body: "paid", mark: "true"}},
		"JSON, elided":    {everonce.Settlement{Encoded: []byte(`{"status":201,"missing":"elided"}`)}, got{status: 201, mark: "elided"}},
		"nothing":         {everonce.Settlement{}, got{status: 200, mark: "elided"}},
	} {
		t.Run(name, func(t *testing.T) {
			svc := newService(t, setup{handle: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }})
			svc.post("k")
			c.settlement.Verdict = everonce.SettleDone
			if err := svc.recv.Settle(t.Context(), keyOf("k"), c.settlement); err != nil {
				t.Fatal(err)
			}
			g := svc.post("k")
			if g.status != c.want.status || g.body != c.want.body || g.location != c.want.location || g.mark != c.want.mark || svc.ran() != 1 {
				t.Errorf("a repetition got %+v, and the handler ran %d times; want %+v", g, svc.ran(), c.want)
			}
		})
	}
}

func TestAnswersAreTheSameInJSON(t *testing.T) {
	for _, a := range []httponce.Answer{
		{Status: 200, Header: http.Header{}, Body: []byte{}},
		{Status: 404, Header: http.Header{"Content-Type": {"text/plain"}, "Link": {"<a>", "<b>"}}, Body: []byte("none")},
		{Status: 200, Header: http.Header{}, Body: []byte{0xff, 0}, Trailer: http.Header{"Checksum": {"1"}}},
		{Status: 204, Header: http.Header{"Location": {"/"}}, Elided: true},
	} {
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		var back httponce.Answer
		if err := json.Unmarshal(text, &back); err != nil || !bytes.Equal(back.Body, a.Body) || !reflect.DeepEqual(back.Header, a.Header) ||
			!reflect.DeepEqual(back.Trailer, a.Trailer) || back.Status != a.Status || back.Elided != a.Elided {
			t.Errorf("%s came back as %+v, %v", text, back, err)
		}
	}
	for want, a := range map[string]httponce.Answer{
		`{"status":200,"headers":{},"missing":"elided"}`:                 {Header: http.Header{"Content-Length": {"7"}, "content-encoding": {"gzip"}}, Elided: true},
		`{"status":200,"headers":{},"body":"","trailers":{"X-A":["a"]}}`: {Trailer: http.Header{http.TrailerPrefix + "X-A": {"a"}}},
	} {
		if text, err := json.Marshal(a); err != nil || string(text) != want {
			t.Errorf("%+v was written as %s, %v, want %s", a, text, err, want)
		}
	}
	var told httponce.Answer
	if err := json.Unmarshal([]byte(`{"headers":{"content-length":["0"]},"body":"paid"}`), &told); err != nil || len(told.Header) != 0 {
		t.Errorf("a length that is not the body's: %+v, %v", told, err)
	}
	if text, err := json.Marshal(httponce.Answer{Status: 99}); err == nil {
		t.Errorf("the status 99 was written: %s", text)
	}
}

// A typing error must not become an empty answer that is kept for good.
func TestWrongAnswersInJSON(t *testing.T) {
	for _, text := range []string{
		`"paid"`, `[]`, `1`, `{"Header":{"Location":["/"]}}`, `{"headers":{"Location":"/"}}`, `{"status":"201"}`, `{"status":100}`, `{"status":1000}`,
		`{"state":"done","answer":{"status":201}}`, `{"body":{"id":1}}`, `{"body":"a","body_base64":"YQ=="}`, `{"body_base64":"?"}`, `{"missing":"elided","body":"a"}`,
	} {
		a := httponce.Answer{Status: 418}
		if err := json.Unmarshal([]byte(text), &a); err == nil || a.Status != 418 {
			t.Errorf("%s was read as %+v, %v", text, a, err)
		}
	}
}

// A status document's answer can be given back as a verdict.
func TestTheAnswerOfAStatusIsOne(t *testing.T) {
	var a httponce.Answer
	document := `{"status":201,"headers":{"Content-Type":["application/json"],"Location":["/payments/1"]},"body":"{\"id\":1}"}`
	if err := json.Unmarshal([]byte(document), &a); err != nil {
		t.Fatal(err)
	}
	if text, err := json.Marshal(a); err != nil || string(text) != document {
		t.Errorf("it came back as %s, %v", text, err)
	}
}
