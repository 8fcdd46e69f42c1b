package httponce

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce/internal/jsonform"
)

func jsonRequest(body string) *http.Request {
	return request("POST", "/p", body, "Content-Type", "application/json")
}

// Two bodies with one meaning are equal; two bodies that a service may read differently are not.
func TestJSONBodies(t *testing.T) {
	for _, c := range []struct {
		one, two string
		equal    bool
	}{
		{`{"a":1,"b":2}`, ` { "b" : 2 , "a" : 1 } `, true},
		{`{"a":{"c":[1,{"e":1,"d":2}],"b":null}}`, `{"a":{"b":null,"c":[1,{"d":2,"e":1}]}}`, true},
		{`{"a":"\u00e9\/\u0041\ud83d\ude00"}`, `{"a":"é/A😀"}`, true},
		{`{"\u0061":1}`, `{"a":1}`, true},
		{`[1,2]`, `[ 1 , 2 ]`, true},
		{`[1,2]`, `[2,1]`, false},
		{`{"a":1}`, `{"a":2}`, false},
		{`{"a":1}`, `{"A":1}`, false},
		{`{"a":1}`, `{"a":1,"b":null}`, false},
		{`{"a":1}`, `{"a":"1"}`, false},
		{`{"a":null}`, `{}`, false},
		{`{"a":""}`, `{"a":null}`, false},
		{`true`, `"true"`, false},
		// Numbers are their digits.
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, false}, // 2^53 + 1 and 2^53
		{`{"a":123456789012345678901234567890}`, `{"a":123456789012345678901234567891}`, false},
		{`{"a":0.1}`, `{"a":0.1000000000000000055}`, false},
		{`{"a":9007199254740993.0}`, `{"a":9007199254740992.0}`, false},
		{`{"a":1.0}`, `{"a":1}`, false},
		{`{"a":1e2}`, `{"a":100}`, false},
		{`{"a":1e400}`, `{"a":1e401}`, false},
		{`{"a":-0}`, `{"a":0}`, false},
		// Two normal forms are two strings.
		{`{"a":"é"}`, `{"a":"e\u0301"}`, false},
		// A body with no single meaning is compared by its bytes.
		{`{"a":1,"a":2}`, `{"a":2,"a":1}`, false},
		{`{"a":1,"a":1}`, `{"a":1}`, false},
		{`{"a":1,"a":1}`, `{"a":1, "a":1}`, false},
		{`{"a":1,"\u0061":1}`, `{"a":1,"a":1}`, false},
		{"\"\xff\"", "\"\xfe\"", false},
		{"\"\xff\"", "\"\ufffd\"", false},
		{`"\ud800"`, `"\udc00"`, false},
		{`{"a":1} `, `{"a":1}x`, false},
		{`{"a":1}{"b":2}`, `{"a":1} {"b":2}`, false}, // two documents are not one
		{`{"a":1`, `{"a":1}`, false},
		{``, `null`, false},
		{`01`, `1`, false},
		{"\ufeff{}", "{}", false},
		{`{"a":NaN}`, `{"a":nan}`, false},
	} {
		if got := sumOf(t, Compare{JSON: true}, jsonRequest(c.one)) == sumOf(t, Compare{JSON: true}, jsonRequest(c.two)); got != c.equal {
			t.Errorf("%s and %s: equal is %v", c.one, c.two, got)
		}
		again := strings.Clone(c.one)
		if sumOf(t, Compare{JSON: true}, jsonRequest(c.one)) != sumOf(t, Compare{JSON: true}, jsonRequest(again)) {
			t.Errorf("%s is not itself", c.one)
		}
	}
}

// Only what says that it is JSON is read as that, and by its bytes it is another thing.
func TestContentTypesOfJSON(t *testing.T) {
	for contentType, want := range map[string]bool{
		"application/json":                     true,
		"Application/JSON":                     true,
		"application/json; charset=utf-8":      true,
		`application/json;charset="UTF-8"`:     true,
		"application/json; charset=us-ascii":   true,
		"application/json; profile=x":          true,
		"application/vnd.api+json":             true,
		"application/merge-patch+json; a=b":    true,
		"application/json; charset=utf-16":     false,
		"application/json; charset=iso-8859-1": false,
		"application/jsonl":                    false,
		"application/x-ndjson":                 false,
		"text/json":                            false,
		"text/plain":                           false,
		"application/json, application/json":   false,
		"application/json;":                    true,
		"application/json; charset":            false,
		"":                                     false,
		"application/octet-stream; x=+json":    false,
		"application/x-www-form-urlencoded":    false,
	} {
		if got := isJSON(http.Header{"Content-Type": {contentType}}); got != want {
			t.Errorf("%q: %v", contentType, got)
		}
	}
	for _, h := range []http.Header{{}, {"Content-Type": {"application/json", "application/json"}}} {
		if isJSON(h) {
			t.Errorf("%v is JSON", h)
		}
	}
	f := Compare{JSON: true}
	text := func(body string) *http.Request { return request("POST", "/p", body, "Content-Type", "text/plain") }
	if sumOf(t, f, text(`{"a":1}`)) == sumOf(t, f, text(`{ "a":1}`)) {
		t.Error("a text is read as JSON")
	}
	if sumOf(t, f, text(`{"a":1}`)) == sumOf(t, f, jsonRequest(`{"a":1}`)) {
		t.Error("a text is the same as JSON")
	}
	if sumOf(t, f, text(`{"a":1}`)).Alg != sumOf(t, f, jsonRequest(`{"a":1}`)).Alg {
		t.Error("the sender chooses the Alg, and so whether sums are compared")
	}
}

func TestJSONPointers(t *testing.T) {
	for _, c := range []struct {
		only, except []string
		one, two     string
		equal        bool
	}{
		{only: []string{"/id"}, one: `{"id":1,"at":1}`, two: `{"at":2,"id":1}`, equal: true},
		{only: []string{"/id"}, one: `{"id":1}`, two: `{"id":2}`},
		{only: []string{"/id"}, one: `{"id":null}`, two: `{"x":1}`},
		{only: []string{"/id"}, one: `{"x":1}`, two: `{"x":2}`}, // all of them are missing: the whole body is compared
		{only: []string{"/id"}, one: `{"x":1}`, two: `{ "x":1 }`, equal: true},
		{only: []string{"/id"}, one: `[1]`, two: `[2]`},
		{only: []string{"/id", "/to"}, one: `{"id":1}`, two: `{"id":1,"to":2}`},
		{only: []string{"/id", "/to"}, one: `{"id":1}`, two: `{"to":1}`},
		{only: []string{"/id", "/to"}, one: `{"id":1,"to":2}`, two: `{"id":2,"to":1}`},
		{only: []string{"/id", "/to"}, one: `{"id":"1","to":2}`, two: `{"id":1,"to":2}`},
		{only: []string{"/a/b"}, one: `{"a":{"b":1,"c":1}}`, two: `{"a":{"c":2,"b":1},"d":1}`, equal: true},
		{only: []string{"/a/b"}, one: `{"a":{"b":{"y":1,"x":2}}}`, two: `{"a":{"b":{"x":2,"y":1}}}`, equal: true},
		{only: []string{"/a", "/a/b"}, one: `{"a":{"b":1,"c":1}}`, two: `{"a":{"b":1,"c":2}}`},
		{only: []string{"/items/0/id"}, one: `{"items":[{"id":1,"n":1},{"id":2}]}`, two: `{"items":[{"id":1,"n":2}]}`, equal: true},
		{only: []string{"/items/1/id"}, one: `{"items":[{"id":1},{"id":2}]}`, two: `{"items":[{"id":1},{"id":3}]}`},
		{only: []string{"/items/01/id"}, one: `{"items":[{"id":1},{"id":2}]}`, two: `{"items":[{"id":3},{"id":2}]}`}, // no index: all counts
		{only: []string{"/0"}, one: `{"0":1,"a":1}`, two: `{"0":1,"a":2}`, equal: true},
		{only: []string{"/a~1b", "/m~0n"}, one: `{"a/b":1,"m~n":2,"x":1}`, two: `{"m~n":2,"a/b":1}`, equal: true},
		{only: []string{"/"}, one: `{"":1,"a":1}`, two: `{"":1,"a":2}`, equal: true},
		{only: []string{"/é"}, one: `{"\u00e9":1,"a":1}`, two: `{"é":1,"a":2}`, equal: true},
		{only: []string{"/a"}, one: `{"a":1,"a":2}`, two: `{"a":1,"a":3}`}, // which a?
		{except: []string{"/at"}, one: `{"id":1,"at":1}`, two: `{"at":2,"id":1}`, equal: true},
		{except: []string{"/at"}, one: `{"id":1,"at":1}`, two: `{"id":1}`, equal: true},
		{except: []string{"/at"}, one: `{"id":1,"at":1}`, two: `{"id":2,"at":1}`},
		{except: []string{"/at"}, one: `{"at":1}`, two: `{}`, equal: true},
		{except: []string{"/at"}, one: `{"at":1}`, two: `[]`},
		{except: []string{"/a", "/c"}, one: `{"a":1,"b":2,"c":3}`, two: `{"b":2}`, equal: true},
		{except: []string{"/a/b"}, one: `{"a":{"b":1,"c":1}}`, two: `{"a":{"c":1}}`, equal: true},
		{except: []string{"/a/b"}, one: `{"a":{"b":1}}`, two: `{}`},
		{except: []string{"/a/b"}, one: `{"a":1}`, two: `{"a":2}`},
		{except: []string{"/items/0"}, one: `{"items":[1,2,3]}`, two: `{"items":[9,2,3]}`, equal: true},
		{except: []string{"/items/0", "/items/1"}, one: `{"items":[1,2,3]}`, two: `{"items":[3,4,3]}`, equal: true},
		{except: []string{"/items/0"}, one: `{"items":[1,2,3]}`, two: `{"items":[1,3,2]}`},
		{except: []string{"/items/9"}, one: `{"items":[1,23]}`, two: `{"items":[12,3]}`},
		{except: []string{`/a"b`}, one: `{"a\"b":1,"c":1}`, two: `{"a\"b":2,"c":1}`, equal: true},
		{except: []string{"/items/-"}, one: `{"items":[1,2]}`, two: `{"items":[1,3]}`},
		{except: []string{"/items/1/at"}, one: `{"items":[{"at":1},{"at":2}]}`, two: `{"items":[{"at":1},{"at":3}]}`, equal: true},
		{except: []string{"/items/1/at"}, one: `{"items":[{"at":1},{"at":2}]}`, two: `{"items":[{"at":2},{"at":2}]}`},
		{except: []string{"/at"}, one: `{"a":"\"at\":1,","at":1}`, two: `{"a":"\"at\":1,","at":2}`, equal: true},
		{except: []string{"/at"}, one: `{"at":1,`, two: `{"at":2,`}, // no JSON
	} {
		f := Compare{JSONOnly: c.only, JSONExcept: c.except}
		if got := sumOf(t, f, jsonRequest(c.one)) == sumOf(t, f, jsonRequest(c.two)); got != c.equal {
			t.Errorf("only %q, except %q: %s and %s: equal is %v", c.only, c.except, c.one, c.two, got)
		}
	}
}

// A body that is in a file is compared alike, and its handler reads what was sent.
func TestLargeJSON(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var one, two strings.Builder
	const fields = 20_000
	for i := range fields {
		fmt.Fprintf(&one, `,"%05d":%d`, i, i)
		fmt.Fprintf(&two, `, "%05d": %d`, fields-1-i, fields-1-i)
	}
	a, b := "{"+one.String()[1:]+"}", "{"+two.String()[1:]+"}"
	if sumOf(t, Compare{JSON: true}, jsonRequest(a)) != sumOf(t, Compare{JSON: true}, jsonRequest(b)) {
		t.Error("large bodies that say the same differ")
	}
	if sumOf(t, Compare{JSONOnly: []string{"/00007"}}, jsonRequest(a)) == sumOf(t, Compare{JSONOnly: []string{"/00007"}}, jsonRequest(strings.Replace(a, `"00007":7`, `"00007":8`, 1))) {
		t.Error("a field in it is ignored")
	}
	small := filled(t, strings.NewReader(`{"b":1,"a":2}`), -1, 1<<20)
	form := &jsonform.Form{}
	if _, ok, err := form.Sum(small.size, small.bytes); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if got, err := io.ReadAll(small.open()); err != nil || string(got) != `{"b":1,"a":2}` {
		t.Errorf("the handler reads %s, %v", got, err)
	}
	inMemory, inFile := filled(t, strings.NewReader(a), -1, 1<<20), &body{memory: &space{0, new(atomic.Int64)}}
	if err := inFile.fill(strings.NewReader(b), -1, 1<<20, time.Time{}); err != nil || inFile.file == nil {
		t.Fatal(err, "the test is blind")
	}
	first, _, err := form.Sum(inMemory.size, inMemory.bytes)
	if second, ok, errFile := form.Sum(inFile.size, inFile.bytes); err != nil || errFile != nil || !ok || second != first {
		t.Errorf("one in memory and one in a file that say the same differ: %v, %v", err, errFile)
	}
	inFile.release()
	if _, _, err := form.Sum(inFile.size, inFile.bytes); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a file that cannot be read: %v", err)
	}
	checkNoFiles(t)
}

// A document that is as deep as one can be is hashed like any other, or by its bytes.
func TestDeepJSON(t *testing.T) {
	wide := "[" + strings.Repeat(`{"a":[1],"b":2},`, jsonform.MaxNesting) + "0]" // many, and not deep
	if f := (Compare{JSON: true}); sumOf(t, f, jsonRequest(wide)) != sumOf(t, f, jsonRequest(" "+wide)) {
		t.Error("a wide body is compared byte for byte")
	}
	for _, depth := range []int{100, 9_999, 10_000, 10_001, 400_000} {
		one := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		for _, f := range []Compare{{JSON: true}, {JSONOnly: []string{"/0/0/0"}}, {JSONExcept: []string{"/0/0/1"}}} {
			if sumOf(t, f, jsonRequest(one)) == sumOf(t, f, jsonRequest("["+one+"]")) {
				t.Errorf("%d: another depth is the same", depth)
			}
		}
	}
}

// Deep objects are compared byte for byte: to order their fields costs their depth times their size, which a sender
// chooses. Brackets in strings are no depth.
func TestDeepObjectsAreComparedByteForByte(t *testing.T) {
	brackets := strings.Repeat(`{[\\\"`, 1_000)
	for _, c := range []struct {
		depth int
		equal bool
	}{{1, true}, {128, true}, {129, false}, {9_000, false}} {
		one := strings.Repeat(`{"b":`, c.depth) + `"` + brackets + `"` + strings.Repeat(`,"a":1}`, c.depth)
		two := " " + one
		for _, f := range []Compare{{JSON: true}, {JSONOnly: []string{"/b"}}, {JSONExcept: []string{"/a"}}} {
			if equal := sumOf(t, f, jsonRequest(one)) == sumOf(t, f, jsonRequest(two)); equal != c.equal {
				t.Errorf("%d levels, %+v: two spellings are equal: %v", c.depth, f, equal)
			}
		}
	}
}
