package consume_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/envelope"
)

// found reads a key twice. It returns either a key that is not empty, or an error that wraps ErrNoKey.
func found(t *testing.T, key consume.Key, m *consume.Message) (string, error) {
	t.Helper()
	k, err := key(m)
	if again, err2 := key(m); again != k || (err == nil) != (err2 == nil) {
		t.Errorf("%+v: %q, and then %q, %v", m, k, again, err2)
	}
	if (k == "") != (err != nil) || err != nil && !errors.Is(err, consume.ErrNoKey) {
		t.Errorf("%+v: %q, %v", m, k, err)
	}
	return k, err
}

// FuzzJSONPointer: another JSON reader finds the same value at the pointer, and if all readers agree on the body and
// the value is a string or an integer, it gives a key.
func FuzzJSONPointer(f *testing.F) {
	for _, body := range []string{
		`{"a":{"b":"x"}}`, `{"a":[{"b":1}]}`, `{"a":{"b":"x","b":"y"}}`, `[`, "\"\xff\"", `{"a":{"b":1e999}}`, `{"a":{"b":-0}}`, `{"a":{"b":""}}`, `{"a":{"b":null}}`,
		`{"a":{"b":123456789012345678901234567890}}`, `{"a":{"b":"x"}} {}`, `{"a":{"b":"x"}}x`, `{"\u0061":{"b":"x"}}`, `{"a":{"b":"x"},"\u0061":{"b":"y"}}`, `{"a":{"b":"\ud800"}}`,
	} {
		f.Add([]byte(body), "/a/b")
	}
	f.Add([]byte(`[[1,2],[3,4]]`), "/1/0")
	f.Add([]byte(`[[1,2],[3,4]]`), "/01/0")
	f.Add([]byte(`[1]`), "/18446744073709551616")
	f.Add([]byte(`{"a/b":{"~":7,"":8}}`), "/a~1b/~0")
	f.Add([]byte(`{"a/b":{"~":7,"":8}}`), "/a~1b/")
	f.Fuzz(func(t *testing.T, body []byte, pointer string) {
		key := consume.JSONPointer(pointer)
		if key == nil {
			return
		}
		k, err := found(t, key, &consume.Message{Body: body})
		value, there := valueAt(body, pointer)
		switch {
		case err == nil && (!there || value != k):
			t.Errorf("%q at %q: %q, and by encoding/json %q, %v", body, pointer, k, value, there)
		case err != nil && there && value != "" && utf8.Valid(body) && !bytes.Contains(body, []byte(`\`)) && !quotedTwice(body):
			t.Errorf("%q at %q: %v, and by encoding/json %q", body, pointer, err, value)
		}
	})
}

var quoted = regexp.MustCompile(`"[^"]*"`)

// quotedTwice reports whether a body has a text twice, which may be a name that an object has twice.
func quotedTwice(body []byte) bool {
	seen := map[string]bool{}
	return slices.ContainsFunc(quoted.FindAllString(string(body), -1), func(name string) bool {
		before := seen[name]
		seen[name] = true
		return before
	})
}

// valueAt returns the text, or the digits of the integer, that encoding/json finds at a pointer.
func valueAt(body []byte, pointer string) (string, bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var at any
	if !json.Valid(body) || d.Decode(&at) != nil {
		return "", false
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		switch in := at.(type) {
		case map[string]any:
			at = in[token]
		case []any:
			i, err := strconv.ParseUint(token, 10, 31)
			if err != nil || i >= uint64(len(in)) || token != strconv.FormatUint(i, 10) {
				return "", false
			}
			at = in[i]
		default:
			return "", false
		}
	}
	switch v := at.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), v != "-0" && !strings.ContainsAny(v.String(), ".eE")
	}
	return "", false
}

// FuzzCloudEvent: two events have the same key if and only if they have the same source and ID, in whatever form each
// is sent, and whatever else brokers and retries add.
func FuzzCloudEvent(f *testing.F) {
	f.Add("/shop", "7", "/shop", "7")
	f.Add("a:b", "c", "a", "b:c")
	f.Add("a%", "3Ab", "a%3A", "b")
	f.Add("a:", "b", "a%3A", "b")
	f.Add("", "7", "/shop", "")
	f.Add("/shop", "\"7\"", "/shop", "7")
	f.Add("caf\xe9", "7", "caf\ufffd", "7")
	f.Fuzz(func(t *testing.T, source1, id1, source2, id2 string) {
		var keys [2][]string
		for i, e := range [...][2]string{{source1, id1}, {source2, id2}} {
			whole := e[0] != "" && e[1] != ""
			for _, prefix := range []string{"ce-", "ce_", "cloudEvents:", "cloudEvents_"} {
				value := func(text string) string { return text }
				if prefix == "ce-" {
					value = envelope.HTTP.Value
				}
				m := &consume.Message{ID: "another", Headers: map[string]string{prefix + "source": value(e[0]), prefix + "id": value(e[1])}}
				k, err := found(t, consume.CloudEvent(), m)
				if whole != (err == nil) {
					t.Errorf("%q: %q, %v", e, k, err)
				}
				keys[i] = append(keys[i], k)
				m.Retries, m.Deliveries, m.Redelivered, m.BrokerID, m.Headers["x-death"] = 3, 4, true, "8", "1"
				keys[i] = append(keys[i], must(t, m, k))
				delete(m.Headers, prefix+"id")
				m.OmittedHeaders = []string{prefix + "id"} // its value had no room
				if other, err := found(t, consume.FirstOf(consume.CloudEvent(), consume.ProducerID()), m); err == nil && e[0] != "" {
					t.Errorf("%q: an event whose ID had no room has the key %q", e, other)
				}
			}
			if !utf8.ValidString(e[0]) || !utf8.ValidString(e[1]) {
				continue // JSON has no such text
			}
			body, err := json.Marshal(map[string]string{"specversion": "1.0", "source": e[0], "id": e[1]})
			if err != nil {
				t.Fatal(err)
			}
			k, err := found(t, consume.CloudEvent(), &consume.Message{ContentType: "application/CloudEvents+json ; charset=utf-8", Body: body, Headers: map[string]string{"ce-id": "forged", "ce-source": "forged"}})
			if whole != (err == nil) {
				t.Errorf("%q, as JSON: %q, %v", e, k, err)
			}
			keys[i] = append(keys[i], k)
		}
		for i := range keys {
			if keys[i] = slices.Compact(keys[i]); len(keys[i]) != 1 {
				t.Errorf("one event has the keys %q", keys[i])
			}
		}
		if k := keys[0][0]; k != "" && (k == keys[1][0]) != (source1 == source2 && id1 == id2) {
			t.Errorf("%q %q and %q %q have the keys %q and %q", source1, id1, source2, id2, k, keys[1][0])
		}
	})
}

// must returns the key of an event, or fails the test.
func must(t *testing.T, m *consume.Message, before string) string {
	t.Helper()
	k, err := found(t, consume.CloudEvent(), m)
	if (err == nil) != (before != "") {
		t.Errorf("a redelivery: %q, %v; it was %q", k, err, before)
	}
	return k
}
