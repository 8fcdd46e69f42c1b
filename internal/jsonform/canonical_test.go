package jsonform

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzCanonical: a canonical form is JSON that says the same, digit by digit, and is its own canonical form; what is
// left out or kept never fails to be read.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"b":1,"a":[1.0,-0,1e5,9007199254740993]}`, `"\u00e9\ud83d\ude00"`, ` [ ] `, `{"a":{"b":{}}}`, `{"":null,"~":true}`, `{"a":1,"a":2}`, "\xff", `1`, `{"a":[{"b":[1,2,3]}]}`} {
		f.Add([]byte(s))
	}
	except, err := parsePointers("JSONExcept", []string{"/a", "/b/0", "/c/a/b", "/~0", "/1"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, ok := canonical(raw)
		if !ok {
			return
		}
		if again, ok := canonical(v); !ok || !bytes.Equal(again, v) {
			t.Errorf("%q: %q, again %q", raw, v, again)
		}
		if !bytes.Equal(meaning(t, raw), meaning(t, v)) {
			t.Errorf("%q: %q says another thing", raw, v)
		}
		rest := except.without(v)
		if again, ok := canonical(rest); !ok || !bytes.Equal(again, rest) {
			t.Errorf("%q: left is %q", v, rest)
		}
		if kept := except.keep(v); len(kept) == 0 {
			t.Errorf("%q: nothing is kept", v)
		}
	})
}

// meaning is what encoding/json reads, with numbers as they stand.
func meaning(t *testing.T, raw []byte) []byte {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	return b
}
