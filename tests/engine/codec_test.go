package engine

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/everonce/everonce"
)

func TestRawCodec(t *testing.T) {
	c := everonce.Raw()
	src := []byte("abc")
	got, err := c.Marshal(src)
	checkErr(t, err, nil)
	src[0] = 'x'
	checkEqual(t, "a copy", string(got), "abc")

	got, err = c.Marshal("abc")
	checkErr(t, err, nil)
	checkEqual(t, "of a string", string(got), "abc")

	data := []byte("abc")
	var b []byte
	checkErr(t, c.Unmarshal(data, &b), nil)
	data[0] = 'x'
	checkEqual(t, "a copy back", string(b), "abc")
	var s string
	checkErr(t, c.Unmarshal([]byte("abc"), &s), nil)
	checkEqual(t, "a string back", s, "abc")

	for _, empty := range []any{[]byte(nil), []byte{}, ""} {
		got, err := c.Marshal(empty)
		if err != nil || got == nil || len(got) != 0 {
			t.Errorf("%#v: %#v, %v; want an empty slice that is not nil", empty, got, err)
		}
	}
	type (
		body []byte
		text string
	)
	for want, v := range map[string]any{"body": body("body"), "text": text("text")} {
		got, err := c.Marshal(v)
		checkErr(t, err, nil)
		checkEqual(t, "of a named type", string(got), want)
	}
	var nb body
	checkErr(t, c.Unmarshal([]byte("abc"), &nb), nil)
	checkEqual(t, "named bytes back", string(nb), "abc")
	var ns text
	checkErr(t, c.Unmarshal([]byte("abc"), &ns), nil)
	checkEqual(t, "a named string back", ns, text("abc"))

	if _, err := c.Marshal(5); err == nil || !strings.Contains(err.Error(), "int") {
		t.Errorf("an int: %v", err)
	}
	var n int
	if err := c.Unmarshal(data, &n); err == nil || !strings.Contains(err.Error(), "*int") {
		t.Errorf("an *int: %v", err)
	}
}

func TestJSONCodec(t *testing.T) {
	c := everonce.JSON()
	v := map[string]any{"a": []any{"x", true, nil}}
	got, err := c.Marshal(v)
	checkErr(t, err, nil)
	want, err := json.Marshal(v)
	checkErr(t, err, nil)
	if !bytes.Equal(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	var back map[string]any
	checkErr(t, c.Unmarshal(got, &back), nil)
	checkEqual(t, "back", back, v)
}
