package client

import (
	"errors"
	"strings"
	"testing"

	"github.com/everonce/everonce/httponce/internal/wire"
)

func TestTransportField(t *testing.T) {
	const refused = "refused"
	for _, tc := range []struct{ key, quoted, raw string }{
		{"8e03978e-40d5-43dd-bc93-6894a57f9324", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`, "8e03978e-40d5-43dd-bc93-6894a57f9324"},
		{`back\slash`, `"back\\slash"`, `back\slash`},
		{`in"side`, `"in\"side"`, `in"side`},
		{`"quoted"`, `"\"quoted\""`, refused},
		{"a,b", `"a,b"`, refused},
		{"x y", `"x y"`, refused},
		{" ", `" "`, refused},
		{"", refused, refused},
		{"a\r\nX-Injected: 1", refused, refused},
		{"a\x00", refused, refused},
		{"a\x7f", refused, refused},
		{"größe", refused, refused},
		{strings.Repeat("k", 255), `"` + strings.Repeat("k", 255) + `"`, strings.Repeat("k", 255)},
		{strings.Repeat("k", 256), refused, refused},
	} {
		for raw, want := range map[bool]string{false: tc.quoted, true: tc.raw} {
			got, err := fieldOf(tc.key, raw)
			if want == refused {
				if !errors.Is(err, ErrInvalidKey) || len(tc.key) > 1 && strings.Contains(err.Error(), tc.key) {
					t.Errorf("fieldOf(%q, %v) = %q, %v; want it refused, and not quoted", tc.key, raw, got, err)
				}
				continue
			}
			if got != want || err != nil {
				t.Errorf("fieldOf(%q, %v) = %q, %v; want %q", tc.key, raw, got, err, want)
			}
		}
	}
}

// FuzzTransportField: what the client sends, in either spelling, is what the server reads.
func FuzzTransportField(f *testing.F) {
	for _, seed := range []string{"order-7", `a"b\c`, `"q"`, "a,b", "a b", " ", "\x00", "é", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		for _, raw := range []bool{false, true} {
			v, err := fieldOf(key, raw)
			if err != nil {
				continue
			}
			got, problem := wire.ParseKey(v)
			if got != key || problem != "" {
				t.Errorf("%q is sent as %q, which reads as %q (%v)", key, v, got, problem)
			}
		}
	})
}
