package wire

import (
	"net/http"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"

	"github.com/everonce/everonce"
)

func TestParseKey(t *testing.T) {
	long := strings.Repeat("k", MaxKeyLen)
	for value, want := range map[string]string{
		`8e03978e-40d5-43dd-bc93-6894a57f9324`:   "8e03978e-40d5-43dd-bc93-6894a57f9324",
		`"8e03978e-40d5-43dd-bc93-6894a57f9324"`: "8e03978e-40d5-43dd-bc93-6894a57f9324",
		`7391827364518273645`:                    "7391827364518273645", // Firefox' own are 64 bits
		`1`:                                      "1",
		`"1"`:                                    "1",
		" \t1\t ":                                "1",
		` "1" `:                                  "1",
		`"a b"`:                                  "a b",
		`" "`:                                    " ",
		`"a,b"`:                                  "a,b",
		`"a\"b"`:                                 `a"b`,
		`"a\\b"`:                                 `a\b`,
		`"\\"`:                                   `\`,
		`a"b`:                                    `a"b`,
		`a\b`:                                    `a\b`,
		`a'b;c=d`:                                `a'b;c=d`,
		`"k";a`:                                  "k",
		`"k"; a=1;b="x,y";c=:AQ==:;d=tok;e=?0`:   "k",
		// Other structured fields are no strings, and so are raw keys, if they may be.
		`:YWJj:`:           ":YWJj:",
		`?1`:               "?1",
		`@1659578233`:      "@1659578233",
		`("a")`:            `("a")`,
		`%"gr%c3%bcn"`:     `%"gr%c3%bcn"`,
		long:               long,
		`"` + long + `"`:   long,
		`"` + long + `";a`: long,
		`"k";p="` + strings.Repeat("p", 1020-8) + `"`: "k", // 1020 bytes
		`"` + strings.Repeat(`\"`, MaxKeyLen) + `"`:   strings.Repeat(`"`, MaxKeyLen),
	} {
		if got, p := ParseKey(value); p != "" || got != want {
			t.Errorf("%s: %q, %q, want %q", value, got, p, want)
		}
	}
}

// Invalid keys are rejected.
func TestInvalidKeys(t *testing.T) {
	long := strings.Repeat("k", MaxKeyLen+1)
	for value, want := range map[string]KeyProblem{
		"":               KeyEmpty,
		" \t ":           KeyEmpty,
		`""`:             KeyEmpty,
		`"";a`:           KeyEmpty,
		long:             KeyTooLong,
		`"` + long + `"`: KeyTooLong,
		`"k";p="` + strings.Repeat("p", 1021-8) + `"`: KeyTooLong, // 1021 bytes: before it is parsed
		"kay,kay":         KeyComma,
		"kay, kay":        KeyComma,
		"kay kay":         KeyNotVisible,
		"kay\tkay":        KeyNotVisible,
		"kay\x00":         KeyNotVisible,
		"kay\r\nX-Evil:1": KeyNotVisible,
		"kay\x7f":         KeyNotVisible,
		"käy":             KeyNotVisible, // obs-text
		`(kay "kay")`:     KeyNotVisible,
		`"`:               KeyNoString,
		`"kay`:            KeyNoString,
		`"kay"kay`:        KeyNoString,
		`"kay" kay`:       KeyNoString,
		`"kay", "kay"`:    KeyNoString,
		`"kay","kay"`:     KeyNoString,
		`"kay\n"`:         KeyNoString,
		`"kay\"`:          KeyNoString,
		"\"kay\tkay\"":    KeyNoString,
		"\"kay\x1f\"":     KeyNoString,
		"\"kay\x7f\"":     KeyNoString,
		`"käy"`:           KeyNoString,
		"\"kay\r\n\"":     KeyNoString,
		`"kay";`:          KeyNoString,
		`"kay";A`:         KeyNoString,
		`"kay";a=`:        KeyNoString,
		"\"kay\";\ta":     KeyNoString,
		`"kay";a=(1 2)`:   KeyNoString,
	} {
		if key, p := ParseKey(value); p != want || key != "" {
			t.Errorf("%q: %q, %q, want %q", value, key, p, want)
		}
	}
}

// A repeated header is two keys, even if they are equal; one line with two members is rejected by its comma.
func TestSeveralKeys(t *testing.T) {
	for _, values := range [][]string{{"a", "b"}, {"a", "a"}, {`"a"`, "a"}, {"", "a"}} {
		if _, found, p := KeyOf(http.Header{"Idempotency-Key": values}, "Idempotency-Key"); !found || p != KeyRepeated {
			t.Errorf("%q: found is %v, %q", values, found, p)
		}
	}
	if _, found, p := KeyOf(http.Header{"Idempotency-Key": {""}}, "Idempotency-Key"); !found || p != KeyEmpty {
		t.Errorf("an empty header: found is %v, %q", found, p)
	}
	if _, found, p := KeyOf(http.Header{}, "Idempotency-Key"); found || p != "" {
		t.Errorf("no header: found is %v, %q", found, p)
	}
}

// FuzzParseKey: the two spellings of a key are the same key, what is written with the library is read back, and what is
// accepted can be sent back in a header as it came.
func FuzzParseKey(f *testing.F) {
	for _, s := range []string{
		"", "k", `"k"`, `"k`, `"k\"k"`, `"k\\"`, `"k";a=1`, `"k";a="b";c`, "a,b", `"a,b"`, "a b", " k ", "\tk", "k\x7f", "ü", "\x80",
		`"";q`, `:YQ==:`, "?1", "1.5", "@1", "(a)", "k\r\nSet-Cookie: a=b", `"k\r\n"`, strings.Repeat("k", 255), strings.Repeat("k", 256),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, p := ParseKey(value)
		if p == "" {
			checkKey(t, value, key)
		} else if key != "" {
			t.Errorf("%q: %q, %q", value, key, p)
		}
		// The value as a key: however it is sent, it is that key.
		quoted, err := httpsfv.Marshal(httpsfv.NewItem(value))
		if err != nil || value == "" || len(value) > MaxKeyLen {
			return
		}
		if got, p := ParseKey(quoted); p != "" || got != value {
			t.Errorf("%q as %q: %q, %q", value, quoted, got, p)
		}
		if raw, p := ParseKey(value); p == "" && value[0] != '"' && value[0] != ' ' && value[len(value)-1] != ' ' && raw != value {
			t.Errorf("%q raw: %q", value, raw)
		}
	})
}

func checkKey(t *testing.T, value, key string) {
	t.Helper()
	if err := (everonce.Key{Scope: "s", ID: key}).Validate(); err != nil {
		t.Errorf("%q: the core does not take the key: %v", value, err)
	}
	if key == "" || len(key) > MaxKeyLen || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
		t.Errorf("%q: the key is %q", value, key)
	}
	if strings.ContainsAny(value, "\r\n\x00") {
		t.Errorf("%q can break out of a header", value)
	}
	trimmed := strings.Trim(value, " \t")
	if trimmed[0] != '"' {
		if key != trimmed {
			t.Errorf("%q: the key is %q", value, key)
		}
		return
	}
	item, err := httpsfv.UnmarshalItem([]string{trimmed})
	if err != nil || item.Value != key {
		t.Errorf("%q: the key is %q, the library has %v, %v", value, key, item.Value, err)
	}
}
