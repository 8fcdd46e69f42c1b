package httponce

import (
	"encoding/json"
	"testing"

	"github.com/everonce/everonce/httponce/internal/wire"
)

// FuzzKeyJSON: a key that is found in a body is the one that encoding/json finds there, and is one that the core takes.
func FuzzKeyJSON(f *testing.F) {
	for _, s := range []string{`{"key":"k"}`, `{"key":"\u006b","a":[{}]}`, `{"key":"a","key":"b"}`, `{"key":1}`, `{"key":null}`, `[]`, `{"key":"k"} {}`, "{\"key\":\"\xff\"}", `{"k\u0065y":"k"}`} {
		f.Add([]byte(s))
	}
	k, err := (&Route{KeyJSON: "/key"}).bodyKey()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		key, found, wrong := k.findJSON(text)
		if !found || wrong != "" {
			if key != "" && wrong != "" && wire.CheckKey(key) != wrong {
				t.Errorf("%q: %q, %q", text, key, wrong)
			}
			return
		}
		var doc map[string]any
		if err := json.Unmarshal(text, &doc); err != nil || doc["key"] != key || wire.CheckKey(key) != "" {
			t.Errorf("%q: found %q, want %v (%v)", text, key, doc["key"], err)
		}
	})
}
